//! All definitions of a home folder, and the rules between them.

mod depth;
mod references;
mod routing;
mod scripts;

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polity_model::name::Name;

use self::scripts::ScriptLoader;
use crate::agent::{AgentDefinition, AgentFile, CliAgent};
use crate::config::mcp_server::{McpServerDefinition, McpServersFile, ServersRead};
use crate::config::retention::{RetentionPolicy, RetentionPolicyFile};
use crate::config::settings::{HomeSettings, SettingsFile};
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::{DefinitionProblem, FindingText};
use crate::file::schema::DefinitionKind;
use crate::file::{EmptyFile, read};
use crate::schedule::{ScheduleDefinition, ScheduleFile};
use crate::script::{ScriptDefinition, ScriptFile};
use crate::value::suggest;
use crate::workflow::{ScriptPath, ScriptSource, WorkflowDefinition, WorkflowFile};

/// The file extensions of definitions.
pub const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

const SETTINGS_STEM: &str = "polity";

/// The reason why a script that is not there cannot be used.
pub const MISSING_SCRIPT: &str = "there is no such file in the home";

/// True if the path is the settings file, which marks a folder as a home.
pub fn is_settings(path: &str) -> bool {
    is_config(path, SETTINGS_STEM)
}

/// True if the path is the retention policy.
pub fn is_retention_policy(path: &str) -> bool {
    is_config(path, "config/retention_policy")
}

/// True if the path declares the MCP servers.
pub fn is_servers(path: &str) -> bool {
    is_config(path, "config/mcp_servers")
}

fn is_config(path: &str, stem: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(found, extension)| found == stem && EXTENSIONS.contains(&extension))
}

/// A file of the home folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    /// Its path relative to the home, with `/` between the parts.
    pub path: String,
    /// The text, or the reason it could not be read.
    pub text: Result<String, String>,
}

/// Every valid definition of a home, and every problem of the others.
#[derive(Debug, Clone, Default)]
pub struct Home {
    /// The settings, or the defaults if `polity.yaml` is missing or wrong.
    pub settings: HomeSettings,
    /// The valid agents.
    pub agents: BTreeMap<Name, Arc<AgentDefinition>>,
    /// The valid workflows.
    pub workflows: BTreeMap<Name, Arc<WorkflowDefinition>>,
    /// The valid schedules.
    pub schedules: BTreeMap<Name, Arc<ScheduleDefinition>>,
    /// The valid MCP servers.
    pub mcp_servers: BTreeMap<Name, Arc<McpServerDefinition>>,
    /// The retention policy, or the default one if its file is missing or wrong.
    pub retention_policy: RetentionPolicy,
    /// The valid scripts of scripted models.
    pub scripts: BTreeMap<Name, Arc<ScriptDefinition>>,
    /// The scripts of the workflows' nodes.
    pub steps: BTreeMap<ScriptPath, Arc<ScriptSource>>,
    /// All problems of all files, by file and place.
    pub problems: Vec<DefinitionProblem>,
    /// The files that claim the name of an agent or workflow but are not valid.
    broken: BTreeMap<Name, BTreeSet<String>>,
    /// The files of scripts that are not valid.
    broken_scripts: BTreeMap<Name, BTreeSet<String>>,
}

/// The result of looking up a name.
#[derive(Debug, Clone, PartialEq)]
pub enum NameLookup {
    /// An agent.
    Agent(Arc<AgentDefinition>),
    /// A workflow.
    Workflow(Arc<WorkflowDefinition>),
    /// A file with these problems.
    Broken(Vec<DefinitionProblem>),
    /// Nothing.
    Unknown {
        /// The name that was probably meant.
        suggestion: Option<Name>,
    },
}

/// The definition of one file, if it could be decoded.
#[expect(clippy::large_enum_variant, reason = "there is one for each file, for a moment")]
enum FileContent {
    Agent(Option<AgentDefinition>),
    Workflow(Option<WorkflowDefinition>),
    Schedule(Option<ScheduleDefinition>),
    Script(Option<ScriptDefinition>),
    McpServers(Option<ServersRead>),
    Settings(Option<HomeSettings>),
    RetentionPolicy(Option<RetentionPolicy>),
}

/// One file while the home is being read.
struct FileEntry {
    path: String,
    kind: DefinitionKind,
    /// The name from the file name, if it is valid.
    name: Option<Name>,
    /// The name written inside, if it differs.
    other_name: Option<Name>,
    /// True if another file has the same name, which makes it invalid.
    contested: bool,
    /// Problems with the home's limits. The definition is valid all the same.
    beyond_limits: Vec<DefinitionProblem>,
    checker: FileChecker,
    content: FileContent,
}

impl Home {
    /// Reads all definitions. Other files are scripts, or ignored.
    pub fn parse(files: Vec<HomeFile>) -> Self {
        let others: BTreeMap<String, Result<String, String>> = files
            .iter()
            .filter(|file| classify(&file.path).is_none())
            .map(|file| (file.path.clone(), file.text.clone()))
            .collect();
        Self::parse_with(files, &mut |path| {
            let text = others.get(path.as_str()).cloned();
            text.unwrap_or_else(|| Err(MISSING_SCRIPT.to_owned()))
        })
    }

    /// Reads all definitions, and the scripts that they name with `read_script`, which gives the
    /// text of a script or the reason that it cannot be read.
    pub fn parse_with(
        mut files: Vec<HomeFile>,
        read_script: &mut dyn FnMut(&ScriptPath) -> Result<String, String>,
    ) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut entries: Vec<FileEntry> = files.iter().filter_map(FileEntry::read).collect();
        refuse_shared_names(&mut entries);
        let mut scripts = ScriptLoader::new(read_script);
        references::check(&mut entries, &mut scripts);
        routing::check(&mut entries);
        depth::check(&mut entries);
        let mut home = Self { steps: scripts.into_scripts(), ..Self::default() };
        for entry in entries {
            home.add(entry);
        }
        home.problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        home
    }

    /// Looks up the agent or workflow of a name.
    ///
    /// A file with the wrong `name` inside does not hide the definition of that name.
    pub fn find(&self, name: &str) -> NameLookup {
        if let Some(agent) = self.agents.get(name) {
            return NameLookup::Agent(Arc::clone(agent));
        }
        if let Some(workflow) = self.workflows.get(name) {
            return NameLookup::Workflow(Arc::clone(workflow));
        }
        if let Some(files) = self.broken.get(name) {
            return NameLookup::Broken(self.problems_of(files));
        }
        let names = self.agents.keys().chain(self.workflows.keys()).chain(self.broken.keys());
        let nearest = suggest::nearest(name, names.map(Name::as_str));
        NameLookup::Unknown { suggestion: nearest.and_then(|name| name.parse().ok()) }
    }

    /// The script that a valid agent names, or why it cannot be used.
    pub fn script(&self, name: &Name) -> Result<Arc<ScriptDefinition>, Vec<DefinitionProblem>> {
        match self.scripts.get(name) {
            Some(script) => Ok(Arc::clone(script)),
            None => Err(self
                .broken_scripts
                .get(name)
                .map(|files| self.problems_of(files))
                .unwrap_or_default()),
        }
    }

    fn problems_of(&self, files: &BTreeSet<String>) -> Vec<DefinitionProblem> {
        self.problems.iter().filter(|problem| files.contains(&problem.file)).cloned().collect()
    }

    fn add(&mut self, entry: FileEntry) {
        let FileEntry {
            path,
            kind: _,
            name,
            other_name,
            contested,
            beyond_limits,
            checker,
            content,
        } = entry;
        let clean = checker.is_clean() && !contested;
        self.problems.extend(checker.into_problems().into_iter().chain(beyond_limits));
        match content {
            FileContent::Agent(Some(agent)) if clean => {
                self.agents.insert(agent.name.clone(), Arc::new(agent));
            }
            FileContent::Workflow(Some(workflow)) if clean => {
                self.workflows.insert(workflow.name.clone(), Arc::new(workflow));
            }
            FileContent::Schedule(Some(schedule)) if clean => {
                self.schedules.insert(schedule.name.clone(), Arc::new(schedule));
            }
            FileContent::Script(Some(script)) if clean => {
                self.scripts.insert(script.name.clone(), Arc::new(script));
            }
            FileContent::Settings(Some(settings)) if clean => self.settings = settings,
            FileContent::RetentionPolicy(Some(policy)) if clean => self.retention_policy = policy,
            // One invalid server does not remove the others.
            FileContent::McpServers(Some(servers)) if !contested => {
                let named = |server: McpServerDefinition| (server.name.clone(), Arc::new(server));
                self.mcp_servers.extend(servers.valid.into_iter().map(named));
            }
            FileContent::Agent(_) | FileContent::Workflow(_) => {
                for name in name.into_iter().chain(other_name) {
                    self.broken.entry(name).or_default().insert(path.clone());
                }
            }
            FileContent::Script(_) => {
                if let Some(name) = name {
                    self.broken_scripts.entry(name).or_default().insert(path);
                }
            }
            _ => {}
        }
    }
}

impl FileEntry {
    /// Reads a file if its path is that of a definition.
    fn read(file: &HomeFile) -> Option<Self> {
        let (kind, stem) = classify(&file.path)?;
        let (path, text) = (&file.path, file.text.as_deref().map_err(String::as_str));
        let name = stem.parse::<Name>();
        let refused = EmptyFile::Refused;
        let (content, mut checker) = match kind {
            DefinitionKind::Agent => {
                let (agent, mut checker) = read(path, text, refused, AgentFile::check);
                // Not a rule of pinned definitions: those of earlier versions stay readable, and the
                // driver refuses to start them.
                let program = agent.as_ref().and_then(AgentDefinition::program);
                if let Some(problem) = program.and_then(CliAgent::policy_problem) {
                    let path = FieldPath::root().field("permission_policy");
                    checker.report(&path, FindingText::new(problem));
                }
                (FileContent::Agent(agent), checker)
            }
            DefinitionKind::Workflow => {
                let (workflow, checker) = read(path, text, refused, WorkflowFile::check);
                (FileContent::Workflow(workflow), checker)
            }
            DefinitionKind::Schedule => {
                let (schedule, checker) = read(path, text, refused, ScheduleFile::check);
                (FileContent::Schedule(schedule), checker)
            }
            DefinitionKind::Script => {
                let (script, checker) = read(path, text, refused, |script: ScriptFile, checker| {
                    name.as_ref().ok().and_then(|name| script.check(name, checker))
                });
                (FileContent::Script(script), checker)
            }
            DefinitionKind::McpServers => {
                let (servers, checker) =
                    read(path, text, EmptyFile::Allowed, |servers: McpServersFile, checker| {
                        Some(servers.check(checker))
                    });
                (FileContent::McpServers(servers), checker)
            }
            DefinitionKind::Settings => {
                let (settings, checker) =
                    read(path, text, EmptyFile::Allowed, |settings: SettingsFile, checker| {
                        Some(settings.check(checker))
                    });
                (FileContent::Settings(settings), checker)
            }
            DefinitionKind::RetentionPolicy => {
                let (policy, checker) =
                    read(path, text, EmptyFile::Allowed, |policy: RetentionPolicyFile, _| {
                        Some(policy.into_valid())
                    });
                (FileContent::RetentionPolicy(policy), checker)
            }
        };
        let mut other_name = None;
        match kind {
            DefinitionKind::Agent | DefinitionKind::Workflow | DefinitionKind::Schedule => {
                other_name = refuse_other_name(path, stem, &mut checker);
            }
            DefinitionKind::Script => {
                if let Err(invalid) = &name {
                    let finding = FindingText::new(format!("the file name: {invalid}")).found(stem);
                    checker.report(&FieldPath::root(), finding);
                }
            }
            DefinitionKind::McpServers
            | DefinitionKind::Settings
            | DefinitionKind::RetentionPolicy => {}
        }
        Some(Self {
            path: path.clone(),
            kind,
            name: name.ok(),
            other_name,
            contested: false,
            beyond_limits: Vec::new(),
            checker,
            content,
        })
    }
}

/// Checks that the `name` field matches the file name.
pub(super) fn refuse_other_name(path: &str, stem: &str, checker: &mut FileChecker) -> Option<Name> {
    let field = FieldPath::root().field("name");
    let written: Name = checker.text(&field)?.parse().ok()?;
    if written.as_str() == stem {
        return None;
    }
    let message = format!(
        "the name is \"{written}\", but the file is {path}: name and file must be the same"
    );
    checker.report(&field, FindingText::new(message).found(written.as_str()).allowed(stem));
    Some(written)
}

/// The kind of a file by its path, and its name without the extension.
fn classify(path: &str) -> Option<(DefinitionKind, &str)> {
    if is_settings(path) {
        return Some((DefinitionKind::Settings, SETTINGS_STEM));
    }
    let (folder, _) = path.split_once('/')?;
    let stem = definition_in(folder, path)?;
    match (folder, stem) {
        ("agents", _) => Some((DefinitionKind::Agent, stem)),
        ("workflows", _) => Some((DefinitionKind::Workflow, stem)),
        ("schedules", _) => Some((DefinitionKind::Schedule, stem)),
        ("scripts", _) => Some((DefinitionKind::Script, stem)),
        ("config", "mcp_servers") => Some((DefinitionKind::McpServers, stem)),
        ("config", "retention_policy") => Some((DefinitionKind::RetentionPolicy, stem)),
        _ => None,
    }
}

/// The name without extension of a file in this folder, if it may be a definition.
pub(super) fn definition_in<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let file = path.strip_prefix(folder)?.strip_prefix('/')?;
    let (stem, extension) = file.rsplit_once('.')?;
    let is_one = !stem.is_empty()
        && !stem.starts_with('.')
        && !stem.contains('/')
        && EXTENSIONS.contains(&extension);
    is_one.then_some(stem)
}

/// Refuses two files with one name. Of two files of the same kind neither is valid; an agent stays
/// valid if a workflow has the same name.
fn refuse_shared_names(entries: &mut [FileEntry]) {
    let mut first: BTreeMap<(DefinitionNamespace, Name), usize> = BTreeMap::new();
    for place in 0..entries.len() {
        let entry = &entries[place];
        let kind = entry.kind;
        let Some(name) = entry.name.clone() else { continue };
        match first.entry((DefinitionNamespace::of(kind), name)) {
            MapEntry::Vacant(vacant) => {
                vacant.insert(place);
            }
            MapEntry::Occupied(taken) => {
                let name = &taken.key().1;
                let other = &mut entries[*taken.get()];
                let mut message = format!("the name \"{name}\" is already taken by {}", other.path);
                if other.kind == kind {
                    other.contested = true;
                } else {
                    let both = format!("; {}s and {kind}s share their names", other.kind);
                    message.extend([both.as_str(), ": rename one of the two"]);
                }
                let finding = FindingText::new(message).found(name.as_str());
                entries[place].contested = true;
                entries[place].checker.report(&FieldPath::root().field("name"), finding);
            }
        }
    }
}

/// A namespace, in which names are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DefinitionNamespace {
    AgentsAndWorkflows,
    Schedules,
    Scripts,
    Configuration,
}

impl DefinitionNamespace {
    fn of(kind: DefinitionKind) -> Self {
        match kind {
            DefinitionKind::Agent | DefinitionKind::Workflow => Self::AgentsAndWorkflows,
            DefinitionKind::Schedule => Self::Schedules,
            DefinitionKind::Script => Self::Scripts,
            DefinitionKind::McpServers
            | DefinitionKind::RetentionPolicy
            | DefinitionKind::Settings => Self::Configuration,
        }
    }
}

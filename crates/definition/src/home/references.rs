//! The rules between files: every name must be defined.
//!
//! The name of a file with problems counts as defined: its problems are already reported.

use std::collections::BTreeMap;

use polity_model::name::Name;

use super::scripts::ScriptLoader;
use super::{FileContent, FileEntry};
use crate::agent::{AgentDefinition, AgentKind};
use crate::file::checker::NameReference;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::file::schema::DefinitionKind;
use crate::graph;
use crate::workflow::WorkflowNodeKind;

/// The defined names.
struct KnownNames {
    /// Agents and workflows; both if two files have one name.
    named: BTreeMap<Name, Vec<DefinitionKind>>,
    scripts: Vec<Name>,
    /// None if the file of servers is invalid.
    servers: Option<Vec<Name>>,
}

pub(super) fn check(entries: &mut [FileEntry], scripts: &mut ScriptLoader<'_>) {
    let known = KnownNames::of(entries);
    for entry in &mut *entries {
        let checker = &mut entry.checker;
        for (path, reference) in checker.take_references() {
            if let Some(finding) = known.missing(&path, &reference, scripts) {
                checker.report(&path, finding);
            }
        }
    }
    refuse_cycles(entries, "agents delegate in a cycle", sub_agents_of);
    refuse_cycles(entries, "workflows run each other in a cycle", sub_workflows_of);
}

impl KnownNames {
    fn of(entries: &[FileEntry]) -> Self {
        let mut known =
            Self { named: BTreeMap::new(), scripts: Vec::new(), servers: Some(Vec::new()) };
        for entry in entries {
            match (&entry.content, &entry.name) {
                (FileContent::Agent(_) | FileContent::Workflow(_), Some(name)) => {
                    known.named.entry(name.clone()).or_default().push(entry.kind);
                }
                (FileContent::Script(_), Some(name)) => known.scripts.push(name.clone()),
                (FileContent::McpServers(servers), _) => {
                    known.servers = servers.as_ref().map(|servers| servers.names.clone());
                }
                _ => {}
            }
        }
        known
    }

    /// The problem of a reference, if it has one.
    fn missing(
        &self,
        path: &FieldPath,
        reference: &NameReference,
        scripts: &mut ScriptLoader<'_>,
    ) -> Option<FindingText> {
        match reference {
            NameReference::Agent(name) => self.missing_name(path, name, &[DefinitionKind::Agent]),
            NameReference::Workflow(name) => {
                self.missing_name(path, name, &[DefinitionKind::Workflow])
            }
            NameReference::AgentOrWorkflow(name) => {
                self.missing_name(path, name, &[DefinitionKind::Agent, DefinitionKind::Workflow])
            }
            NameReference::Script(name) => {
                let message = format!("{path}: there is no script \"{name}\" in scripts/");
                (!self.scripts.contains(name))
                    .then(|| FindingText::new(message).one_of(name.as_str(), &self.scripts))
            }
            NameReference::Server(name) => self.missing_server(path, name),
            NameReference::ScriptFile(file) => scripts.problem(file).map(|why| {
                let message = format!("{path}: the script {file} cannot be used: {why}");
                FindingText::new(message).found(file.as_str())
            }),
        }
    }

    /// The problem of a name that is undefined or of another kind.
    fn missing_name(
        &self,
        path: &FieldPath,
        name: &Name,
        kinds: &[DefinitionKind],
    ) -> Option<FindingText> {
        let fits = |found: &[DefinitionKind]| found.iter().any(|kind| kinds.contains(kind));
        match self.named.get(name).map(Vec::as_slice) {
            Some(found) if fits(found) => None,
            Some([kind, ..]) => {
                let needed: Vec<_> = kinds.iter().map(|kind| with_article(*kind)).collect();
                let message = format!(
                    "{path}: \"{name}\" is {}, {} is needed",
                    with_article(*kind),
                    needed.join(" or ")
                );
                Some(FindingText::new(message).found(name.as_str()))
            }
            Some([]) | None => {
                let needed: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
                let message = format!("{path}: there is no {} \"{name}\"", needed.join(" or "));
                let fitting = self.named.iter().filter(|(_, found)| fits(found));
                Some(FindingText::new(message).one_of(name.as_str(), fitting.map(|(name, _)| name)))
            }
        }
    }

    fn missing_server(&self, path: &FieldPath, name: &str) -> Option<FindingText> {
        let servers = self.servers.as_ref()?;
        if servers.iter().any(|server| server.as_str() == name) {
            return None;
        }
        let message = format!("{path}: there is no MCP server \"{name}\"");
        Some(if servers.is_empty() {
            FindingText::new(format!("{message}, config/mcp_servers.yaml lists none")).found(name)
        } else {
            FindingText::new(message).one_of(name, servers)
        })
    }
}

fn with_article(kind: DefinitionKind) -> String {
    let article = if kind == DefinitionKind::Agent { "an" } else { "a" };
    format!("{article} {kind}")
}

/// The names that a definition delegates to, with their paths.
type NamedUses<'a> = Vec<(&'a Name, FieldPath)>;

fn sub_agents_of(content: &FileContent) -> Option<NamedUses<'_>> {
    let FileContent::Agent(Some(AgentDefinition { kind: AgentKind::Llm(agent), .. })) = content
    else {
        return None;
    };
    let path = FieldPath::root().field("sub_agents");
    let uses = agent.sub_agents.iter().enumerate();
    Some(uses.map(|(index, name)| (name, path.index(index))).collect())
}

fn sub_workflows_of(content: &FileContent) -> Option<NamedUses<'_>> {
    let FileContent::Workflow(Some(workflow)) = content else { return None };
    let path = FieldPath::root().field("nodes");
    let uses = workflow.nodes.iter().flat_map(|node| {
        let path = path.field(node.name.as_str());
        node.with_inner().filter_map(move |inner| match &inner.kind {
            WorkflowNodeKind::Workflow { workflow, .. } => Some((workflow, path.field("workflow"))),
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Script { .. }
            | WorkflowNodeKind::Map { .. } => None,
        })
    });
    Some(uses.collect())
}

/// Refuses cycles: the work would never end.
fn refuse_cycles(
    entries: &mut [FileEntry],
    what: &str,
    uses_of: impl Fn(&FileContent) -> Option<NamedUses<'_>>,
) {
    let all: Vec<(usize, &Name, NamedUses<'_>)> = entries
        .iter()
        .enumerate()
        .filter_map(|(place, entry)| Some((place, entry.name.as_ref()?, uses_of(&entry.content)?)))
        .collect();
    let number = |name: &Name| all.iter().position(|(_, user, _)| *user == name);
    let successors: Vec<Vec<usize>> = all
        .iter()
        .map(|(_, _, uses)| uses.iter().filter_map(|(name, _)| number(name)).collect())
        .collect();
    let mut findings = Vec::new();
    for cycle in graph::cycles(&successors) {
        let (Some(first), Some(last)) = (cycle.first(), cycle.last()) else { continue };
        let first_name = all[*first].1;
        let (place, _, uses) = &all[*last];
        let Some((_, path)) = uses.iter().find(|(name, _)| *name == first_name) else { continue };
        let names = cycle.iter().map(|user| all[*user].1.as_str());
        let message = format!("{what}: {}", graph::cycle_in_words(names));
        findings.push((*place, path.clone(), FindingText::new(message)));
    }
    for (place, path, finding) in findings {
        entries[place].checker.report(&path, finding);
    }
}

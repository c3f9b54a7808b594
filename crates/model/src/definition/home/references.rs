//! The rules between files: what a definition names must be there.
//!
//! A name that belongs to a file with problems counts as there: those problems are told already.

use std::collections::BTreeMap;

use super::{Content, Entry};
use crate::definition::agent::{AgentDefinition, AgentKind, LlmAgent};
use crate::definition::checker::Checker;
use crate::definition::graph;
use crate::definition::mcp_server::check_server_is_known;
use crate::definition::path::Path;
use crate::definition::problem::Finding;
use crate::definition::schedule::ScheduleTarget;
use crate::definition::schema::Kind;
use crate::definition::workflow::{NodeKind, WorkflowDefinition};
use crate::name::Name;

/// What can be named.
struct Known {
    /// Agents and workflows.
    named: BTreeMap<Name, Kind>,
    scripts: Vec<Name>,
    /// Absent when the file of servers cannot be read, so that nobody can tell.
    servers: Option<Vec<Name>>,
}

pub(super) fn check(entries: &mut [Entry]) {
    let known = Known::of(entries);
    for entry in &mut *entries {
        let checker = &mut entry.checker;
        match &entry.content {
            Content::Agent(Some(agent)) => known.check_agent(agent, checker),
            Content::Workflow(Some(workflow)) => known.check_workflow(workflow, checker),
            Content::Schedule(Some(schedule)) => {
                let root = Path::root();
                match &schedule.target {
                    ScheduleTarget::Agent(name) => {
                        known.check_named(name, &[Kind::Agent], &root.field("agent"), checker);
                    }
                    ScheduleTarget::Workflow(name) => {
                        let path = root.field("workflow");
                        known.check_named(name, &[Kind::Workflow], &path, checker);
                    }
                }
            }
            Content::Settings(Some(settings)) => {
                if let Some(name) = &settings.server.default_agent {
                    let path = Path::root().field("server").field("default_agent");
                    known.check_named(name, &[Kind::Agent, Kind::Workflow], &path, checker);
                }
            }
            Content::Agent(None)
            | Content::Workflow(None)
            | Content::Schedule(None)
            | Content::Settings(None)
            | Content::Script(_)
            | Content::McpServers(_)
            | Content::RetentionPolicy(_) => {}
        }
    }
    refuse_circles(entries, "agents hand their work round in a circle", sub_agents_of);
    refuse_circles(entries, "workflows run each other in a circle", sub_workflows_of);
}

impl Known {
    fn of(entries: &[Entry]) -> Self {
        let mut known =
            Self { named: BTreeMap::new(), scripts: Vec::new(), servers: Some(Vec::new()) };
        for entry in entries {
            match (&entry.content, &entry.name) {
                (Content::Agent(_) | Content::Workflow(_), Some(name)) => {
                    known.named.insert(name.clone(), entry.kind);
                }
                (Content::Script(_), Some(name)) => known.scripts.push(name.clone()),
                (Content::McpServers(servers), _) => {
                    known.servers = servers.as_ref().map(|servers| servers.names.clone());
                }
                (
                    Content::Agent(_)
                    | Content::Workflow(_)
                    | Content::Schedule(_)
                    | Content::Script(_)
                    | Content::Settings(_)
                    | Content::RetentionPolicy(_),
                    _,
                ) => {}
            }
        }
        known
    }

    /// Reports a name that stands for nothing, or for a thing of another kind.
    fn check_named(&self, name: &Name, kinds: &[Kind], path: &Path, checker: &mut Checker) {
        match self.named.get(name) {
            Some(kind) if kinds.contains(kind) => {}
            Some(kind) => {
                let message = format!(
                    "{path}: \"{name}\" is {}, {} is needed",
                    with_article(*kind),
                    kinds.iter().map(|kind| with_article(*kind)).collect::<Vec<_>>().join(" or ")
                );
                checker.report(path, Finding::new(message).found(name.as_str()));
            }
            None => {
                let kinds_in_words = kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>();
                let message =
                    format!("{path}: there is no {} \"{name}\"", kinds_in_words.join(" or "));
                let fitting = self.named.iter().filter(|(_, kind)| kinds.contains(kind));
                let names = fitting.map(|(name, _)| name);
                checker.report(path, Finding::new(message).one_of(name.as_str(), names));
            }
        }
    }

    fn check_server(&self, server: &str, path: &Path, checker: &mut Checker) {
        if let Some(servers) = &self.servers {
            let names: Vec<&str> = servers.iter().map(Name::as_str).collect();
            check_server_is_known(server, &names, path, checker);
        }
    }

    fn check_agent(&self, agent: &AgentDefinition, checker: &mut Checker) {
        match &agent.kind {
            AgentKind::Llm(agent) => self.check_llm(agent, checker),
            AgentKind::Cli(_) | AgentKind::Remote(_) => {}
        }
    }

    fn check_llm(&self, agent: &LlmAgent, checker: &mut Checker) {
        let root = Path::root();
        if let Some(script) = &agent.llm_config.script
            && !self.scripts.contains(script)
        {
            let path = root.field("llm_config").field("script");
            let message = format!("{path}: there is no script \"{script}\" in scripts/");
            checker.report(&path, Finding::new(message).one_of(script.as_str(), &self.scripts));
        }
        for (index, name) in agent.sub_agents.iter().enumerate() {
            let path = root.field("sub_agents").index(index);
            self.check_named(name, &[Kind::Agent], &path, checker);
        }
        for (index, tool) in agent.tools.iter().enumerate() {
            self.check_server(tool.server(), &root.field("tools").index(index), checker);
        }
    }

    fn check_workflow(&self, workflow: &WorkflowDefinition, checker: &mut Checker) {
        let root = Path::root();
        for (role, agent) in &workflow.agents {
            let path = root.field("agents").field(role.as_str());
            self.check_named(agent, &[Kind::Agent], &path, checker);
        }
        for node in &workflow.nodes {
            let path = root.field("nodes").field(node.name.as_str());
            match &node.kind {
                NodeKind::Agent { agent, .. } => {
                    self.check_named(agent, &[Kind::Agent], &path.field("agent"), checker);
                }
                NodeKind::Workflow { workflow, .. } => {
                    let path = path.field("workflow");
                    self.check_named(workflow, &[Kind::Workflow], &path, checker);
                }
                NodeKind::Tool { tool, .. } => {
                    self.check_server(tool.server(), &path.field("tool"), checker);
                }
                NodeKind::Condition { .. } | NodeKind::Human { .. } | NodeKind::Parallel { .. } => {
                }
            }
        }
    }
}

fn with_article(kind: Kind) -> String {
    let article = if kind == Kind::Agent { "an" } else { "a" };
    format!("{article} {kind}")
}

/// The names that a definition hands work to, and where it says so.
type Uses<'a> = Vec<(&'a Name, Path)>;

fn sub_agents_of(content: &Content) -> Option<Uses<'_>> {
    let Content::Agent(Some(AgentDefinition { kind: AgentKind::Llm(agent), .. })) = content else {
        return None;
    };
    let path = Path::root().field("sub_agents");
    let uses = agent.sub_agents.iter().enumerate();
    Some(uses.map(|(index, name)| (name, path.index(index))).collect())
}

fn sub_workflows_of(content: &Content) -> Option<Uses<'_>> {
    let Content::Workflow(Some(workflow)) = content else { return None };
    let path = Path::root().field("nodes");
    let uses = workflow.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Workflow { workflow, .. } => {
            Some((workflow, path.field(node.name.as_str()).field("workflow")))
        }
        NodeKind::Agent { .. }
        | NodeKind::Tool { .. }
        | NodeKind::Condition { .. }
        | NodeKind::Human { .. }
        | NodeKind::Parallel { .. } => None,
    });
    Some(uses.collect())
}

/// Work that comes back to where it started would never end.
fn refuse_circles(
    entries: &mut [Entry],
    what: &str,
    uses_of: impl Fn(&Content) -> Option<Uses<'_>>,
) {
    let all: Vec<(usize, &Name, Uses<'_>)> = entries
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
    for circle in graph::cycles(&successors) {
        let (Some(first), Some(last)) = (circle.first(), circle.last()) else { continue };
        let first_name = all[*first].1;
        let (place, _, uses) = &all[*last];
        let Some((_, path)) = uses.iter().find(|(name, _)| *name == first_name) else { continue };
        let names = circle.iter().map(|user| all[*user].1.as_str());
        let message = format!("{what}: {}", graph::circle_in_words(names));
        findings.push((*place, path.clone(), Finding::new(message)));
    }
    for (place, path, finding) in findings {
        entries[place].checker.report(&path, finding);
    }
}

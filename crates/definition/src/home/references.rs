//! The rules between files: what a definition names must be there.
//!
//! A name that belongs to a file with problems counts as there: those problems are told already.

use std::collections::BTreeMap;

use polity_model::name::Name;

use super::{Content, Entry};
use crate::agent::{AgentDefinition, AgentKind};
use crate::checker::Reference;
use crate::graph;
use crate::path::Path;
use crate::problem::Finding;
use crate::schema::Kind;
use crate::workflow::NodeKind;

/// What can be named.
struct Known {
    /// Agents and workflows; both where two files claim one name.
    named: BTreeMap<Name, Vec<Kind>>,
    scripts: Vec<Name>,
    /// Absent when the file of servers cannot be read, so that nobody can tell.
    servers: Option<Vec<Name>>,
}

pub(super) fn check(entries: &mut [Entry]) {
    let known = Known::of(entries);
    for entry in &mut *entries {
        let checker = &mut entry.checker;
        for (path, reference) in checker.take_references() {
            if let Some(finding) = known.missing(&path, &reference) {
                checker.report(&path, finding);
            }
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
                    known.named.entry(name.clone()).or_default().push(entry.kind);
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

    /// What is wrong with a reference, if anything.
    fn missing(&self, path: &Path, reference: &Reference) -> Option<Finding> {
        match reference {
            Reference::Agent(name) => self.missing_name(path, name, &[Kind::Agent]),
            Reference::Workflow(name) => self.missing_name(path, name, &[Kind::Workflow]),
            Reference::AgentOrWorkflow(name) => {
                self.missing_name(path, name, &[Kind::Agent, Kind::Workflow])
            }
            Reference::Script(name) => {
                let message = format!("{path}: there is no script \"{name}\" in scripts/");
                (!self.scripts.contains(name))
                    .then(|| Finding::new(message).one_of(name.as_str(), &self.scripts))
            }
            Reference::Server(name) => self.missing_server(path, name),
        }
    }

    /// A name that stands for nothing, or for a thing of another kind.
    fn missing_name(&self, path: &Path, name: &Name, kinds: &[Kind]) -> Option<Finding> {
        let fits = |found: &[Kind]| found.iter().any(|kind| kinds.contains(kind));
        match self.named.get(name).map(Vec::as_slice) {
            Some(found) if fits(found) => None,
            Some([kind, ..]) => {
                let needed: Vec<_> = kinds.iter().map(|kind| with_article(*kind)).collect();
                let message = format!(
                    "{path}: \"{name}\" is {}, {} is needed",
                    with_article(*kind),
                    needed.join(" or ")
                );
                Some(Finding::new(message).found(name.as_str()))
            }
            Some([]) | None => {
                let needed: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
                let message = format!("{path}: there is no {} \"{name}\"", needed.join(" or "));
                let fitting = self.named.iter().filter(|(_, found)| fits(found));
                Some(Finding::new(message).one_of(name.as_str(), fitting.map(|(name, _)| name)))
            }
        }
    }

    fn missing_server(&self, path: &Path, name: &str) -> Option<Finding> {
        let servers = self.servers.as_ref()?;
        if servers.iter().any(|server| server.as_str() == name) {
            return None;
        }
        let message = format!("{path}: there is no MCP server \"{name}\"");
        Some(if servers.is_empty() {
            Finding::new(format!("{message}, config/mcp_servers.yaml lists none")).found(name)
        } else {
            Finding::new(message).one_of(name, servers)
        })
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

//! Checks the depth of delegation against `limits.sub_agent_depth`.
//!
//! A definition beyond the limit is valid, and runs under a higher limit. So it is reported but
//! kept; running it fails with the same message.

use std::collections::BTreeMap;

use polity_model::name::Name;

use super::{FileContent, FileEntry};
use crate::agent::{AgentDefinition, AgentKind};
use crate::config::settings::HomeSettings;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::workflow::{WorkflowDefinition, WorkflowNodeKind};

/// The names of agents and workflows, from the first to the last.
type CallChain<'a> = Vec<&'a Name>;

/// Reports every definition whose delegation exceeds the limit.
///
/// Files with problems are ignored: the others have no cycles.
pub(super) fn check(entries: &mut [FileEntry]) {
    let Some(limit) = limit(entries) else { return };
    let mut chains = CallChains::of(entries);
    let mut found = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        if !is_valid(entry) {
            continue;
        }
        let (chain, first) = match &entry.content {
            FileContent::Agent(Some(agent)) => (chains.of_agent(agent), "sub_agents"),
            FileContent::Workflow(Some(workflow)) if workflow.nodes.is_empty() => {
                (chains.of_workflow(workflow), "agents")
            }
            FileContent::Workflow(Some(workflow)) => (chains.of_workflow(workflow), "nodes"),
            _ => continue,
        };
        if chain.len() > limit + 1 {
            let names: Vec<&str> = chain.iter().map(|name| name.as_str()).collect();
            let message = format!(
                "work could be handed on over {} steps ({}), and limits.sub_agent_depth allows \
                 {limit}: hand it on over fewer, or raise the limit in polity.yaml",
                chain.len() - 1,
                names.join(" -> ")
            );
            let problem =
                entry.checker.problem(&FieldPath::root().field(first), FindingText::new(message));
            found.push((place, problem));
        }
    }
    for (place, problem) in found {
        entries[place].beyond_limits.push(problem);
    }
}

fn is_valid(entry: &FileEntry) -> bool {
    entry.checker.is_clean() && !entry.contested
}

/// The limit; none if the settings are invalid.
fn limit(entries: &[FileEntry]) -> Option<usize> {
    let mut settings = HomeSettings::default();
    for entry in entries {
        if let FileContent::Settings(written) = &entry.content {
            settings = written.clone().filter(|_| is_valid(entry))?;
        }
    }
    usize::try_from(settings.limits.sub_agent_depth.get()).ok()
}

/// The longest delegation chains.
struct CallChains<'a> {
    agents: BTreeMap<&'a Name, &'a AgentDefinition>,
    workflows: BTreeMap<&'a Name, &'a WorkflowDefinition>,
    from_agents: BTreeMap<&'a Name, CallChain<'a>>,
    from_workflows: BTreeMap<&'a Name, CallChain<'a>>,
}

impl<'a> CallChains<'a> {
    fn of(entries: &'a [FileEntry]) -> Self {
        let mut chains = Self {
            agents: BTreeMap::new(),
            workflows: BTreeMap::new(),
            from_agents: BTreeMap::new(),
            from_workflows: BTreeMap::new(),
        };
        for entry in entries.iter().filter(|entry| is_valid(entry)) {
            match &entry.content {
                FileContent::Agent(Some(agent)) => _ = chains.agents.insert(&agent.name, agent),
                FileContent::Workflow(Some(workflow)) => {
                    chains.workflows.insert(&workflow.name, workflow);
                }
                _ => {}
            }
        }
        chains
    }

    fn of_agent(&mut self, agent: &'a AgentDefinition) -> CallChain<'a> {
        if let Some(chain) = self.from_agents.get(&agent.name) {
            return chain.clone();
        }
        let chain = self.through(agent, &[]);
        self.from_agents.insert(&agent.name, chain.clone());
        chain
    }

    /// The chain of an agent with additional sub-agents.
    fn through(&mut self, agent: &'a AgentDefinition, more: &'a [Name]) -> CallChain<'a> {
        let own: &'a [Name] = match &agent.kind {
            AgentKind::Llm(llm) => &llm.sub_agents,
            AgentKind::Cli(_) | AgentKind::Remote(_) => &[],
        };
        let mut longest = CallChain::new();
        for name in own.iter().chain(more) {
            if let Some(agent) = self.agents.get(name).copied() {
                longest = longer(longest, self.of_agent(agent));
            }
        }
        after(&agent.name, longest)
    }

    fn of_workflow(&mut self, workflow: &'a WorkflowDefinition) -> CallChain<'a> {
        if let Some(chain) = self.from_workflows.get(&workflow.name) {
            return chain.clone();
        }
        let mut longest = CallChain::new();
        for node in workflow.all_nodes() {
            let chain = match &node.kind {
                WorkflowNodeKind::Agent { agent, sub_agents, .. } => {
                    let agent = self.agents.get(agent).copied();
                    agent.map(|agent| self.through(agent, sub_agents))
                }
                WorkflowNodeKind::Workflow { workflow, .. } => {
                    let workflow = self.workflows.get(workflow).copied();
                    workflow.map(|workflow| self.of_workflow(workflow))
                }
                WorkflowNodeKind::Tool { .. }
                | WorkflowNodeKind::Condition { .. }
                | WorkflowNodeKind::Human { .. }
                | WorkflowNodeKind::Parallel { .. }
                | WorkflowNodeKind::Script { .. }
                | WorkflowNodeKind::Map { .. } => None,
            };
            longest = longer(longest, chain.unwrap_or_default());
        }
        let chain = after(&workflow.name, longest);
        self.from_workflows.insert(&workflow.name, chain.clone());
        chain
    }
}

fn longer<'a>(one: CallChain<'a>, other: CallChain<'a>) -> CallChain<'a> {
    if other.len() > one.len() { other } else { one }
}

fn after<'a>(name: &'a Name, below: CallChain<'a>) -> CallChain<'a> {
    std::iter::once(name).chain(below).collect()
}

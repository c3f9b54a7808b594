//! A workflow with everything that its nodes need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use polity_definition::{
    AgentDefinition, AgentKind, Home, LlmAgent, NodeKind, Plan, WorkflowDefinition, WorkflowNode,
};
use polity_model::name::Name;
use polity_model::tool::{ToolName, ToolPattern};

use super::{Assignee, Cast, Closure, Missing, Pinned};

/// A workflow with everything that its nodes need.
#[derive(Debug, Clone)]
pub struct FlowClosure {
    /// The workflow.
    pub workflow: Arc<WorkflowDefinition>,
    /// The workflow, ready to be walked.
    pub plan: Arc<Plan>,
    /// The agents and workflows of its nodes, and what they need.
    cast: Arc<Cast>,
    pub(super) pinned: Arc<OnceLock<Pinned>>,
}

/// What the nodes of a workflow name.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) agents: BTreeSet<Name>,
    pub(super) workflows: BTreeSet<Name>,
}

/// The agents and workflows that the nodes of a workflow name.
pub(super) fn needs(workflow: &WorkflowDefinition) -> Needs {
    let mut needs = Needs::default();
    for node in workflow.expanded().nodes {
        match &node.kind {
            NodeKind::Agent { agent, sub_agents, .. } => {
                needs.agents.insert(agent.clone());
                needs.agents.extend(sub_agents.iter().cloned());
            }
            NodeKind::Workflow { workflow, .. } => {
                needs.workflows.insert(workflow.clone());
            }
            NodeKind::Tool { .. }
            | NodeKind::Condition { .. }
            | NodeKind::Human { .. }
            | NodeKind::Parallel { .. } => {}
        }
    }
    needs
}

impl FlowClosure {
    /// What this workflow needs, from the home as it is now.
    pub fn of(home: &Home, workflow: Arc<WorkflowDefinition>) -> Result<Option<Self>, Missing> {
        let mut cast = Cast::default();
        cast.add_workflow(home, Arc::clone(&workflow))?;
        Ok(Self::within(workflow, &Arc::new(cast)))
    }

    pub(super) fn within(workflow: Arc<WorkflowDefinition>, cast: &Arc<Cast>) -> Option<Self> {
        let plan = Arc::new(workflow.plan()?);
        Some(Self { workflow, plan, cast: Arc::clone(cast), pinned: Arc::default() })
    }

    /// Who does the work of a node, with everything that is needed for it, if an agent or another
    /// workflow does.
    pub fn assignee_of(&self, node: &WorkflowNode) -> Option<Assignee> {
        match &node.kind {
            NodeKind::Agent { agent, sub_agents, .. } => {
                let agent = self.cast.agents.get(agent)?;
                let agent = match as_node_says(agent, sub_agents, node.max_retries) {
                    Some(changed) => Arc::new(changed),
                    None => Arc::clone(agent),
                };
                Some(Assignee::Agent(Closure::within(agent, &self.cast)))
            }
            NodeKind::Workflow { workflow, .. } => {
                let workflow = self.cast.workflows.get(workflow)?;
                Self::within(Arc::clone(workflow), &self.cast).map(Assignee::Workflow)
            }
            NodeKind::Tool { .. }
            | NodeKind::Condition { .. }
            | NodeKind::Human { .. }
            | NodeKind::Parallel { .. } => None,
        }
    }

    fn assignees(&self) -> impl Iterator<Item = Assignee> {
        self.plan.nodes().iter().filter_map(|node| self.assignee_of(&node.node))
    }

    /// The workflow and all that its nodes run, each once.
    pub(super) fn workflows(&self) -> Vec<Arc<WorkflowDefinition>> {
        let mut met = BTreeSet::new();
        let mut found = Vec::new();
        let mut waiting = vec![self.clone()];
        while let Some(next) = waiting.pop() {
            if met.insert(next.workflow.name.clone()) {
                waiting.extend(next.assignees().filter_map(|assignee| match assignee {
                    Assignee::Agent(_) => None,
                    Assignee::Workflow(flow) => Some(flow),
                }));
                found.push(next.workflow);
            }
        }
        found
    }

    /// Every agent that may come to work for the workflow, each once, as its own file has it.
    pub(super) fn everyone(&self) -> Vec<Closure> {
        let mut found: BTreeMap<Name, Closure> = BTreeMap::new();
        for workflow in self.workflows() {
            for name in needs(&workflow).agents {
                let Some(agent) = self.cast.agents.get(&name) else { continue };
                for closure in Closure::within(Arc::clone(agent), &self.cast).everyone() {
                    found.entry(closure.agent.name.clone()).or_insert(closure);
                }
            }
        }
        found.into_values().collect()
    }

    /// The tools that its own nodes call.
    pub fn tools(&self) -> Vec<ToolPattern> {
        let nodes = self.plan.nodes().iter();
        nodes.filter_map(|node| tool_of(&node.node)).map(ToolPattern::exactly).collect()
    }

    /// The tools that its nodes call, and those of the workflows that it runs.
    pub fn all_tools(&self) -> Vec<ToolPattern> {
        let workflows = self.workflows();
        let nodes = workflows.iter().flat_map(|workflow| workflow.expanded().nodes.to_vec());
        nodes.filter_map(|node| tool_of(&node).map(ToolPattern::exactly)).collect()
    }

    /// Whether a node hands work to an agent or to another workflow.
    pub fn has_parts(&self) -> bool {
        self.assignees().next().is_some()
    }

    pub(super) fn longest_chain(&self) -> Vec<Name> {
        let below = self.assignees().map(|part| part.longest_chain()).max_by_key(Vec::len);
        let below = below.unwrap_or_default();
        std::iter::once(self.workflow.name.clone()).chain(below).collect()
    }
}

fn tool_of(node: &WorkflowNode) -> Option<&ToolName> {
    match &node.kind {
        NodeKind::Tool { tool, .. } => Some(tool),
        NodeKind::Agent { .. }
        | NodeKind::Condition { .. }
        | NodeKind::Human { .. }
        | NodeKind::Parallel { .. }
        | NodeKind::Workflow { .. } => None,
    }
}

/// The agent with what its node says otherwise, if it says anything.
fn as_node_says(
    agent: &AgentDefinition,
    sub_agents: &[Name],
    max_retries: Option<u32>,
) -> Option<AgentDefinition> {
    let AgentKind::Llm(llm) = &agent.kind else { return None };
    if sub_agents.is_empty() && max_retries.is_none() {
        return None;
    }
    let mut llm = LlmAgent::clone(llm);
    let more = sub_agents.iter().filter(|name| !llm.sub_agents.contains(name)).cloned();
    let more: Vec<Name> = more.collect();
    llm.sub_agents.extend(more);
    llm.max_retries = max_retries.unwrap_or(llm.max_retries);
    Some(AgentDefinition { kind: AgentKind::Llm(llm), ..agent.clone() })
}

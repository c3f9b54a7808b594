//! A pinned workflow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use polity_definition::{
    AgentDefinition, AgentKind, Home, LlmAgent, ScriptProgram, WorkflowDefinition, WorkflowNode,
    WorkflowNodeKind, WorkflowPlan,
};
use polity_model::name::Name;
use polity_model::tool::{ToolName, ToolPattern};

use super::{Assignee, MissingDefinition, PinSet, PinnedAgent, TaskParticipants};

/// A workflow with every definition its nodes need.
#[derive(Debug, Clone)]
pub struct PinnedWorkflow {
    /// The workflow.
    pub workflow: Arc<WorkflowDefinition>,
    /// The workflow, compiled for execution.
    pub plan: Arc<WorkflowPlan>,
    /// The agents and workflows of its nodes, with their definitions.
    participants: Arc<TaskParticipants>,
    pub(super) pin_set: Arc<OnceLock<PinSet>>,
}

/// The names that the nodes of a workflow refer to.
#[derive(Debug, Default)]
pub(super) struct DefinitionNeeds<'a> {
    pub(super) agents: BTreeSet<Name>,
    pub(super) workflows: BTreeSet<Name>,
    pub(super) scripts: Vec<&'a ScriptProgram>,
}

/// Collects the agents, workflows and scripts that the nodes of a workflow refer to.
pub(super) fn needs(workflow: &WorkflowDefinition) -> DefinitionNeeds<'_> {
    let mut needs = DefinitionNeeds::default();
    for node in workflow.all_nodes() {
        match &node.kind {
            WorkflowNodeKind::Agent { agent, sub_agents, .. } => {
                needs.agents.insert(agent.clone());
                needs.agents.extend(sub_agents.iter().cloned());
            }
            WorkflowNodeKind::Workflow { workflow, .. } => {
                needs.workflows.insert(workflow.clone());
            }
            WorkflowNodeKind::Script { program, .. } => needs.scripts.push(program),
            WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Map { .. } => {}
        }
    }
    needs
}

impl PinnedWorkflow {
    /// Collects the definitions of a workflow from the home.
    pub fn of(
        home: &Home,
        workflow: Arc<WorkflowDefinition>,
    ) -> Result<Option<Self>, MissingDefinition> {
        let mut participants = TaskParticipants::default();
        participants.add_workflow(home, Arc::clone(&workflow))?;
        Ok(Self::within(workflow, &Arc::new(participants)))
    }

    pub(super) fn within(
        workflow: Arc<WorkflowDefinition>,
        participants: &Arc<TaskParticipants>,
    ) -> Option<Self> {
        let plan = Arc::new(workflow.plan()?);
        Some(Self {
            workflow,
            plan,
            participants: Arc::clone(participants),
            pin_set: Arc::default(),
        })
    }

    /// Returns the agent or workflow that performs a node, if any.
    pub fn assignee_of(&self, node: &WorkflowNode) -> Option<Assignee> {
        match &node.kind {
            WorkflowNodeKind::Agent { agent, sub_agents, .. } => {
                let agent = self.participants.agents.get(agent)?;
                let agent = match as_node_says(agent, sub_agents, node) {
                    Some(changed) => Arc::new(changed),
                    None => Arc::clone(agent),
                };
                Some(Assignee::Agent(PinnedAgent::within(agent, &self.participants)))
            }
            WorkflowNodeKind::Workflow { workflow, .. } => {
                let workflow = self.participants.workflows.get(workflow)?;
                Self::within(Arc::clone(workflow), &self.participants).map(Assignee::Workflow)
            }
            WorkflowNodeKind::Script { .. } => {
                let agent = Arc::new(AgentDefinition::of_script(node)?);
                Some(Assignee::Agent(PinnedAgent::within(agent, &self.participants)))
            }
            WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Parallel { .. }
            | WorkflowNodeKind::Map { .. } => None,
        }
    }

    /// The agents that run the scripts of the workflow and of its sub-workflows, each once.
    pub(crate) fn script_agents(&self) -> Vec<PinnedAgent> {
        let workflows = self.workflows();
        let nodes = workflows.iter().flat_map(|workflow| workflow.all_nodes());
        let mut found: Vec<PinnedAgent> = Vec::new();
        for agent in nodes.filter_map(AgentDefinition::of_script) {
            if found.iter().all(|known| *known.agent != agent) {
                found.push(PinnedAgent::within(Arc::new(agent), &self.participants));
            }
        }
        found
    }

    fn assignees(&self) -> impl Iterator<Item = Assignee> {
        self.workflow.all_nodes().filter_map(|node| self.assignee_of(node))
    }

    /// The workflow and its sub-workflows, each once.
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

    /// Every agent that may work for the workflow, each once, without node overrides and scripts.
    pub(super) fn everyone(&self) -> Vec<PinnedAgent> {
        let mut found: BTreeMap<Name, PinnedAgent> = BTreeMap::new();
        for workflow in self.workflows() {
            for name in needs(&workflow).agents {
                let Some(agent) = self.participants.agents.get(&name) else { continue };
                for pinned in PinnedAgent::within(Arc::clone(agent), &self.participants).everyone()
                {
                    found.entry(pinned.agent.name.clone()).or_insert(pinned);
                }
            }
        }
        found.into_values().collect()
    }

    /// The tools that its own nodes call.
    pub fn tools(&self) -> Vec<ToolPattern> {
        self.workflow.all_nodes().filter_map(tool_of).map(ToolPattern::exactly).collect()
    }

    /// The tools that its nodes and its sub-workflows call.
    pub fn all_tools(&self) -> Vec<ToolPattern> {
        let workflows = self.workflows();
        let nodes = workflows.iter().flat_map(|workflow| workflow.all_nodes());
        nodes.filter_map(tool_of).map(ToolPattern::exactly).collect()
    }

    /// True if a node delegates to an agent or another workflow.
    pub fn has_parts(&self) -> bool {
        self.assignees().next().is_some()
    }

    pub(super) fn longest_chain(&self) -> Vec<Name> {
        // The limit on delegation does not count scripts.
        let is_script = |part: &Assignee| {
            part.agent().and_then(AgentDefinition::program).is_some_and(|cli| cli.script.is_some())
        };
        let parts = self.assignees().filter(|part| !is_script(part));
        let below = parts.map(|part| part.longest_chain()).max_by_key(Vec::len);
        let below = below.unwrap_or_default();
        std::iter::once(self.workflow.name.clone()).chain(below).collect()
    }
}

fn tool_of(node: &WorkflowNode) -> Option<&ToolName> {
    match &node.kind {
        WorkflowNodeKind::Tool { tool, .. } => Some(tool),
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Script { .. }
        | WorkflowNodeKind::Map { .. } => None,
    }
}

/// The agent with the overrides of its node, if there are any.
fn as_node_says(
    agent: &AgentDefinition,
    sub_agents: &[Name],
    node: &WorkflowNode,
) -> Option<AgentDefinition> {
    let kind = match &agent.kind {
        AgentKind::Llm(llm) if !sub_agents.is_empty() || node.max_retries.is_some() => {
            let mut llm = LlmAgent::clone(llm);
            let more = sub_agents.iter().filter(|name| !llm.sub_agents.contains(name)).cloned();
            let more: Vec<Name> = more.collect();
            llm.sub_agents.extend(more);
            llm.max_retries = node.max_retries.or(llm.max_retries);
            AgentKind::Llm(llm)
        }
        AgentKind::Cli(cli) if node.idempotent.is_some() || node.max_retries.is_some() => {
            let mut cli = cli.clone();
            cli.idempotent |= node.idempotent == Some(true);
            cli.never_repeat = node.idempotent == Some(false);
            cli.max_retries = node.max_retries.unwrap_or(cli.max_retries);
            AgentKind::Cli(cli)
        }
        AgentKind::Llm(_) | AgentKind::Cli(_) | AgentKind::Remote(_) => return None,
    };
    Some(AgentDefinition { kind, ..agent.clone() })
}

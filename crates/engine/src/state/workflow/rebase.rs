//! Transfers the run of a workflow to a changed definition of it.

use std::sync::Arc;

use polity_definition::{WorkflowNodeKind, WorkflowPlan};
use polity_model::machine::node::NodeState;
use polity_model::name::Name;

use super::{NodeRun, WorkflowRun};
use crate::state::CannotFork;

impl WorkflowRun {
    /// Checks that the run can continue on another plan without leaving out a node.
    pub(in crate::state) fn check_plan(&self, plan: &Arc<WorkflowPlan>) -> Result<(), CannotFork> {
        self.rebased(plan).map_err(CannotFork::NodeGone)?;
        self.progress.check_routes(&self.plan, plan)
    }

    /// The run on another plan. Nodes are identified by their names. The error names a node that has
    /// run and that the plan does not have.
    pub(in crate::state) fn rebased(&self, plan: &Arc<WorkflowPlan>) -> Result<Self, Name> {
        if Arc::ptr_eq(&self.plan, plan) {
            return Ok(self.clone());
        }
        let old = &*self.plan;
        for (node, planned) in old.nodes().iter().enumerate() {
            if self.has_run(node) && plan.number(planned.name()).is_none() {
                return Err(planned.name().clone());
            }
        }
        let later = |node: usize| plan.number(old.nodes()[node].name());
        let runs = plan.nodes().iter().map(|planned| {
            let run = old.number(planned.name()).map(|node| self.runs[node].clone());
            let run = run.unwrap_or_default();
            NodeRun { last: run.last.and_then(later), ..run }
        });
        // Ranks differ between plans: earlier messages precede those of the same round.
        let first_of = |(round, _): (u32, u32)| (round, 0);
        Ok(Self {
            progress: self.progress.rebased(old, plan),
            runs: runs.collect(),
            newest: self.newest.and_then(later),
            messages: self.messages.clone(),
            keys: self.keys.iter().copied().map(first_of).collect(),
            metadata: self.metadata.clone(),
            next_action: self.next_action.clone(),
            current_agent: self.current_agent.clone(),
            led_by: first_of(self.led_by),
            routing_key: self.routing_key.clone(),
            routed_by: first_of(self.routed_by),
            error: self.error.clone(),
            undoable: self.undoable.iter().filter_map(|run| run.rebased(later)).collect(),
            ending: self.ending.clone(),
            plan: Arc::clone(plan),
            workflow: self.workflow.clone(),
        })
    }

    /// True if a node has ended or is in progress, now or in an earlier round.
    fn has_run(&self, node: usize) -> bool {
        let is_begun = match self.progress.node(node) {
            NodeState::Waiting | NodeState::Skipped => false,
            NodeState::Running
            | NodeState::Asking
            | NodeState::Done
            | NodeState::Failed
            | NodeState::Dropped => true,
        };
        is_begun || self.runs[node].output.is_some()
    }

    /// True if a node's call goes to the same agent, tool or workflow in another plan.
    pub(super) fn has_same_callee(&self, node: usize, plan: &WorkflowPlan, later: usize) -> bool {
        let callee = callee(&self.plan.nodes()[node].node.kind);
        callee.is_some() && callee == self::callee(&plan.nodes()[later].node.kind)
    }
}

/// The agent, tool, script or workflow that performs a node or the items of a map.
fn callee(kind: &WorkflowNodeKind) -> Option<String> {
    match kind {
        WorkflowNodeKind::Agent { agent, .. } => Some(agent.to_string()),
        WorkflowNodeKind::Tool { tool, .. } => Some(tool.to_string()),
        WorkflowNodeKind::Workflow { workflow, .. } => Some(workflow.to_string()),
        WorkflowNodeKind::Script { program, .. } => Some(program.agent_name().to_string()),
        WorkflowNodeKind::Map { node, .. } => Some(format!("each {}", callee(&node.kind)?)),
        WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. } => None,
    }
}

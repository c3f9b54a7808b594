//! Starts the ready nodes of a workflow. The runtime drives it after a commit that left nodes
//! ready, and after a resume. It is a command of its own so that nodes start on the State that the
//! commit left. Conditions end at once, so each takes one command and gets its own checkpoint.

use polity_model::machine::task::TaskStatus;

use crate::decide::call_batch::CallBatch;
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{DecisionContext, DecisionResult};
use crate::state::TaskState;
use crate::workflow::WorkflowDecision;

/// Starts the ready nodes.
#[derive(Debug, Clone, Copy)]
pub struct AdvanceWorkflow;

impl AdvanceWorkflow {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let Some(run) = state.workflow_run().filter(|_| state.status() == TaskStatus::Running)
        else {
            return Err(unexpected_command(state, "AdvanceWorkflow"));
        };
        if state.cancel_requested() {
            return Ok(cancel_task(state, Vec::new()));
        }
        Ok(WorkflowDecision::begin(CallBatch::of_state(state, ctx)?, run))
    }
}

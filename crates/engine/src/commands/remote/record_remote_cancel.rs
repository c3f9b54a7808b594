//! Records that a remote server was asked to cancel its task. The runtime drives it after the local
//! task has ended while the remote one had not. It is the only command that a finished task accepts.
//! A refusal is recorded too, and ends the attempts.

use polity_model::event::ExecutionChange;

use crate::decide::outcomes::execution_event;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionResult};
use crate::state::TaskState;

/// The server was asked to cancel its task.
#[derive(Debug, Clone)]
pub struct RecordRemoteCancel {
    /// The reason why the server did not cancel; none if it did.
    pub refusal: Option<String>,
}

impl RecordRemoteCancel {
    pub(crate) fn decide(&self, state: &TaskState) -> DecisionResult {
        let (Some(task), Some(execution), true) =
            (state.open_remote(), state.execution(), state.status().is_final())
        else {
            return Err(unexpected_command(state, "RecordRemoteCancel"));
        };
        let (task, refusal) = (task.clone(), self.refusal.clone());
        let change = ExecutionChange::EndRemote { task, refusal };
        Ok(Decision { events: vec![execution_event(execution.id, change)], effects: Vec::new() })
    }
}

//! Records that a remote server accepted the message and made a task of it. The runtime drives it
//! with the driver's report. From here on the remote task is followed and never sent again.
//! `RecordRemoteOutcome` follows when the remote task ends.

use polity_model::event::ExecutionChange;
use polity_model::machine::execution::ExecutionState;
use polity_model::remote::RemoteTask;

use crate::decide::outcomes::execution_event;
use crate::decide::preconditions::unexpected_command;
use crate::decide::remote_task::remote_agent;
use crate::decide::{Decision, DecisionResult, Effect};
use crate::state::TaskState;

/// The server accepted the message.
#[derive(Debug, Clone)]
pub struct RecordRemoteAcceptance {
    /// The remote task.
    pub task: RemoteTask,
}

impl RecordRemoteAcceptance {
    pub(crate) fn decide(&self, state: &TaskState) -> DecisionResult {
        match (remote_agent(state), state.execution()) {
            (Some(_), Some(execution)) if execution.state == ExecutionState::Starting => {
                let remote = Some(self.task.clone());
                let run = ExecutionChange::Run { process_id: None, remote };
                let (events, effects) =
                    (vec![execution_event(execution.id, run)], vec![Effect::FollowRemote]);
                Ok(Decision { events, effects })
            }
            (Some(_), Some(_) | None) | (None, _) => {
                Err(unexpected_command(state, "RecordRemoteAcceptance"))
            }
        }
    }
}

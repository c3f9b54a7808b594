//! Records that the CLI agent's process is running. The runtime drives it as soon as the driver
//! reports the process id. `RecordRun` follows when the run ends. A run that ends at once skips this
//! command, and `RecordRun` reports the process.

use polity_model::event::ExecutionChange;
use polity_model::machine::execution::ExecutionState;

use crate::decide::outcomes::execution_event;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionResult};
use crate::state::TaskState;

/// The process of the CLI agent has started.
#[derive(Debug, Clone, Copy)]
pub struct RecordProcess {
    /// The process id.
    pub process_id: u32,
}

impl RecordProcess {
    pub(crate) fn decide(self, state: &TaskState) -> DecisionResult {
        match state.execution() {
            Some(execution) if execution.state == ExecutionState::Starting => {
                let run = ExecutionChange::Run { process_id: Some(self.process_id), remote: None };
                Ok(Decision {
                    events: vec![execution_event(execution.id, run)],
                    effects: Vec::new(),
                })
            }
            Some(_) | None => Err(unexpected_command(state, "RecordProcess")),
        }
    }
}

//! The commands, one file each: who drives it, its rules, its tests.

mod cancel_task;
mod claim_task;
mod create_task;
mod record_answer;
mod record_failure;
mod release_task;
mod resume_task;
mod retry_execution;
mod start_task;
#[cfg(test)]
#[path = "commands/testing_tests.rs"]
mod testing;

pub use cancel_task::{CancelTask, Canceller};
pub use claim_task::ClaimTask;
pub use create_task::{CreateTask, NewTask};
pub use record_answer::RecordAnswer;
pub use record_failure::RecordFailure;
pub use release_task::ReleaseTask;
pub use resume_task::ResumeTask;
pub use retry_execution::RetryExecution;
pub use start_task::StartTask;

use polity_model::event::{Event, ExecutionChange};
use polity_model::ids::ExecutionId;
use polity_model::machine::execution::ExecutionState;

use crate::decide::Rejection;
use crate::state::{Phase, TaskState};

/// An execution's move, as an event.
fn moved(execution_id: ExecutionId, change: ExecutionChange) -> Event {
    Event::ExecutionChanged { execution_id, change }
}

/// Ends the newest execution, whatever it was doing, and puts it in order. A model loop leaves
/// nothing behind, so its cleanup is over as soon as it begins.
fn end_execution(state: &TaskState, how: ExecutionChange) -> Vec<Event> {
    let Some(execution) = state.execution() else { return Vec::new() };
    let id = execution.id;
    let put_in_order = [moved(id, ExecutionChange::CleanUp), moved(id, ExecutionChange::Finish)];
    match execution.state {
        ExecutionState::Running => [moved(id, how)].into_iter().chain(put_in_order).collect(),
        // Between two tries the attempt has failed already.
        ExecutionState::Failed => put_in_order.into(),
        // An execution starts and runs, and ends and is put in order, within one commit each.
        ExecutionState::Idle
        | ExecutionState::Starting
        | ExecutionState::Completed
        | ExecutionState::Timeout
        | ExecutionState::Cancelled
        | ExecutionState::Cleanup => Vec::new(),
    }
}

/// What ends a running task because someone asked for it.
fn cancelled(state: &TaskState) -> Vec<Event> {
    let mut events = end_execution(state, ExecutionChange::Cancel);
    events.push(Event::TaskCancelled);
    events
}

/// Only a task that waits for its model can be told how the call went.
fn expect_awaiting_model(state: &TaskState, command: &'static str) -> Result<(), Rejection> {
    match state.phase() {
        Phase::AwaitingModel if !state.status().is_final() => Ok(()),
        Phase::AwaitingModel | Phase::Still | Phase::BackingOff { .. } => {
            Err(out_of_place(state, command))
        }
    }
}

fn out_of_place(state: &TaskState, command: &'static str) -> Rejection {
    Rejection::OutOfPlace {
        task: state.id(),
        status: state.status(),
        phase: state.phase(),
        command,
    }
}

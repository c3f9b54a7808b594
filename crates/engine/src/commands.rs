//! The commands, one file each: who drives it, its rules, its tests.

mod acting;
mod answer_node;
mod answer_question;
mod answer_review;
mod answer_run;
mod asked_tools;
mod begin_run;
mod cancel_task;
mod claim_task;
mod create_task;
mod expire_review;
mod outlook;
mod output;
mod programs;
mod record_answer;
mod record_duplicate;
mod record_failure;
mod record_remote;
mod record_run;
mod record_session_wait;
mod record_tool_failure;
mod record_tool_reply;
mod release_task;
mod remotes;
mod resume_task;
mod retry_execution;
mod retry_tool;
mod start_task;
#[cfg(test)]
#[path = "commands/testing_tests.rs"]
mod testing;
mod toggle_agent;
mod walking;

pub use answer_review::AnswerReview;
pub use begin_run::{BeginRun, SlotWait};
pub use cancel_task::{CancelOrigin, CancelTask};
pub use claim_task::ClaimTask;
pub use create_task::{CreateTask, NewTask, TaskOrigin};
pub use expire_review::ExpireReview;
pub use outlook::outlook;
pub use output::OUTPUT_CORRECTIONS_MAX;
pub(crate) use record_answer::charged;
pub use record_answer::{
    FRUITLESS_TURNS_MAX, REPEATED_TURNS_MAX, RecordModelReply, TURN_CALLS_MAX,
};
pub(crate) use record_duplicate::DuplicateTasks;
pub use record_duplicate::RecordDuplicate;
pub use record_failure::{FailureCause, RecordModelFailure};
pub use record_remote::{RecordRemoteAcceptance, RecordRemoteCancel, RecordRemoteOutcome};
pub use record_run::{RecordProcess, RecordRecoveredRun, RecordRun};
pub use record_session_wait::{RecordSessionWait, ReopenSession};
pub use record_tool_failure::RecordToolFailure;
pub use record_tool_reply::RecordToolReply;
pub use release_task::ReleaseTask;
pub use remotes::REMOTE_RETRIES_MAX;
pub use resume_task::ResumeTask;
pub use retry_execution::RetryExecution;
pub use retry_tool::RetryTool;
pub use start_task::StartTask;
pub use toggle_agent::ToggleAgent;
pub use walking::AdvanceWorkflow;

use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::{ExecutionId, ToolCallId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_model::machine::tool_call::CallState;

use crate::decide::{CommandRejection, Decision, DecisionContext, Effect};
use crate::state::{TaskState, TurnCall};
use acting::{CallView, answer_open_calls};

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
        // A program that is being started has not begun its work: its start fails.
        ExecutionState::Starting => {
            let fail = match how {
                fail @ ExecutionChange::Fail { .. } => fail,
                ExecutionChange::Queue { .. }
                | ExecutionChange::Start { .. }
                | ExecutionChange::Run { .. }
                | ExecutionChange::Report { .. }
                | ExecutionChange::EndRemote { .. }
                | ExecutionChange::Complete
                | ExecutionChange::Retry
                | ExecutionChange::TimeOut
                | ExecutionChange::Cancel
                | ExecutionChange::CleanUp
                | ExecutionChange::Finish => {
                    let message = "ended before it had begun".to_owned();
                    let failure = AttemptFailure { category: ErrorCategory::SystemError, message };
                    ExecutionChange::Fail { failure, retry_at: None }
                }
            };
            [moved(id, fail)].into_iter().chain(put_in_order).collect()
        }
        // An execution ends and is put in order within one commit.
        ExecutionState::Idle
        | ExecutionState::Completed
        | ExecutionState::Timeout
        | ExecutionState::Cancelled
        | ExecutionState::Cleanup => Vec::new(),
    }
}

/// Sends the conversation to the model, unless what the task may spend is used up: then it ends
/// here, with what there is.
/// `prepared` is what the call alone needs.
fn call_model(
    state: &TaskState,
    ctx: &DecisionContext,
    mut events: Vec<Event>,
    prepared: impl IntoIterator<Item = Event>,
) -> Decision {
    if let Some(over) = ctx.budget.reached() {
        fail(state, &mut events, ErrorCode::Budget, over.to_owned());
        return Decision { events, effects: Vec::new() };
    }
    let is_new = events.iter().any(|event| matches!(event, Event::ModelAnswered { .. }));
    let iteration = state.iterations() + u32::from(is_new) + 1;
    events.extend(prepared);
    events.push(Event::ModelCalled { iteration });
    Decision { events, effects: vec![Effect::CallModel] }
}

/// Ends a task because someone asked for it, after what has happened already.
fn cancel_with(state: &TaskState, mut events: Vec<Event>) -> Decision {
    answer_open_calls(state, "the task was cancelled", &mut events);
    events.extend(end_execution(state, ExecutionChange::Cancel));
    events.push(Event::TaskCancelled);
    Decision { events, effects: Vec::new() }
}

/// Ends a task with an error of its agent, and with what there is of a result.
fn fail(state: &TaskState, events: &mut Vec<Event>, code: ErrorCode, error: String) {
    let failure = AttemptFailure { category: ErrorCategory::AgentError, message: error.clone() };
    events.extend(end_execution(state, ExecutionChange::Fail { failure, retry_at: None }));
    events.push(Event::TaskFailed { code, error, partial_result: Some(ResultRef::LastAnswer) });
}

/// Only a task that waits for its model can be told how the call went.
fn expect_reasoning(state: &TaskState, command: &'static str) -> Result<(), CommandRejection> {
    if state.doing() == LoopState::Reasoning && state.status() == TaskStatus::Running {
        Ok(())
    } else {
        Err(out_of_place(state, command))
    }
}

/// Only a call that is being made can be told how it went.
fn expect_running_call<'a>(
    state: &'a TaskState,
    id: ToolCallId,
    command: &'static str,
) -> Result<(usize, &'a TurnCall), CommandRejection> {
    state
        .calls()
        .index(id)
        .zip(state.calls().get(id))
        .filter(|(_, call)| call.state == CallState::Running)
        .ok_or_else(|| out_of_place(state, command))
}

/// A call of the turn that the task is in.
fn view(state: &TaskState, index: usize) -> Option<CallView<'_>> {
    let call = state.calls().all().get(index)?;
    Some(CallView { id: call.id(), name: call.name(), arguments: call.arguments() })
}

fn out_of_place(state: &TaskState, command: &'static str) -> CommandRejection {
    let (task, status, doing) = (state.id(), state.status(), state.doing());
    if status.is_final() {
        return CommandRejection::Finished { task, status };
    }
    CommandRejection::OutOfPlace { task, status, doing, command }
}

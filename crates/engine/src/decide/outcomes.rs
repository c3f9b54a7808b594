//! Events that several commands share: they end executions and tasks, or call the model.

use polity_model::event::{Event, ExecutionChange, ResultRef, ToolChange};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::ExecutionId;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::tool_call::CallState;

use crate::decide::{Decision, DecisionContext, Effect};
use crate::state::TaskState;

/// An execution's move, as an event.
pub(crate) fn execution_event(execution_id: ExecutionId, change: ExecutionChange) -> Event {
    Event::ExecutionChanged { execution_id, change }
}

/// Ends the newest execution, whatever it was doing, and puts it in order. A model loop leaves
/// nothing behind, so its cleanup is over as soon as it begins.
pub(crate) fn end_execution(state: &TaskState, how: ExecutionChange) -> Vec<Event> {
    let Some(execution) = state.execution() else { return Vec::new() };
    let id = execution.id;
    let put_in_order = [
        execution_event(id, ExecutionChange::CleanUp),
        execution_event(id, ExecutionChange::Finish),
    ];
    match execution.state {
        ExecutionState::Running => {
            [execution_event(id, how)].into_iter().chain(put_in_order).collect()
        }
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
            [execution_event(id, fail)].into_iter().chain(put_in_order).collect()
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
pub(crate) fn call_model(
    state: &TaskState,
    ctx: &DecisionContext,
    mut events: Vec<Event>,
    prepared: impl IntoIterator<Item = Event>,
) -> Decision {
    if let Some(over) = ctx.budget.reached() {
        fail_task(state, &mut events, ErrorCode::Budget, over.to_owned());
        return Decision { events, effects: Vec::new() };
    }
    let is_new = events.iter().any(|event| matches!(event, Event::ModelAnswered { .. }));
    let iteration = state.iterations() + u32::from(is_new) + 1;
    events.extend(prepared);
    events.push(Event::ModelCalled { iteration });
    Decision { events, effects: vec![Effect::CallModel] }
}

/// Ends a task because someone asked for it, after what has happened already.
pub(crate) fn cancel_task(state: &TaskState, mut events: Vec<Event>) -> Decision {
    answer_open_calls(state, "the task was cancelled", &mut events);
    events.extend(end_execution(state, ExecutionChange::Cancel));
    events.push(Event::TaskCancelled);
    Decision { events, effects: Vec::new() }
}

/// Ends a task with an error of its agent, and with what there is of a result.
pub(crate) fn fail_task(
    state: &TaskState,
    events: &mut Vec<Event>,
    code: ErrorCode,
    error: String,
) {
    let failure = AttemptFailure { category: ErrorCategory::AgentError, message: error.clone() };
    events.extend(end_execution(state, ExecutionChange::Fail { failure, retry_at: None }));
    events.push(Event::TaskFailed { code, error, partial_result: Some(ResultRef::LastAnswer) });
}

/// Answers every call that has no answer yet, because the task ends: a conversation with a call
/// that was never answered could not be taken up again.
pub(crate) fn answer_open_calls(state: &TaskState, why: &str, events: &mut Vec<Event>) {
    let first_answer = state.message_count();
    let is_alone = state.workflow_run().is_some();
    for (index, call) in state.calls().all().iter().enumerate() {
        let content = match call.state {
            CallState::Answered => continue,
            CallState::Waiting => format!("{why} while the sub-agent waited for a person"),
            CallState::Running | CallState::InDoubt => {
                format!("{why} while the tool was being called; it may have had its effect")
            }
            CallState::Asked | CallState::Held | CallState::Failed => {
                format!("{why} before the tool was called")
            }
        };
        // One that these same events have answered already needs no second answer.
        let call_id = call.id();
        let answers_it = |event: &Event| {
            matches!(event, Event::ToolChanged { call_id: answered, change: ToolChange::Answer { .. } }
                if *answered == call_id)
        };
        if events.iter().any(answers_it) {
            continue;
        }
        let change = ToolChange::Answer {
            ordinal: (!is_alone).then(|| ordinal(first_answer + index)),
            content,
            structured: None,
            is_error: true,
            duration_ms: 0,
        };
        events.push(Event::ToolChanged { call_id, change });
    }
}

/// Converts an index to the number that events carry.
pub(crate) fn ordinal(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

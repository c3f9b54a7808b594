//! Events that several commands share: they end executions and tasks, or call the model.

use jiff::Timestamp;
use polity_model::event::{
    Event, ExecutionChange, ResultRef, ToolChange, TurnCheckpoint, UnsettledCall,
};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::{CheckpointId, ExecutionId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::tool_call::CallState;
use polity_model::message::Message;
use polity_model::review::ReviewSubject;
use polity_model::usage::Usage;

use crate::decide::{Decision, DecisionContext, Effect};
use crate::state::TaskState;
use crate::workflow::cancel_workflow;

/// An execution's transition, as an event.
pub(crate) fn execution_event(execution_id: ExecutionId, change: ExecutionChange) -> Event {
    Event::ExecutionChanged { execution_id, change }
}

fn clean_up(id: ExecutionId) -> [Event; 2] {
    [ExecutionChange::CleanUp, ExecutionChange::Finish].map(|change| execution_event(id, change))
}

/// Ends an execution and cleans it up.
pub(crate) fn ended_execution(id: ExecutionId, how: ExecutionChange) -> [Event; 3] {
    let [clean_up, finish] = clean_up(id);
    [execution_event(id, how), clean_up, finish]
}

/// Adds an agent's answer to the conversation.
pub(crate) fn add_answer(content: &str, timestamp: Timestamp) -> Event {
    let (content, tool_calls) = (content.to_owned(), Vec::new());
    Event::MessageAdded { message: Message::Assistant { content, tool_calls, timestamp } }
}

/// Takes a checkpoint at the task's agent and opens a review there.
pub(crate) fn open_review(
    state: &TaskState,
    ctx: &mut DecisionContext,
    subject: ReviewSubject,
    question: String,
) -> [Event; 2] {
    let checkpoint_id = CheckpointId::from_random_bytes(ctx.entropy.id_bytes());
    let taken = Event::CheckpointTaken {
        checkpoint_id,
        sequence: state.checkpoints(),
        node: state.task().order().assigned_agent.to_string(),
        awaiting_human: true,
        message_count: None,
    };
    let (deadline, default_action) = (None, None);
    let opened = Event::ReviewOpened { checkpoint_id, subject, question, deadline, default_action };
    [taken, opened]
}

/// Takes the checkpoint at the end of an agent's task.
pub(crate) fn final_checkpoint(state: &TaskState, ctx: &mut DecisionContext) -> Event {
    Event::CheckpointTaken {
        checkpoint_id: CheckpointId::from_random_bytes(ctx.entropy.id_bytes()),
        sequence: state.checkpoints(),
        node: state.task().order().assigned_agent.to_string(),
        awaiting_human: false,
        message_count: None,
    }
}

/// Ends and cleans up the newest execution. A model loop has nothing to clean up, so its cleanup
/// ends at once.
pub(crate) fn end_execution(state: &TaskState, how: ExecutionChange) -> Vec<Event> {
    let Some(execution) = state.execution() else { return Vec::new() };
    let id = execution.id;
    match execution.state {
        ExecutionState::Running => ended_execution(id, how).into(),
        // The attempt has failed already.
        ExecutionState::Failed => clean_up(id).into(),
        // A run that is still starting fails.
        ExecutionState::Starting if matches!(how, ExecutionChange::Fail { .. }) => {
            ended_execution(id, how).into()
        }
        ExecutionState::Starting => {
            let message = "ended before it had begun".to_owned();
            let failure = AttemptFailure { category: ErrorCategory::SystemError, message };
            ended_execution(id, ExecutionChange::Fail { failure, retry_at: None }).into()
        }
        // An execution ends and is cleaned up within one commit.
        ExecutionState::Idle
        | ExecutionState::Completed
        | ExecutionState::Timeout
        | ExecutionState::Cancelled
        | ExecutionState::Cleanup => Vec::new(),
    }
}

/// Calls the model for the first time, or repeats a call. Fails the task if its budget is used up.
/// `prepared` holds events that only the call needs.
pub(crate) fn call_model(
    state: &TaskState,
    ctx: &DecisionContext,
    events: Vec<Event>,
    prepared: impl IntoIterator<Item = Event>,
) -> Decision {
    request_reply(state, ctx, events, prepared, None)
}

/// Calls the model for its next turn, and takes a checkpoint after the turn before. Fails the task
/// if its budget is used up.
pub(crate) fn call_model_for_next_turn(
    state: &TaskState,
    ctx: &mut DecisionContext,
    events: Vec<Event>,
    prepared: impl IntoIterator<Item = Event>,
) -> Decision {
    let checkpoint = TurnCheckpoint {
        checkpoint_id: CheckpointId::from_random_bytes(ctx.entropy.id_bytes()),
        sequence: next_checkpoint(state, &events),
    };
    request_reply(state, ctx, events, prepared, Some(checkpoint))
}

/// The number of the next checkpoint after the events so far.
pub(crate) fn next_checkpoint(state: &TaskState, events: &[Event]) -> u32 {
    state.checkpoints() + ordinal(events.iter().filter_map(Event::checkpoint).count())
}

fn request_reply(
    state: &TaskState,
    ctx: &DecisionContext,
    mut events: Vec<Event>,
    prepared: impl IntoIterator<Item = Event>,
    checkpoint: Option<TurnCheckpoint>,
) -> Decision {
    if let Some(over) = ctx.budget.reached() {
        fail_task(state, &mut events, ErrorCode::Budget, over.to_owned());
        return Decision { events, effects: Vec::new() };
    }
    let is_new = events.iter().any(|event| matches!(event, Event::ModelAnswered { .. }));
    let iteration = state.iterations() + u32::from(is_new) + 1;
    events.extend(prepared);
    events.push(Event::ModelCalled { iteration, checkpoint });
    Decision { events, effects: vec![Effect::CallModel] }
}

/// Cancels the task after the events so far. A workflow may have something to run first.
pub(crate) fn cancel_task(state: &TaskState, mut events: Vec<Event>) -> Decision {
    if let Some(decision) = cancel_workflow(state, &events) {
        return decision;
    }
    answer_open_calls(state, "the task was cancelled", &mut events);
    let is_over =
        |event: &Event| matches!(event, Event::ModelAnswered { .. } | Event::ModelFailed { .. });
    if !events.iter().any(is_over) {
        events.extend(lost_model_call(state, "the task was cancelled during the call"));
    }
    events.extend(end_execution(state, ExecutionChange::Cancel));
    events.push(Event::TaskCancelled);
    Decision { events, effects: Vec::new() }
}

/// Ends the open model call, if there is one, without its answer. The provider may charge for it, so
/// its usage is unknown.
pub(crate) fn lost_model_call(state: &TaskState, reason: &str) -> Option<Event> {
    let is_open = state.doing() == LoopState::Reasoning;
    let failure =
        AttemptFailure { category: ErrorCategory::SystemError, message: reason.to_owned() };
    is_open.then_some(Event::ModelFailed {
        failure,
        of_tools: false,
        duration_ms: 0,
        mark: None,
        retry_until: None,
        usage: Usage::UNKNOWN,
    })
}

/// Fails the task with an agent error and the last answer as a partial result.
pub(crate) fn fail_task(
    state: &TaskState,
    events: &mut Vec<Event>,
    code: ErrorCode,
    error: String,
) {
    fail_task_with(state, events, code, error, ResultRef::LastAnswer);
}

/// Fails the task with an agent error and this partial result.
pub(crate) fn fail_task_with(
    state: &TaskState,
    events: &mut Vec<Event>,
    code: ErrorCode,
    error: String,
    partial_result: ResultRef,
) {
    let failure = AttemptFailure { category: ErrorCategory::AgentError, message: error.clone() };
    events.extend(end_execution(state, ExecutionChange::Fail { failure, retry_at: None }));
    events.push(Event::TaskFailed { code, error, partial_result: Some(partial_result) });
}

/// Answers every open call because the task ends. A conversation with an unanswered call could not
/// be continued by a fork.
pub(crate) fn answer_open_calls(state: &TaskState, why: &str, events: &mut Vec<Event>) {
    let first_answer = state.message_count();
    let is_alone = state.workflow_run().is_some();
    for (index, call) in state.calls().all().iter().enumerate() {
        let (content, unsettled) = match call.state {
            CallState::Answered => continue,
            CallState::Waiting => {
                let content = format!("{why} while the sub-agent waited for a person");
                (content, UnsettledCall::MaybeDone)
            }
            CallState::Running | CallState::InDoubt => {
                let doubt = "while the tool was being called; it may have had its effect";
                (format!("{why} {doubt}"), UnsettledCall::MaybeDone)
            }
            CallState::Asked | CallState::Held | CallState::Failed => {
                (format!("{why} before the tool was called"), UnsettledCall::NotCalled)
            }
        };
        // The events so far may have answered the call already.
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
            unsettled: Some(unsettled),
            item: state.workflow_run().and_then(|run| run.item_of(call_id)),
        };
        events.push(Event::ToolChanged { call_id, change });
    }
}

/// Converts an index to the number that events carry.
pub(crate) fn ordinal(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

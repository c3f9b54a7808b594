//! Records that a model call failed. The runtime drives it with the driver's failure or a timeout;
//! `RecordModelReply` is its counterpart. A transient failure is retried while retries are left. A
//! conversation that exceeds the context is sent again without its middle; if that is only suspected,
//! after the retries. Any other failure fails the task.

use jiff::SignedDuration;
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::message::MessageRole;

use crate::decide::outcomes::{call_model, cancel_task, end_execution, execution_event, fail_task};
use crate::decide::preconditions::expect_reasoning;
use crate::decide::{Decision, DecisionContext, DecisionResult, Effect, backoff, llm};
use crate::driver::ModelFailure;
use crate::state::TaskState;

/// The model call failed.
#[derive(Debug, Clone)]
pub struct RecordModelFailure {
    /// The driver's failure.
    pub failure: ModelFailure,
    /// The part that failed.
    pub cause: FailureCause,
    /// The duration of the call.
    pub duration_ms: u64,
}

/// The part of a model call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The model.
    Model,
    /// The model exceeded its time limit.
    Timeout,
    /// The agent's tools could not be listed, so the model was not called.
    Tools,
    /// Sub-agents or siblings used up the budget before the model was called.
    Budget,
}

impl RecordModelFailure {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        expect_reasoning(state, "RecordModelFailure")?;
        let ModelFailure { failure, context_full, retry_after, mark } = &self.failure;
        if self.cause == FailureCause::Budget && !state.cancel_requested() {
            let mut events = Vec::new();
            fail_task(state, &mut events, ErrorCode::Budget, failure.message.clone());
            return Ok(Decision { events, effects: Vec::new() });
        }
        let mut events = vec![Event::ModelFailed {
            failure: failure.clone(),
            of_tools: self.cause == FailureCause::Tools,
            duration_ms: self.duration_ms,
            mark: *mark,
        }];
        if state.cancel_requested() {
            return Ok(cancel_task(state, events));
        }
        if let Some(execution) = state.execution()
            && execution.may_retry(failure.category)
            && state.call_retries() < llm(state)?.max_retries
        {
            let wait = backoff::delay(state.call_retries(), *retry_after, &mut ctx.entropy);
            let until = ctx.now + SignedDuration::try_from(wait).unwrap_or_default();
            let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: Some(until) };
            events.push(execution_event(execution.id, change));
            return Ok(Decision { events, effects: vec![Effect::WaitUntil(until)] });
        }
        if *context_full {
            return Ok(shorten(state, ctx, events, failure));
        }
        let failed = || ExecutionChange::Fail { failure: failure.clone(), retry_at: None };
        let (how, code) = match self.cause {
            FailureCause::Timeout => (ExecutionChange::TimeOut, ErrorCode::Timeout),
            FailureCause::Tools => (failed(), ErrorCode::ToolsUnavailable),
            FailureCause::Budget => (failed(), ErrorCode::Budget),
            FailureCause::Model => (failed(), code(failure.category)),
        };
        events.extend(end_execution(state, how));
        events.push(Event::TaskFailed {
            code,
            error: failure.message.clone(),
            partial_result: Some(ResultRef::LastAnswer),
        });
        Ok(Decision { events, effects: Vec::new() })
    }
}

/// Drops the older half of the sent conversation and calls the model again. The first message
/// stays, and a tool call stays or goes together with its answers. If only the newest exchange is
/// left, the task fails.
fn shorten(
    state: &TaskState,
    ctx: &DecisionContext,
    mut events: Vec<Event>,
    failure: &AttemptFailure,
) -> Decision {
    let messages = state.messages();
    let sent_from = (state.kept_from() as usize).max(1);
    let half = sent_from + (messages.len() - sent_from.min(messages.len())).div_ceil(2);
    let opens_exchange = |index: &usize| {
        messages.get(*index).is_some_and(|message| message.role() != MessageRole::Tool)
    };
    let later = (half..messages.len()).find(opens_exchange);
    let earlier = || (sent_from + 1..half).rev().find(opens_exchange);
    let shorter = later.or_else(earlier).and_then(|index| u32::try_from(index).ok());
    let Some(kept_from) = shorter else {
        let certainty = match failure.category {
            ErrorCategory::Transient => "are probably",
            ErrorCategory::Permanent | ErrorCategory::AgentError | ErrorCategory::SystemError => {
                "are"
            }
        };
        let error = format!(
            "the task and the newest exchange alone {certainty} more than the model can read: {}",
            failure.message
        );
        fail_task(state, &mut events, ErrorCode::LimitContext, error);
        return Decision { events, effects: Vec::new() };
    };
    events.push(Event::HistoryShortened { kept_from });
    call_model(state, ctx, events, [])
}

fn code(category: ErrorCategory) -> ErrorCode {
    match category {
        ErrorCategory::Transient => ErrorCode::ModelUnavailable,
        ErrorCategory::Permanent | ErrorCategory::AgentError => ErrorCode::ModelRejected,
        ErrorCategory::SystemError => ErrorCode::SystemError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn failed(category: ErrorCategory, cause: FailureCause) -> RecordModelFailure {
        let failure = AttemptFailure { category, message: "no".into() };
        let failure = ModelFailure {
            retry_after: Some(Duration::from_secs(7)),
            ..ModelFailure::new(failure)
        };
        RecordModelFailure { failure, cause, duration_ms: 1 }
    }

    #[test]
    fn transient_failure_waits_for_retry_after() {
        let decision = failed(ErrorCategory::Transient, FailureCause::Model)
            .decide(&running(), &mut test_context())
            .unwrap();
        let until = test_context().now + SignedDuration::from_secs(7);
        assert_eq!(decision.effects, [Effect::WaitUntil(until)]);
        assert_eq!(with(running(), decision.events).status().to_string(), "running");
    }

    #[test]
    fn exhausted_retries_fail_the_task() {
        let mut state = running();
        for _ in 0..3 {
            let decision = failed(ErrorCategory::Transient, FailureCause::Model)
                .decide(&state, &mut test_context())
                .unwrap();
            state = retried(with(state, decision.events));
        }
        let last = failed(ErrorCategory::Transient, FailureCause::Model)
            .decide(&state, &mut test_context())
            .unwrap();
        let task = with(state, last.events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::ModelUnavailable));
        assert_eq!(task.error.as_deref(), Some("no"));
    }

    #[test]
    fn permanent_failures_have_their_own_codes() {
        for (category, cause, code) in [
            (ErrorCategory::Permanent, FailureCause::Model, ErrorCode::ModelRejected),
            (ErrorCategory::AgentError, FailureCause::Model, ErrorCode::ModelRejected),
            (ErrorCategory::SystemError, FailureCause::Model, ErrorCode::SystemError),
            (ErrorCategory::Permanent, FailureCause::Timeout, ErrorCode::Timeout),
            (ErrorCategory::Permanent, FailureCause::Tools, ErrorCode::ToolsUnavailable),
        ] {
            let decision = failed(category, cause).decide(&running(), &mut test_context()).unwrap();
            assert_eq!(decision.effects, []);
            let task = with(running(), decision.events).snapshot();
            assert_eq!(task.error_code, Some(code), "{category}");
        }
    }

    #[test]
    fn failure_is_refused_during_a_backoff() {
        assert_rejected!(
            failed(ErrorCategory::Transient, FailureCause::Model)
                .decide(&backing_off(), &mut test_context()),
            UnexpectedCommand
        );
    }

    /// Some servers end a stream without an event if the conversation exceeds their context.
    #[test]
    fn suspected_full_context_is_retried_and_then_shortened() {
        let asked = RecordModelReply { reply: asks_for(&["files/read"]), duration_ms: 1 };
        let mut state =
            with(running(), asked.decide(&running(), &mut test_context()).unwrap().events);
        let call_id = call_id(&state, 0);
        let reply = ToolReply { content: "a".into(), ..ToolReply::default() };
        let reply = RecordToolReply { call_id, reply, duration_ms: 1 };
        state = with(state.clone(), reply.decide(&state, &mut test_context()).unwrap().events);
        let mut empty = failed(ErrorCategory::Transient, FailureCause::Model);
        empty.failure.context_full = true;
        for _ in 0..3 {
            let decision = empty.decide(&state, &mut test_context()).unwrap();
            assert!(matches!(decision.effects[..], [Effect::WaitUntil(_)]), "{decision:?}");
            state = retried(with(state, decision.events));
        }
        let decision = empty.decide(&state, &mut test_context()).unwrap();
        let task = with(state, decision.events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::LimitContext));
        let error = task.error.unwrap();
        assert!(error.contains("are probably more than the model can read"), "{error}");
    }

    #[test]
    fn full_context_drops_the_middle_repeatedly() {
        let mut state = running();
        for number in 0..4 {
            let tools = ["files/read", "files/write"];
            let asked = RecordModelReply { reply: asks_for(&tools), duration_ms: 1 };
            state = with(state.clone(), asked.decide(&state, &mut test_context()).unwrap().events);
            for index in 0..2 {
                let call_id = call_id(&state, index);
                let content = format!("{number}");
                let reply = ToolReply { content, ..ToolReply::default() };
                let reply = RecordToolReply { call_id, reply, duration_ms: 1 };
                state =
                    with(state.clone(), reply.decide(&state, &mut test_context()).unwrap().events);
            }
        }
        let failure =
            AttemptFailure { category: ErrorCategory::Permanent, message: "too long".into() };
        let failure = ModelFailure { context_full: true, ..ModelFailure::new(failure) };
        let full = RecordModelFailure { failure, cause: FailureCause::Model, duration_ms: 1 };
        let mut sent = Vec::new();
        while !state.status().is_final() {
            let roles: Vec<_> =
                state.history().iter().map(|message| message.role().label()).collect();
            assert_eq!(roles[0], "user");
            assert_ne!(roles.get(1), Some(&"tool"), "an answer without its call: {roles:?}");
            sent.push(roles.len());
            state = with(state.clone(), full.decide(&state, &mut test_context()).unwrap().events);
        }
        assert_eq!(sent, [13, 7, 4]);
        assert_eq!(state.snapshot().error_code, Some(ErrorCode::LimitContext));
    }
}

//! Records that a model call failed. The runtime drives it with the driver's failure or a timeout;
//! `RecordModelReply` is its counterpart. A transient failure is retried until the agent's
//! `max_retry_seconds` have passed since the first failure of the call, and at most `max_retries`
//! times if the file has a limit. A conversation that exceeds the context is sent again without its
//! middle; if that is only suspected, after a few retries. Any other failure fails the task.

use jiff::{SignedDuration, Timestamp};
use polity_definition::LlmAgent;
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::message::MessageRole;

use crate::decide::outcomes::{call_model, cancel_task, end_execution, execution_event, fail_task};
use crate::decide::preconditions::expect_reasoning;
use crate::decide::{Decision, DecisionContext, DecisionResult, Effect, backoff, llm};
use crate::driver::ModelFailure;
use crate::state::TaskState;

/// The number of retries before a conversation that may exceed the context is shortened.
const SUSPECTED_CONTEXT_RETRIES_MAX: u32 = 3;

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
        let ModelFailure { failure, context_full, mark, usage, .. } = &self.failure;
        if self.cause == FailureCause::Budget && !state.cancel_requested() {
            let mut events = Vec::new();
            fail_task(state, &mut events, ErrorCode::Budget, failure.message.clone());
            return Ok(Decision { events, effects: Vec::new() });
        }
        let next = self.next_attempt(state, llm(state)?, ctx);
        let shorter = if *context_full { shorter_history(state) } else { None };
        let is_suspected_often = state.call_retries() >= SUSPECTED_CONTEXT_RETRIES_MAX;
        let next = next.filter(|_| shorter.is_none() || !is_suspected_often);
        let mut events = vec![Event::ModelFailed {
            failure: failure.clone(),
            of_tools: self.cause == FailureCause::Tools,
            duration_ms: self.duration_ms,
            mark: *mark,
            retry_until: next.as_ref().and_then(|next| next.until),
            usage: *usage,
        }];
        if state.cancel_requested() {
            return Ok(cancel_task(state, events));
        }
        if let (Some(NextAttempt { at, .. }), Some(execution)) = (next, state.execution()) {
            let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: Some(at) };
            events.push(execution_event(execution.id, change));
            return Ok(Decision { events, effects: vec![Effect::WaitUntil(at)] });
        }
        if *context_full {
            return Ok(shorten(state, ctx, events, shorter, failure));
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

    /// The next attempt, if there is one. The last attempt is at the end of the agent's patience.
    fn next_attempt(
        &self,
        state: &TaskState,
        llm: &LlmAgent,
        ctx: &mut DecisionContext,
    ) -> Option<NextAttempt> {
        let ModelFailure { failure, retry_after, is_final, .. } = &self.failure;
        if *is_final || !state.execution()?.may_retry(failure.category) {
            return None;
        }
        let retries = state.call_retries();
        let wait = backoff::delay(retries, *retry_after, &mut ctx.entropy);
        let at = ctx.now + SignedDuration::try_from(wait).unwrap_or_default();
        match self.cause {
            FailureCause::Budget => None,
            FailureCause::Tools => {
                (retries < llm.tool_retries_max()).then_some(NextAttempt { at, until: None })
            }
            FailureCause::Model | FailureCause::Timeout => {
                if llm.max_retries.is_some_and(|most| retries >= most) {
                    return None;
                }
                // A clock that was set back must not add to the patience.
                let since = state.failing_since().unwrap_or(ctx.now).min(ctx.now);
                let until = since + SignedDuration::from_secs(llm.max_retry_seconds.into());
                let next = NextAttempt { at: at.min(until), until: Some(until) };
                (ctx.now < until).then_some(next)
            }
        }
    }
}

/// The next attempt of a model call.
struct NextAttempt {
    at: Timestamp,
    /// The time of the last attempt.
    until: Option<Timestamp>,
}

/// The first message of the newer half of the sent conversation. The first message of all stays,
/// and a tool call stays or goes together with its answers. None if only the newest exchange is
/// left.
fn shorter_history(state: &TaskState) -> Option<u32> {
    let messages = state.messages();
    let sent_from = (state.kept_from() as usize).max(1);
    let half = sent_from + (messages.len() - sent_from.min(messages.len())).div_ceil(2);
    let opens_exchange = |index: &usize| {
        messages.get(*index).is_some_and(|message| message.role() != MessageRole::Tool)
    };
    let later = (half..messages.len()).find(opens_exchange);
    let earlier = || (sent_from + 1..half).rev().find(opens_exchange);
    later.or_else(earlier).and_then(|index| u32::try_from(index).ok())
}

/// Drops the older half of the sent conversation and calls the model again. If nothing can be
/// dropped, the task fails.
fn shorten(
    state: &TaskState,
    ctx: &DecisionContext,
    mut events: Vec<Event>,
    shorter: Option<u32>,
    failure: &AttemptFailure,
) -> Decision {
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
    use polity_definition::{AgentDefinition, AgentKind};
    use polity_model::usage::Usage;

    use super::*;
    use crate::commands::RetryExecution;
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

    /// The seconds after the first failure at which the model is called again, until it gives up.
    fn attempts(mut state: TaskState, failure: &RecordModelFailure) -> (Vec<i64>, TaskState) {
        let mut ctx = test_context();
        let began = ctx.now;
        let mut attempts = Vec::new();
        loop {
            let decision = failure.decide(&state, &mut ctx).unwrap();
            state = state.after(&decision.events, ctx.now).unwrap();
            let [Effect::WaitUntil(at)] = decision.effects[..] else { break };
            attempts.push(at.duration_since(began).as_secs());
            ctx.now = at;
            let again = RetryExecution.decide(&state, &mut ctx).unwrap();
            state = state.after(&again.events, ctx.now).unwrap();
        }
        (attempts, state)
    }

    #[test]
    fn patience_ends_with_an_attempt_at_its_last_moment() {
        let mut passing = failed(ErrorCategory::Transient, FailureCause::Model);
        passing.failure.retry_after = None;
        let (attempts, state) = attempts(running(), &passing);
        assert_eq!((attempts[0], attempts.last()), (1, Some(&600)));
        assert!((12..18).contains(&attempts.len()), "{attempts:?}");
        let task = state.snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::ModelUnavailable));
        assert_eq!(task.error.as_deref(), Some("no"));
    }

    #[test]
    fn written_max_retries_limits_the_number_too() {
        let passing = failed(ErrorCategory::Transient, FailureCause::Model);
        let with = |max_retries, max_retry_seconds| {
            let mut agent = AgentDefinition::clone(&pinned().agent);
            let AgentKind::Llm(llm) = &mut agent.kind else { panic!() };
            (llm.max_retries, llm.max_retry_seconds) = (max_retries, max_retry_seconds);
            running_with(&PinnedAgent::alone(Arc::new(agent), None))
        };
        assert_eq!(attempts(with(Some(3), 600), &passing).0, [7, 14, 21]);
        assert_eq!(attempts(with(None, 10), &passing).0, [7, 10]);
        assert_eq!(attempts(with(None, 0), &passing).0, [0_i64; 0]);
        // Listing the tools has the retries of a tool.
        let of_tools = failed(ErrorCategory::Transient, FailureCause::Tools);
        assert_eq!(attempts(running(), &of_tools).0, [7, 14, 21]);
    }

    #[test]
    fn replayed_failure_is_final() {
        let mut replayed = failed(ErrorCategory::Transient, FailureCause::Model);
        replayed.failure.is_final = true;
        let (attempts, state) = attempts(running(), &replayed);
        assert_eq!(attempts, [0_i64; 0]);
        assert_eq!(state.snapshot().error_code, Some(ErrorCode::ModelUnavailable));
    }

    #[test]
    fn retry_tells_the_time_of_the_last_attempt() {
        let mut ctx = test_context();
        let first = failed(ErrorCategory::Transient, FailureCause::Model);
        let decision = first.decide(&running(), &mut ctx).unwrap();
        let Event::ModelFailed { retry_until, .. } = &decision.events[0] else { panic!() };
        assert_eq!(*retry_until, Some(ctx.now + SignedDuration::from_secs(600)));
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
        // Nothing can be dropped, so the suspicion does not end the patience.
        let (attempts, ended) = attempts(state.clone(), &empty);
        assert_eq!(attempts.last(), Some(&600));
        let task = ended.snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::LimitContext));
        let error = task.error.unwrap();
        assert!(error.contains("are probably more than the model can read"), "{error}");

        let asked = RecordModelReply { reply: asks_for(&["files/read"]), duration_ms: 1 };
        let mut state =
            with(state.clone(), asked.decide(&state, &mut test_context()).unwrap().events);
        let reply = ToolReply { content: "b".into(), ..ToolReply::default() };
        let reply = RecordToolReply { call_id: self::call_id(&state, 0), reply, duration_ms: 1 };
        state = with(state.clone(), reply.decide(&state, &mut test_context()).unwrap().events);
        for _ in 0..SUSPECTED_CONTEXT_RETRIES_MAX {
            let decision = empty.decide(&state, &mut test_context()).unwrap();
            assert!(matches!(decision.effects[..], [Effect::WaitUntil(_)]), "{decision:?}");
            state = retried(with(state, decision.events));
        }
        let decision = empty.decide(&state, &mut test_context()).unwrap();
        assert_eq!(labels(&decision), ["model_failed", "history_shortened", "model_called"]);
    }

    #[test]
    fn usage_of_a_failed_call_is_charged_to_the_task() {
        let mut failed = failed(ErrorCategory::Transient, FailureCause::Model);
        failed.failure.usage = Usage { input_tokens: 11, output_tokens: 6, ..Usage::UNKNOWN };
        let state = running();
        let events = failed.decide(&state, &mut test_context()).unwrap().events;
        let usage = with(state, events).snapshot().usage;
        assert_eq!((usage.input_tokens, usage.tokens_incomplete), (Some(11), true));
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

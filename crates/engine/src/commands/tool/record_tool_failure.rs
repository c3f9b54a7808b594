//! Records that a tool call failed. The runtime drives it with the driver's failure or a timeout.
//! `RecordToolReply` covers tools that reply with an error. A transient failure is retried only if
//! the call never reached the tool or the tool is repeatable. Then fallback tools are tried in
//! order. If none is left, the model reads the error.

use jiff::SignedDuration;
use polity_model::event::UnsettledCall;
use polity_model::failure::{ErrorCategory, ErrorCode};
use polity_model::ids::ToolCallId;

use crate::decide::call_batch::CallBatch;
use crate::decide::continuation::continue_task;
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::expect_running_call;
use crate::decide::{DecisionContext, DecisionResult, backoff};
use crate::driver::ToolFailure;
use crate::state::TaskState;
use crate::tool_turn::fallback::call_fallback;

/// A tool call failed.
#[derive(Debug, Clone)]
pub struct RecordToolFailure {
    /// The call.
    pub call_id: ToolCallId,
    /// The driver's failure.
    pub failure: ToolFailure,
    /// The duration of the attempt.
    pub duration_ms: u64,
}

impl RecordToolFailure {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (index, call) = expect_running_call(state, self.call_id, "RecordToolFailure")?;
        let ToolFailure { failure, maybe_done, timed_out } = &self.failure;
        let mut batch = CallBatch::of_state(state, ctx)?;
        batch.set_error_code(timed_out.then_some(ErrorCode::Timeout));
        let answer = format!("error: {}: {}{}", call.name(), failure.message, effect(*maybe_done));
        // A workflow fails with its node, and a retry must not repeat what may have been done. An agent
        // reads the error and decides itself.
        let is_in_doubt = *maybe_done && !call.repeatable && state.workflow_run().is_some();
        let end = |batch: &mut CallBatch<'_>| {
            if is_in_doubt {
                let doubt = UnsettledCall::MaybeDone;
                batch.answer_unsettled(index, self.call_id, answer, self.duration_ms, doubt);
            } else {
                batch.answer_with_error(index, self.call_id, answer, self.duration_ms);
            }
        };
        if state.cancel_requested() {
            end(&mut batch);
            return Ok(cancel_task(state, batch.into_events()));
        }
        let may_pass = failure.category == ErrorCategory::Transient && !timed_out;
        let is_harmless = call.repeatable || !maybe_done;
        if may_pass && is_harmless && call.attempts <= batch.max_retries(self.call_id) {
            let ctx = batch.ctx();
            let wait = backoff::delay(call.attempts.saturating_sub(1), None, &mut ctx.entropy);
            let until = ctx.now + SignedDuration::try_from(wait).unwrap_or_default();
            batch.record_attempt(index, self.call_id, failure.clone(), self.duration_ms, until);
            batch.wait_for_retry(self.call_id, until);
        } else if !call_fallback(&mut batch, index, call, failure.clone(), self.duration_ms) {
            end(&mut batch);
        }
        Ok(continue_task(batch))
    }
}

fn effect(maybe_done: bool) -> &'static str {
    if maybe_done { " (it may have had its effect all the same)" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::RetryTool;
    use crate::decide::fixtures::prelude::*;

    fn record(
        state: &TaskState,
        category: ErrorCategory,
        maybe_done: bool,
        timed_out: bool,
    ) -> Decision {
        let failure = AttemptFailure { category, message: "broken pipe".into() };
        let failure = ToolFailure { failure, maybe_done, timed_out };
        let call_id = call_id(state, 0);
        let command = RecordToolFailure { call_id, failure, duration_ms: 3 };
        command.decide(state, &mut test_context()).unwrap()
    }

    #[test]
    fn transient_failure_is_retried_if_harmless() {
        use ErrorCategory::{Permanent, Transient};
        for (tool, category, maybe_done, timed_out, retried) in [
            ("files/read", Transient, true, false, true),
            ("files/write", Transient, false, false, true),
            ("files/write", Transient, true, false, false),
            ("files/write", Permanent, false, false, false),
            ("files/write", Transient, true, true, false),
        ] {
            let state = turn_with_calls(&[tool]);
            let decision = record(&state, category, maybe_done, timed_out);
            let waits = matches!(decision.effects.as_slice(), [Effect::WaitForTool { .. }]);
            assert_eq!(waits, retried, "{tool} {category} {maybe_done} {timed_out}");
            if !retried {
                let answer = answer_to(&decision, call_id(&state, 0)).unwrap();
                assert!(answer.starts_with("error: files/write: broken pipe"), "{answer}");
                assert_eq!(answer.contains("may have had its effect"), maybe_done, "{answer}");
            }
        }
    }

    #[test]
    fn fallback_follows_the_last_retry() {
        let mut state = turn_with_calls(&["files/read"]);
        for _ in 0..3 {
            let decision = record(&state, ErrorCategory::Transient, true, false);
            assert_eq!(labels(&decision), ["tool_failed"]);
            state = with(state, decision.events);
            let mut later = test_context();
            let call = &state.calls().all()[0];
            let retry = RetryTool { call_id: call.id() };
            let early = retry.decide(&state, &mut test_context()).unwrap();
            assert!(matches!(early.effects.as_slice(), [Effect::WaitForTool { .. }]));
            later.now = call.backoff.unwrap().until;
            let events = retry.decide(&state, &mut later).unwrap().events;
            state = with(state, events);
        }
        let decision = record(&state, ErrorCategory::Transient, true, false);
        assert_eq!(labels(&decision), ["tool_failed", "tool_called"]);
        state = with(state, decision.events);
        assert_eq!(state.calls().all()[0].name(), "web/fetch");
        let last = record(&state, ErrorCategory::Permanent, false, false);
        let answer = answer_to(&last, call_id(&state, 0)).unwrap();
        assert_eq!(answer, "error: web/fetch: broken pipe");
        assert_eq!(last.effects, [Effect::CallModel]);
    }

    #[test]
    fn timeout_goes_to_the_fallback_at_once() {
        let decision =
            record(&turn_with_calls(&["files/read"]), ErrorCategory::Transient, true, true);
        assert_eq!(labels(&decision), ["tool_failed", "tool_called"]);
    }
}

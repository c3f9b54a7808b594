//! A call of a tool brought no answer. The runtime drives it with what the driver, or the tool's
//! time limit, reported. What may pass is tried again, but only where that cannot do harm: the
//! call never reached the tool, or the tool may be called twice. After that the tools that may
//! stand in are tried, in order. When nothing is left, the model learns what went wrong.

use std::sync::Arc;

use jiff::SignedDuration;
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::ToolCallId;

use super::acting::Acting;
use super::{cancel_with, expect_running_call, view};
use crate::decide::{CommandRejection, Decision, DecisionContext};
use crate::driver::ToolFailure;
use crate::retry;
use crate::state::{TaskState, TurnCall};

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct RecordToolFailure {
    /// The call.
    pub call_id: ToolCallId,
    /// What the driver said.
    pub failure: ToolFailure,
    /// How long it took.
    pub duration_ms: u64,
}

impl RecordToolFailure {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let (index, call) = expect_running_call(state, self.call_id, "RecordToolFailure")?;
        let ToolFailure { failure, maybe_done, timed_out } = &self.failure;
        let mut acting = Acting::of(state, ctx)?;
        acting.failed_with(timed_out.then_some(ErrorCode::Timeout));
        let answer = format!("error: {}: {}{}", call.name(), failure.message, effect(*maybe_done));
        if state.cancel_requested() {
            acting.answer_with_error(index, self.call_id, answer, self.duration_ms);
            return Ok(cancel_with(state, acting.into_events()));
        }
        let may_pass = failure.category == ErrorCategory::Transient && !timed_out;
        let is_harmless = call.repeatable || !maybe_done;
        if may_pass && is_harmless && call.attempts <= acting.max_retries(self.call_id) {
            let ctx = acting.ctx();
            let wait = retry::wait(call.attempts.saturating_sub(1), None, &mut ctx.entropy);
            let until = ctx.now + SignedDuration::try_from(wait).unwrap_or_default();
            acting.failed(index, self.call_id, failure.clone(), self.duration_ms, until);
            acting.wait(self.call_id, until);
        } else if !fall_back(&mut acting, index, call, failure.clone(), self.duration_ms) {
            acting.answer_with_error(index, self.call_id, answer, self.duration_ms);
        }
        Ok(acting.go_on(|index| view(state, index)))
    }
}

fn effect(maybe_done: bool) -> &'static str {
    if maybe_done { " (it may have had its effect all the same)" } else { "" }
}

/// Calls the next tool that may stand in for the one that failed, if there is one: it must take
/// these arguments, and must not need a person's approval, which was not asked for it.
pub(super) fn fall_back(
    acting: &mut Acting<'_>,
    index: usize,
    call: &TurnCall,
    failure: AttemptFailure,
    duration_ms: u64,
) -> bool {
    // A person who allowed this tool has not seen any other.
    if call.allowed {
        return false;
    }
    let (Some(first), Some(failed)) = (&call.first_tool, &call.tool) else { return false };
    let toolbox = Arc::clone(&acting.ctx().toolbox);
    let Some(first) = toolbox.find(first.server(), first.tool()) else { return false };
    let tried = first.fallback_tools.iter().position(|tool| tool == failed).map_or(0, |at| at + 1);
    let next = first.fallback_tools.iter().skip(tried).find_map(|name| {
        let tool = toolbox.find(name.server(), name.tool())?;
        let fits = tool.check_arguments(call.arguments()).is_ok();
        let is_free = !acting.needs_approval(name);
        (fits && is_free).then_some(tool)
    });
    let Some(next) = next else { return false };
    let now = acting.ctx().now;
    acting.failed(index, call.id(), failure, duration_ms, now);
    acting.call(index, call.id(), next, call.arguments.clone());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::RetryTool;
    use crate::commands::testing::{acting, answer_to, call_id, ctx, labels, with};
    use crate::decide::Effect;

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
        command.decide(state, &mut ctx()).unwrap()
    }

    #[test]
    fn what_may_pass_is_tried_again_where_that_does_no_harm() {
        use ErrorCategory::{Permanent, Transient};
        for (tool, category, maybe_done, timed_out, retried) in [
            ("files/read", Transient, true, false, true),
            ("files/write", Transient, false, false, true),
            ("files/write", Transient, true, false, false),
            ("files/write", Permanent, false, false, false),
            ("files/write", Transient, true, true, false),
        ] {
            let state = acting(&[tool]);
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
    fn retries_run_out_and_then_others_stand_in() {
        let mut state = acting(&["files/read"]);
        for _ in 0..3 {
            let decision = record(&state, ErrorCategory::Transient, true, false);
            assert_eq!(labels(&decision), ["tool_failed"]);
            state = with(state, decision.events);
            let mut later = ctx();
            let call = &state.calls().all()[0];
            let retry = RetryTool { call_id: call.id() };
            let early = retry.decide(&state, &mut ctx()).unwrap();
            assert!(matches!(early.effects.as_slice(), [Effect::WaitForTool { .. }]));
            later.now = call.retry_at.unwrap();
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
    fn a_timeout_goes_on_to_the_next_tool_at_once() {
        let decision = record(&acting(&["files/read"]), ErrorCategory::Transient, true, true);
        assert_eq!(labels(&decision), ["tool_failed", "tool_called"]);
    }
}

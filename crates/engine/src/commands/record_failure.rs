//! A call to the model brought no answer. The runtime drives it with what the driver, or the
//! call's own time limit, reported. A transient failure with retries left waits for the next try;
//! any other fails the task.

use jiff::SignedDuration;
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::{ErrorCategory, ErrorCode};

use super::{cancelled, end_execution, expect_awaiting_model, moved};
use crate::decide::{Decision, Effect, Given, Rejection};
use crate::driver::ModelFailure;
use crate::retry;
use crate::state::TaskState;

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct RecordFailure {
    /// What the driver said.
    pub failure: ModelFailure,
    /// Whether the call took longer than it may.
    pub timed_out: bool,
    /// How long it took.
    pub duration_ms: u64,
}

impl RecordFailure {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        given: &mut Given,
    ) -> Result<Decision, Rejection> {
        expect_awaiting_model(state, "RecordFailure")?;
        let ModelFailure { failure, retry_after, mark, .. } = &self.failure;
        let mut events = vec![Event::ModelFailed {
            failure: failure.clone(),
            duration_ms: self.duration_ms,
            mark: *mark,
        }];
        if state.cancel_requested() {
            events.extend(cancelled(state));
            return Ok(Decision { events, effect: None });
        }
        if let Some(execution) = state.execution()
            && execution.may_retry(failure.category)
        {
            let wait = retry::wait(execution.retry_count, *retry_after, &mut given.entropy);
            let until = given.now + SignedDuration::try_from(wait).unwrap_or_default();
            let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: Some(until) };
            events.push(moved(execution.id, change));
            return Ok(Decision { events, effect: Some(Effect::WaitUntil(until)) });
        }
        let (how, code) = if self.timed_out {
            (ExecutionChange::TimeOut, ErrorCode::Timeout)
        } else {
            let how = ExecutionChange::Fail { failure: failure.clone(), retry_at: None };
            (how, code(failure.category))
        };
        events.extend(end_execution(state, how));
        events.push(Event::TaskFailed {
            code,
            error: failure.message.clone(),
            partial_result: Some(ResultRef::LastAnswer),
        });
        Ok(Decision { events, effect: None })
    }
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
    use std::time::Duration;

    use polity_model::failure::Failure;

    use super::*;
    use crate::commands::testing::{backing_off, given, retried, running, with};

    fn failed(category: ErrorCategory, timed_out: bool) -> RecordFailure {
        let failure = Failure { category, message: "no".into() };
        let failure = ModelFailure {
            retry_after: Some(Duration::from_secs(7)),
            ..ModelFailure::new(failure)
        };
        RecordFailure { failure, timed_out, duration_ms: 1 }
    }

    #[test]
    fn a_transient_failure_waits_as_long_as_the_server_asks() {
        let decision =
            failed(ErrorCategory::Transient, false).decide(&running(), &mut given()).unwrap();
        let until = given().now + SignedDuration::from_secs(7);
        assert_eq!(decision.effect, Some(Effect::WaitUntil(until)));
        assert_eq!(with(running(), decision.events).status().to_string(), "running");
    }

    #[test]
    fn when_no_retries_are_left_the_task_fails() {
        let mut state = running();
        for _ in 0..3 {
            let decision =
                failed(ErrorCategory::Transient, false).decide(&state, &mut given()).unwrap();
            state = retried(with(state, decision.events));
        }
        let last = failed(ErrorCategory::Transient, false).decide(&state, &mut given()).unwrap();
        let task = with(state, last.events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::ModelUnavailable));
        assert_eq!(task.error.as_deref(), Some("no"));
    }

    #[test]
    fn other_failures_fail_at_once_with_a_code_of_their_own() {
        for (category, timed_out, code) in [
            (ErrorCategory::Permanent, false, ErrorCode::ModelRejected),
            (ErrorCategory::AgentError, false, ErrorCode::ModelRejected),
            (ErrorCategory::SystemError, false, ErrorCode::SystemError),
            (ErrorCategory::Permanent, true, ErrorCode::Timeout),
        ] {
            let decision = failed(category, timed_out).decide(&running(), &mut given()).unwrap();
            assert_eq!(decision.effect, None);
            let task = with(running(), decision.events).snapshot();
            assert_eq!(task.error_code, Some(code), "{category}");
        }
    }

    #[test]
    fn between_two_tries_nothing_can_fail() {
        let refused = failed(ErrorCategory::Transient, false).decide(&backing_off(), &mut given());
        assert!(matches!(refused, Err(Rejection::OutOfPlace { .. })));
    }
}

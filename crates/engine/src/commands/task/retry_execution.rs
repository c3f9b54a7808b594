//! Retries a failed execution. A timer drives it when the backoff ends; `RetryTool` does the same
//! for one tool call. A timer that fires early goes back to waiting, so that a changed clock does
//! not shorten a server's `retry_after`; a clock that was set back does not prolong it. The effect depends on the agent: a model call, a run or a
//! message.

use polity_model::event::ExecutionChange;
use polity_model::machine::agent_loop::LoopState;

use crate::decide::cli_run::cli_agent;
use crate::decide::outcomes::{call_model, cancel_task, execution_event};
use crate::decide::preconditions::unexpected_command;
use crate::decide::remote_task::remote_agent;
use crate::decide::{Decision, DecisionContext, DecisionResult, Effect};
use crate::state::TaskState;

/// The backoff is over.
#[derive(Debug, Clone, Copy)]
pub struct RetryExecution;

impl RetryExecution {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (LoopState::BackingOff, Some(backoff), Some(execution)) =
            (state.doing(), state.backoff(), state.execution())
        else {
            return Err(unexpected_command(state, "RetryExecution"));
        };
        if state.cancel_requested() {
            return Ok(cancel_task(state, Vec::new()));
        }
        if !backoff.is_over(ctx.now) {
            let wait = Effect::WaitUntil(backoff.until);
            return Ok(Decision { events: Vec::new(), effects: vec![wait] });
        }
        let of_run = cli_agent(state).map(|_| Effect::RunCliAgent);
        if let Some(effect) = of_run.or(remote_agent(state).map(|_| Effect::SendMessage)) {
            return Ok(Decision {
                events: vec![execution_event(execution.id, ExecutionChange::Retry)],
                effects: vec![effect],
            });
        }
        let again = [
            execution_event(execution.id, ExecutionChange::Retry),
            execution_event(execution.id, ExecutionChange::RUN),
        ];
        Ok(call_model(state, ctx, Vec::new(), again))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::decide::fixtures::prelude::*;

    #[test]
    fn early_retry_waits() {
        let state = backing_off();
        let until = state.retry_at().unwrap();
        let early = RetryExecution.decide(&state, &mut test_context()).unwrap();
        assert_eq!(early, Decision { events: vec![], effects: vec![Effect::WaitUntil(until)] });

        let mut later = test_context();
        later.now = until + SignedDuration::from_millis(1);
        let decision = RetryExecution.decide(&state, &mut later).unwrap();
        assert_eq!(decision.effects, [Effect::CallModel]);
        assert_eq!(decision.events.len(), 3);
    }

    #[test]
    fn retry_is_refused_without_a_failure() {
        assert_rejected!(RetryExecution.decide(&running(), &mut test_context()), UnexpectedCommand);
    }
}

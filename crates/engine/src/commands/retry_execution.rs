//! The time of the next try has come. A timer drives it. One that wakes too early is sent back to
//! wait, so that a clock that was set does not shorten what a server asked for.

use polity_model::event::ExecutionChange;
use polity_model::machine::agent_loop::LoopState;

use super::programs::program;
use super::remotes::remote;
use super::{call_model, cancel_with, moved, out_of_place};
use crate::decide::{CommandRejection, Decision, DecisionContext, Effect};
use crate::state::TaskState;

/// The wait is over.
#[derive(Debug, Clone, Copy)]
pub struct RetryExecution;

impl RetryExecution {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let (LoopState::BackingOff, Some(until), Some(execution)) =
            (state.doing(), state.retry_at(), state.execution())
        else {
            return Err(out_of_place(state, "RetryExecution"));
        };
        if state.cancel_requested() {
            return Ok(cancel_with(state, Vec::new()));
        }
        if ctx.now < until {
            return Ok(Decision { events: Vec::new(), effects: vec![Effect::WaitUntil(until)] });
        }
        let of_run = program(state).map(|_| Effect::RunCliAgent);
        if let Some(effect) = of_run.or(remote(state).map(|_| Effect::SendMessage)) {
            return Ok(Decision {
                events: vec![moved(execution.id, ExecutionChange::Retry)],
                effects: vec![effect],
            });
        }
        let again = [
            moved(execution.id, ExecutionChange::Retry),
            moved(execution.id, ExecutionChange::RUN),
        ];
        Ok(call_model(state, ctx, Vec::new(), again))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::commands::testing::{backing_off, ctx, running};

    #[test]
    fn the_next_try_waits_for_its_time() {
        let state = backing_off();
        let until = state.retry_at().unwrap();
        let early = RetryExecution.decide(&state, &mut ctx()).unwrap();
        assert_eq!(early, Decision { events: vec![], effects: vec![Effect::WaitUntil(until)] });

        let mut later = ctx();
        later.now = until + SignedDuration::from_millis(1);
        let decision = RetryExecution.decide(&state, &mut later).unwrap();
        assert_eq!(decision.effects, [Effect::CallModel]);
        assert_eq!(decision.events.len(), 3);
    }

    #[test]
    fn only_what_failed_is_tried_again() {
        let refused = RetryExecution.decide(&running(), &mut ctx());
        assert!(matches!(refused, Err(CommandRejection::OutOfPlace { .. })));
    }
}

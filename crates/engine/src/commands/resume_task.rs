//! Goes on with a task whose former owner is gone. The new owner drives it right after its claim.
//! What was in flight is decided here: a model call has no effect outside, so it is made again; a
//! wait for the next try goes on; a cancel that was asked for is carried out.

use polity_model::event::Event;
use polity_model::machine::task::TaskStatus;

use super::{StartTask, cancelled};
use crate::decide::{Decision, Effect, Given, Rejection};
use crate::state::{Phase, TaskState};

/// The former owner is gone.
#[derive(Debug, Clone, Copy)]
pub struct ResumeTask;

impl ResumeTask {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        given: &mut Given,
    ) -> Result<Decision, Rejection> {
        let task = state.id();
        match state.status() {
            TaskStatus::Pending => StartTask.decide(state, given),
            TaskStatus::AwaitingHuman => Err(Rejection::AwaitingHuman { task }),
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                Err(Rejection::Finished { task, status })
            }
            TaskStatus::Running if state.cancel_requested() => {
                Ok(Decision { events: cancelled(state), effect: None })
            }
            TaskStatus::Running => Ok(match state.phase() {
                Phase::AwaitingModel | Phase::Still => Decision {
                    events: vec![
                        Event::TaskResumed,
                        Event::ModelCalled { iteration: state.iterations() + 1 },
                    ],
                    effect: Some(Effect::CallModel),
                },
                Phase::BackingOff { until } => Decision {
                    events: vec![Event::TaskResumed],
                    effect: Some(Effect::WaitUntil(until)),
                },
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{self, backing_off, given, pending, running};

    fn resume(state: &TaskState) -> Result<(Vec<&'static str>, Option<Effect>), Rejection> {
        let decision = ResumeTask.decide(state, &mut given())?;
        Ok((decision.events.iter().map(Event::label).collect(), decision.effect))
    }

    #[test]
    fn a_call_in_flight_is_made_again() {
        let expected = (vec!["task_resumed", "model_called"], Some(Effect::CallModel));
        assert_eq!(resume(&running()), Ok(expected));
    }

    #[test]
    fn a_wait_goes_on_until_its_own_time() {
        let state = backing_off();
        let Phase::BackingOff { until } = state.phase() else { panic!("{:?}", state.phase()) };
        assert_eq!(resume(&state), Ok((vec!["task_resumed"], Some(Effect::WaitUntil(until)))));
    }

    #[test]
    fn a_task_that_had_not_begun_begins() {
        assert_eq!(resume(&pending()).unwrap().0[0], "task_started");
    }

    #[test]
    fn a_cancel_that_was_asked_for_is_carried_out() {
        let state = testing::with(running(), vec![Event::CancelRequested]);
        let (labels, effect) = resume(&state).unwrap();
        assert_eq!(labels.last(), Some(&"task_cancelled"));
        assert_eq!(effect, None);
    }

    #[test]
    fn what_is_over_is_not_resumed() {
        assert!(matches!(resume(&testing::cancelled()), Err(Rejection::Finished { .. })));
    }
}

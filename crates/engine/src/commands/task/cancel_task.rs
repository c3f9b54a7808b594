//! Ends a task because someone asks for it. A person drives it, from the process that owns the task
//! or from another. A living owner must stop its own work first, so another process only leaves a
//! request, which the owner notices and carries out; where no one is at work, the task ends here.

use polity_model::event::Event;
use polity_model::machine::task::TaskStatus;

use crate::decide::outcomes::cancel_task;
use crate::decide::{CommandRejection, Decision};
use crate::state::TaskState;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOrigin {
    /// The process that owns the task. It has stopped its work.
    Owner,
    /// Another process.
    Other {
        /// Whether the owner is alive.
        owner_alive: bool,
    },
}

/// Someone asks for the end.
#[derive(Debug, Clone, Copy)]
pub struct CancelTask {
    /// Who.
    pub by: CancelOrigin,
}

impl CancelTask {
    pub(crate) fn decide(self, state: &TaskState) -> Result<Decision, CommandRejection> {
        let events = match (state.status(), self.by) {
            (status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled), _) => {
                return Err(CommandRejection::Finished { task: state.id(), status });
            }
            // No one is at work on these, whoever owns them.
            (TaskStatus::Pending | TaskStatus::AwaitingHuman, _)
            | (
                TaskStatus::Running,
                CancelOrigin::Owner | CancelOrigin::Other { owner_alive: false },
            ) => {
                return Ok(cancel_task(state, Vec::new()));
            }
            // Asking twice is asking once.
            (TaskStatus::Running, CancelOrigin::Other { owner_alive: true })
                if state.cancel_requested() =>
            {
                Vec::new()
            }
            (TaskStatus::Running, CancelOrigin::Other { owner_alive: true }) => {
                vec![Event::CancelRequested]
            }
        };
        Ok(Decision { events, effects: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::{self, backing_off, pending, running, with};

    const OWNER: CancelOrigin = CancelOrigin::Owner;
    const ALIVE: CancelOrigin = CancelOrigin::Other { owner_alive: true };
    const DEAD: CancelOrigin = CancelOrigin::Other { owner_alive: false };

    fn cancel(state: &TaskState, by: CancelOrigin) -> Result<Vec<Event>, CommandRejection> {
        CancelTask { by }.decide(state).map(|decision| decision.events)
    }

    #[test]
    fn a_living_owner_is_asked() {
        assert_eq!(cancel(&running(), ALIVE), Ok(vec![Event::CancelRequested]));
        let asked = with(running(), vec![Event::CancelRequested]);
        assert_eq!(cancel(&asked, ALIVE), Ok(vec![]));
    }

    #[test]
    fn where_no_one_is_at_work_the_task_ends_at_once() {
        for by in [OWNER, ALIVE, DEAD] {
            assert_eq!(cancel(&pending(), by), Ok(vec![Event::TaskCancelled]));
        }
        for by in [OWNER, DEAD] {
            for state in [running(), backing_off()] {
                let events = cancel(&state, by).unwrap();
                assert_eq!(with(state, events).status(), TaskStatus::Cancelled);
            }
        }
    }

    #[test]
    fn what_is_over_cannot_be_cancelled() {
        for by in [OWNER, ALIVE, DEAD] {
            let refused = cancel(&fixtures::cancelled(), by);
            assert!(matches!(refused, Err(CommandRejection::Finished { .. })));
        }
    }
}

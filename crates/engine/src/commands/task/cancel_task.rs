//! Cancels a task. A person drives it, from the owning process or from another. A live owner must
//! stop its own work first, so another process only records a request that the owner carries out. A
//! task without a live worker ends at once. `ReleaseTask` gives a task up without ending it.

use polity_model::event::Event;
use polity_model::machine::task::TaskStatus;

use crate::decide::outcomes::cancel_task;
use crate::decide::{CommandRejection, Decision, DecisionResult};
use crate::state::TaskState;

/// The process that cancels the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOrigin {
    /// The owner, which has stopped its work.
    Owner,
    /// Another process.
    Other {
        /// True if the owner is alive.
        owner_alive: bool,
    },
}

/// A request to cancel the task.
#[derive(Debug, Clone, Copy)]
pub struct CancelTask {
    /// The requesting process.
    pub by: CancelOrigin,
}

impl CancelTask {
    pub(crate) fn decide(self, state: &TaskState) -> DecisionResult {
        let events = match (state.status(), self.by) {
            (status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled), _) => {
                return Err(CommandRejection::Finished { task: state.id(), status });
            }
            // These tasks have no worker.
            (TaskStatus::Pending | TaskStatus::AwaitingHuman, _)
            | (
                TaskStatus::Running,
                CancelOrigin::Owner | CancelOrigin::Other { owner_alive: false },
            ) => {
                return Ok(cancel_task(state, Vec::new()));
            }
            // A second request changes nothing.
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
    use crate::decide::fixtures::prelude::*;

    const OWNER: CancelOrigin = CancelOrigin::Owner;
    const ALIVE: CancelOrigin = CancelOrigin::Other { owner_alive: true };
    const DEAD: CancelOrigin = CancelOrigin::Other { owner_alive: false };

    fn cancel(state: &TaskState, by: CancelOrigin) -> Result<Vec<Event>, CommandRejection> {
        CancelTask { by }.decide(state).map(|decision| decision.events)
    }

    #[test]
    fn live_owner_gets_a_request() {
        assert_eq!(cancel(&running(), ALIVE), Ok(vec![Event::CancelRequested]));
        let asked = with(running(), vec![Event::CancelRequested]);
        assert_eq!(cancel(&asked, ALIVE), Ok(vec![]));
    }

    #[test]
    fn task_without_live_worker_ends_at_once() {
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
    fn finished_task_is_refused() {
        for by in [OWNER, ALIVE, DEAD] {
            assert_rejected!(cancel(&cancelled(), by), Finished);
        }
    }
}

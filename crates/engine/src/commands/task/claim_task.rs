//! Takes ownership of an orphaned task. `task resume` and the server's recovery drive it. The
//! caller checks whether the owner is alive, because the core reads no leases. If two processes
//! claim at once, the second fails on the sequence; the former owner fails on its epoch.
//! `ResumeTask` follows.

use polity_model::event::Event;
use polity_model::ids::InstanceId;
use polity_model::machine::task::TaskStatus;

use crate::decide::{CommandRejection, Decision, DecisionResult};
use crate::state::TaskState;

/// A claim by a process.
#[derive(Debug, Clone, Copy)]
pub struct ClaimTask {
    /// The claiming process.
    pub instance: InstanceId,
    /// True if the current owner is alive.
    pub owner_alive: bool,
}

impl ClaimTask {
    pub(crate) fn decide(self, state: &TaskState) -> DecisionResult {
        let task = state.id();
        match state.status() {
            TaskStatus::Pending | TaskStatus::Running => {}
            // A person may have answered one of its sub-agents.
            TaskStatus::AwaitingHuman if state.is_paused() => {}
            // Only an answer gives a new owner anything to do.
            TaskStatus::AwaitingHuman => return Err(CommandRejection::AwaitingHuman { task }),
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                return Err(CommandRejection::Finished { task, status });
            }
        }
        match state.owner() {
            Some(owner) if owner == self.instance => return Ok(Decision::default()),
            Some(owner) if self.owner_alive => {
                return Err(CommandRejection::OwnerAlive { task, owner });
            }
            Some(_) | None => {}
        }
        let claimed = Event::TaskClaimed { instance: self.instance, epoch: state.epoch().next() };
        Ok(Decision { events: vec![claimed], effects: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use polity_model::event::OwnerEpoch;

    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn claim(state: &TaskState, by: u8, owner_alive: bool) -> DecisionResult {
        ClaimTask { instance: instance(by), owner_alive }.decide(state)
    }

    #[test]
    fn orphan_is_claimed_in_the_next_epoch() {
        for state in [pending(), running()] {
            let events = claim(&state, 2, false).unwrap().events;
            assert_eq!(
                events,
                [Event::TaskClaimed { instance: instance(2), epoch: OwnerEpoch(2) }]
            );
        }
    }

    #[test]
    fn live_owner_keeps_its_task() {
        let task = running().id();
        let refused = claim(&running(), 2, true);
        assert_eq!(refused, Err(CommandRejection::OwnerAlive { task, owner: instance(1) }));
    }

    #[test]
    fn own_and_finished_tasks_are_not_claimed() {
        assert_eq!(claim(&running(), 1, true), Ok(Decision::default()));
        assert_rejected!(claim(&cancelled(), 2, false), Finished);
        let waiting = turn_with_calls(&["files/delete"]);
        assert_rejected!(claim(&waiting, 2, false), AwaitingHuman);
    }
}

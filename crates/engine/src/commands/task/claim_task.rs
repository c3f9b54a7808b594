//! Makes an orphan one's own. `task resume` and the server's recovery drive it. Whether the owner
//! is alive is a fact of the world, so whoever asks has looked and says so. A second claimer on the
//! same point loses by the sequence, and the former owner by its epoch.

use polity_model::event::Event;
use polity_model::ids::InstanceId;
use polity_model::machine::task::TaskStatus;

use crate::decide::{CommandRejection, Decision};
use crate::state::TaskState;

/// Who wants the task.
#[derive(Debug, Clone, Copy)]
pub struct ClaimTask {
    /// The process that wants it.
    pub instance: InstanceId,
    /// Whether the process that has it is alive.
    pub owner_alive: bool,
}

impl ClaimTask {
    pub(crate) fn decide(self, state: &TaskState) -> Result<Decision, CommandRejection> {
        let task = state.id();
        match state.status() {
            TaskStatus::Pending | TaskStatus::Running => {}
            // A person may have answered its sub-agents.
            TaskStatus::AwaitingHuman if state.is_paused() => {}
            // Only its answer gives anyone something to do.
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
    use crate::decide::fixtures::{cancelled, instance, pending, running, turn_with_calls};

    fn claim(state: &TaskState, by: u8, owner_alive: bool) -> Result<Decision, CommandRejection> {
        ClaimTask { instance: instance(by), owner_alive }.decide(state)
    }

    #[test]
    fn an_orphan_is_taken_in_the_next_epoch() {
        for state in [pending(), running()] {
            let events = claim(&state, 2, false).unwrap().events;
            assert_eq!(
                events,
                [Event::TaskClaimed { instance: instance(2), epoch: OwnerEpoch(2) }]
            );
        }
    }

    #[test]
    fn nothing_is_taken_from_the_living() {
        let task = running().id();
        let refused = claim(&running(), 2, true);
        assert_eq!(refused, Err(CommandRejection::OwnerAlive { task, owner: instance(1) }));
    }

    #[test]
    fn what_is_mine_needs_no_claim_and_what_is_over_takes_none() {
        assert_eq!(claim(&running(), 1, true), Ok(Decision::default()));
        assert!(matches!(claim(&cancelled(), 2, false), Err(CommandRejection::Finished { .. })));
        let waiting = turn_with_calls(&["files/delete"]);
        assert!(matches!(claim(&waiting, 2, false), Err(CommandRejection::AwaitingHuman { .. })));
    }
}

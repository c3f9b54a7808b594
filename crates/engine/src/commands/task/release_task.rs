//! Gives up ownership of a task after an internal error or a store failure. The runtime drives it
//! for a worker that cannot continue. Another process can then resume or cancel the task while this
//! one lives on. Unlike `CancelTask` it leaves the task's status unchanged.

use polity_model::event::Event;
use polity_model::ids::InstanceId;

use crate::decide::{CommandRejection, Decision, DecisionResult};
use crate::state::TaskState;

/// The owner gives the task up.
#[derive(Debug, Clone, Copy)]
pub struct ReleaseTask {
    /// The releasing process.
    pub instance: InstanceId,
}

impl ReleaseTask {
    pub(crate) fn decide(self, state: &TaskState) -> DecisionResult {
        if state.status().is_final() {
            return Err(CommandRejection::Finished { task: state.id(), status: state.status() });
        }
        let is_mine = state.owner() == Some(self.instance);
        let events = if is_mine { vec![Event::TaskReleased] } else { Vec::new() };
        Ok(Decision { events, effects: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    #[test]
    fn only_the_owner_releases() {
        for state in [pending(), running()] {
            let decision = ReleaseTask { instance: instance(1) }.decide(&state).unwrap();
            let released = with(state.clone(), decision.events);
            assert_eq!((released.owner(), released.epoch()), (None, state.epoch()));
            assert_eq!(released.status(), state.status());
            let again = ReleaseTask { instance: instance(1) }.decide(&released);
            assert_eq!(again, Ok(Decision::default()));
            let others = ReleaseTask { instance: instance(2) }.decide(&state);
            assert_eq!(others, Ok(Decision::default()));
        }
        assert_rejected!(ReleaseTask { instance: instance(1) }.decide(&cancelled()), Finished);
    }
}

//! Allows an imported task to run. A person drives it, after the front end has shown the commands,
//! endpoints and variables of the task's pinned definitions. `decide` refuses every command that
//! would continue the task before that. An ended task is trusted for its forks.

use polity_model::event::Event;

use crate::decide::Decision;
use crate::state::TaskState;

/// A person's trust in an imported task.
#[derive(Debug, Clone)]
pub struct TrustTask {
    /// The person.
    pub by: String,
}

impl TrustTask {
    pub(crate) fn decide(&self, state: &TaskState) -> Decision {
        let trusted = Event::TaskTrusted { by: self.by.clone() };
        let events = if state.needs_trust() { vec![trusted] } else { Vec::new() };
        Decision { events, effects: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use polity_model::review::ReviewVerdict;

    use super::*;
    use crate::commands::{
        CancelOrigin, CancelTask, ClaimTask, ExpireReview, ResumeTask, StartTask,
    };
    use crate::decide::fixtures::prelude::*;
    use crate::decide::{Command, CommandRejection, decide};

    fn trust() -> Command {
        Command::TrustTask(TrustTask { by: "ada".to_owned() })
    }

    fn imported(state: TaskState) -> TaskState {
        with(state, vec![Event::TaskImported])
    }

    #[test]
    fn imported_task_takes_no_command_that_continues_it() {
        let waiting = turn_with_calls(&["files/delete"]);
        let answer = answer_review(&waiting, ReviewVerdict::Approve, None);
        let claim = ClaimTask { instance: instance(2), owner_alive: false };
        for (state, command) in [
            (pending(), Command::ClaimTask(claim)),
            (running(), Command::ClaimTask(claim)),
            (pending(), Command::StartTask(StartTask)),
            (running(), Command::ResumeTask(ResumeTask)),
            (waiting.clone(), Command::AnswerReview(answer)),
            (waiting, Command::ExpireReview(ExpireReview)),
        ] {
            let state = imported(state);
            let refused = decide(&state, &command, &mut test_context());
            let expected = CommandRejection::NeedsTrust { task: state.id() };
            assert_eq!(refused, Err(expected), "{command:?}");
        }
    }

    #[test]
    fn trusted_task_is_claimed_until_it_is_imported_again() {
        let claim = Command::ClaimTask(ClaimTask { instance: instance(2), owner_alive: false });
        let state = imported(running());
        let events = decide(&state, &trust(), &mut test_context()).unwrap().events;
        assert_eq!(events, [Event::TaskTrusted { by: "ada".to_owned() }]);
        let state = with(state, events);
        assert_eq!(decide(&state, &trust(), &mut test_context()), Ok(Decision::default()));
        assert!(decide(&state, &claim, &mut test_context()).is_ok());
        assert_rejected!(decide(&imported(state), &claim, &mut test_context()), NeedsTrust);
    }

    #[test]
    fn imported_task_can_be_cancelled_and_an_ended_one_trusted() {
        let cancel = CancelTask { by: CancelOrigin::Other { owner_alive: false } };
        let cancel = Command::CancelTask(cancel);
        assert!(decide(&imported(running()), &cancel, &mut test_context()).is_ok());
        let ended = imported(cancelled());
        let events = decide(&ended, &trust(), &mut test_context()).unwrap().events;
        assert!(!with(ended, events).needs_trust());
    }
}

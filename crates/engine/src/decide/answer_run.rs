//! A person decides about a program that was running when its process ended, or about a message to
//! another server that may have been taken or not: it is run or sent again, or the task goes on with
//! a result that the person gives, or ends.

use polity_model::event::{Event, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::message::Message;
use polity_model::review::ReviewVerdict;

use crate::commands::AnswerReview;
use crate::decide::{CommandRejection, Decision, DecisionContext};
use crate::state::TaskState;

pub(crate) const ASKS_ABOUT_RUN: &str = "asks what became of work in doubt";

pub(crate) fn answer_run(
    answer: &AnswerReview,
    state: &TaskState,
    ctx: &DecisionContext,
) -> Result<Decision, CommandRejection> {
    let task = state.id();
    let AnswerReview { verdict, message, by, state_updates, .. } = answer;
    if !state_updates.is_empty() {
        return Err(CommandRejection::NoStateThere { task, asks: ASKS_ABOUT_RUN });
    }
    let mut events = vec![Event::ReviewAnswered {
        verdict: verdict.clone(),
        message: message.clone(),
        by: by.clone(),
        state_updates: state_updates.clone(),
    }];
    match verdict {
        // Whoever resumes the task gets it in line again.
        ReviewVerdict::Retry => {}
        ReviewVerdict::SkipWith { result } => {
            let (content, timestamp) = (result.clone(), ctx.now);
            let message = Message::Assistant { content, tool_calls: Vec::new(), timestamp };
            events.push(Event::MessageAdded { message });
            events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
        }
        ReviewVerdict::Reject => {
            let said = message.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
            let agent = &state.task().order().assigned_agent;
            let error = format!("{agent} is in doubt, and {by} ended the task{said}");
            let (code, partial_result) = (ErrorCode::Rejected, None);
            events.push(Event::TaskFailed { code, error, partial_result });
        }
        ReviewVerdict::Approve => return Err(CommandRejection::DoubtNeedsChoice { task }),
        ReviewVerdict::Modify { .. } => {
            let verdict = "other arguments";
            return Err(CommandRejection::WrongVerdict { task, asks: ASKS_ABOUT_RUN, verdict });
        }
    }
    Ok(Decision { events, effects: Vec::new() })
}

#[cfg(test)]
mod tests {
    use polity_model::state::StateUpdates;

    use super::*;
    use crate::commands::{RecordRecoveredRun, ResumeTask};
    use crate::decide::Effect;
    use crate::decide::fixtures::{labels, program_in_doubt, test_context, with};
    use crate::entropy::Entropy;

    fn answer(verdict: ReviewVerdict) -> Result<Decision, CommandRejection> {
        let state = program_in_doubt();
        let checkpoint_id = state.review().unwrap().checkpoint_id;
        let (message, state_updates) = (Some("enough".to_owned()), StateUpdates::default());
        AnswerReview { checkpoint_id, verdict, message, by: "ada".into(), state_updates }
            .decide(&state, &mut test_context())
    }

    #[test]
    fn it_is_run_again_when_the_task_goes_on() {
        let state = with(program_in_doubt(), answer(ReviewVerdict::Retry).unwrap().events);
        let mut later = test_context();
        later.entropy = Entropy::from_seed([6; 16]);
        let decision = ResumeTask.decide(&state, &mut later).unwrap();
        assert_eq!(labels(&decision), ["task_resumed", "execution_changed"]);
        assert_eq!(decision.effects, [Effect::WaitForSlot]);
        let again = with(state.clone(), decision.events);
        assert_ne!(again.execution().unwrap().id, state.execution().unwrap().id);
        // A run that is only in line is not looked for.
        let refused = RecordRecoveredRun { outcome: None }.decide(&again, &mut test_context());
        assert!(matches!(refused, Err(CommandRejection::UnexpectedCommand { .. })), "{refused:?}");
    }

    #[test]
    fn a_result_that_a_person_gives_is_that_of_the_task() {
        let events = answer(ReviewVerdict::SkipWith { result: "done".into() }).unwrap().events;
        let task = with(program_in_doubt(), events).snapshot();
        assert_eq!(task.result.as_deref(), Some("done"));
    }

    #[test]
    fn a_person_may_end_the_task() {
        let task =
            with(program_in_doubt(), answer(ReviewVerdict::Reject).unwrap().events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::Rejected));
        assert_eq!(task.error.unwrap(), "coder is in doubt, and ada ended the task: enough");
    }

    #[test]
    fn a_mere_yes_does_not_say_enough() {
        assert!(matches!(
            answer(ReviewVerdict::Approve),
            Err(CommandRejection::DoubtNeedsChoice { .. })
        ));
        let other = ReviewVerdict::Modify { arguments: serde_json::Map::new() };
        assert!(matches!(answer(other), Err(CommandRejection::WrongVerdict { .. })));
    }
}

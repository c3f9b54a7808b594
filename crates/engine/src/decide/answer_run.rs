//! Answers the review of work in doubt: a run whose process ended, or a message that may have been
//! accepted.
//!
//! The person retries the work, supplies a result, or ends the task.

use polity_model::event::{Event, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::review::ReviewVerdict;

use crate::commands::AnswerReview;
use crate::decide::outcomes::add_answer;
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;

pub(crate) const ASKS_ABOUT_RUN: &str = "asks what became of work in doubt";

pub(crate) fn answer_run(
    answer: &AnswerReview,
    state: &TaskState,
    ctx: &DecisionContext,
) -> DecisionResult {
    let task = state.id();
    if !answer.state_updates.is_empty() {
        return Err(CommandRejection::NoStateThere { task, asks: ASKS_ABOUT_RUN });
    }
    let mut events = vec![answer.event()];
    match &answer.verdict {
        // The owner that resumes the task queues the run again.
        ReviewVerdict::Retry => {}
        ReviewVerdict::SkipWith { result } => {
            events.push(add_answer(result, ctx.now));
            events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
        }
        ReviewVerdict::Reject => {
            let agent = &state.task().order().assigned_agent;
            let error = format!("{agent} is in doubt, and {} ended the task", answer.by);
            let error = answer.explain(error);
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
    use super::*;
    use crate::decide::fixtures::prelude::*;
    use crate::decide::fixtures::run_in_doubt;
    use crate::entropy::Entropy;

    fn answer(verdict: ReviewVerdict) -> DecisionResult {
        let state = run_in_doubt();
        let answer = answer_review(&state, verdict, Some("enough"));
        answer.decide(&state, &mut test_context())
    }

    #[test]
    fn retry_runs_again_on_resume() {
        let state = with(run_in_doubt(), answer(ReviewVerdict::Retry).unwrap().events);
        let mut later = test_context();
        later.entropy = Entropy::from_seed([6; 16]);
        let decision = ResumeTask.decide(&state, &mut later).unwrap();
        assert_eq!(labels(&decision), ["task_resumed", "execution_changed"]);
        assert_eq!(decision.effects, [Effect::WaitForSlot]);
        let again = with(state.clone(), decision.events);
        assert_ne!(again.execution().unwrap().id, state.execution().unwrap().id);
        // A queued run cannot be recovered.
        assert_rejected!(
            RecordRecoveredRun { outcome: None }.decide(&again, &mut test_context()),
            UnexpectedCommand
        );
    }

    #[test]
    fn skip_with_sets_the_result() {
        let events = answer(ReviewVerdict::SkipWith { result: "done".into() }).unwrap().events;
        let task = with(run_in_doubt(), events).snapshot();
        assert_eq!(task.result.as_deref(), Some("done"));
    }

    #[test]
    fn reject_fails_the_task() {
        let task = with(run_in_doubt(), answer(ReviewVerdict::Reject).unwrap().events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::Rejected));
        insta::assert_snapshot!(
            task.error.unwrap(),
            @"coder is in doubt, and ada ended the task: enough"
        );
    }

    #[test]
    fn approve_is_refused_for_a_doubt() {
        assert_rejected!(answer(ReviewVerdict::Approve), DoubtNeedsChoice);
        let other = ReviewVerdict::Modify { arguments: serde_json::Map::new() };
        assert_rejected!(answer(other), WrongVerdict);
    }
}

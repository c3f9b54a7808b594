//! Answers the open review of a task. A person drives it, from any process. It succeeds once: a
//! second answer finds no open review. It commits only the answer and its direct consequences; the
//! owner that resumes the task performs the effects. `ExpireReview` answers in a person's place
//! after the deadline.

use polity_model::event::{Event, ExecutionChange, ResultRef, UnsettledCall};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::CheckpointId;
use polity_model::review::{ReviewSubject, ReviewVerdict};
use polity_model::state::StateUpdates;

use crate::decide::answer_node::answer_node;
use crate::decide::answer_question::{ASKS_QUESTION, answer_question};
use crate::decide::answer_run::{ASKS_ABOUT_RUN, answer_run};
use crate::decide::call_batch::CallBatch;
use crate::decide::continuation::continue_task;
use crate::decide::outcomes::{answer_open_calls, end_execution};
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;
use crate::workflow::{WorkflowDecision, check_result};

/// A person's answer.
#[derive(Debug, Clone)]
pub struct AnswerReview {
    /// The checkpoint of the review that the person saw. If another review is open by now, the
    /// answer is refused.
    pub checkpoint_id: CheckpointId,
    /// The verdict.
    pub verdict: ReviewVerdict,
    /// The person's message.
    pub message: Option<String>,
    /// The person's name.
    pub by: String,
    /// Updates of the State, for a workflow's question.
    pub state_updates: StateUpdates,
}

impl AnswerReview {
    /// The event that records the answer.
    pub(crate) fn event(&self) -> Event {
        Event::ReviewAnswered {
            verdict: self.verdict.clone(),
            message: self.message.clone(),
            by: self.by.clone(),
            state_updates: self.state_updates.clone(),
        }
    }

    /// Appends the person's message, if there is one, to a sentence about the verdict.
    pub(crate) fn explain(&self, sentence: String) -> String {
        match &self.message {
            Some(message) => format!("{sentence}: {message}"),
            None => sentence,
        }
    }

    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let task = state.id();
        let Some(review) = state.review() else {
            return Err(CommandRejection::NothingToDecide { task, status: state.status() });
        };
        match review.deadline {
            Some(deadline) if ctx.now >= deadline => {
                Err(CommandRejection::TooLate { task, deadline })
            }
            Some(_) | None => self.decide_at_any_time(state, ctx),
        }
    }

    /// Decides without checking the deadline.
    pub(crate) fn decide_at_any_time(
        &self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> DecisionResult {
        let task = state.id();
        let nothing = || CommandRejection::NothingToDecide { task, status: state.status() };
        let review = state.review().ok_or_else(nothing)?;
        if review.checkpoint_id != self.checkpoint_id {
            return Err(CommandRejection::AnotherQuestion {
                task,
                question: review.question.clone(),
            });
        }
        if let ReviewSubject::RunDoubt { .. } = review.subject {
            return answer_run(self, state, ctx);
        }
        if let ReviewSubject::RemoteQuestion { .. } = review.subject {
            return answer_question(self, state, ctx);
        }
        let Some(call_id) = review.subject.call_id() else {
            let run = state.workflow_run().ok_or_else(nothing)?;
            return answer_node(self, state, run, &review.subject, ctx);
        };
        if !self.state_updates.is_empty() {
            let asks = asks(&review.subject);
            return Err(CommandRejection::NoStateThere { task, asks });
        }
        let Some((index, call)) = state.calls().index(call_id).zip(state.calls().get(call_id))
        else {
            return Err(CommandRejection::NothingToDecide { task, status: state.status() });
        };
        let tool = call
            .tool
            .as_ref()
            .and_then(|tool| ctx.toolbox.find(tool.server(), tool.tool()))
            .cloned();
        let mut batch = CallBatch::of_state(state, ctx)?;
        batch.push(self.event());
        match (&review.subject, &self.verdict) {
            (ReviewSubject::Approval { .. }, ReviewVerdict::Approve)
            | (ReviewSubject::Doubt { .. }, ReviewVerdict::Retry) => {}
            (ReviewSubject::Approval { .. }, ReviewVerdict::Modify { arguments }) => {
                if let Some(Err(problem)) = tool.map(|tool| tool.check_arguments(arguments)) {
                    return Err(CommandRejection::Misfit { tool: call.name(), problem });
                }
            }
            (ReviewSubject::Approval { .. }, ReviewVerdict::Reject) => {
                let content = format!("a person rejected the call of {}", call.name());
                let content = self.explain(content);
                batch.answer_with_error(index, call_id, content, 0);
            }
            (ReviewSubject::Doubt { .. }, ReviewVerdict::SkipWith { result }) => {
                if let Some(run) = state.workflow_run() {
                    check_result(run, call_id, result)?;
                }
                batch.answer(index, call_id, result.clone(), None, 0);
            }
            (ReviewSubject::Doubt { .. }, ReviewVerdict::Reject) => {
                let error = format!("{} is in doubt, and {} ended the task", call.name(), self.by);
                let error = self.explain(error);
                if let Some((run, node)) =
                    state.workflow_run().and_then(|run| Some((run, run.node_of(call_id)?)))
                {
                    let doubt = UnsettledCall::MaybeDone;
                    batch.answer_unsettled(index, call_id, error.clone(), 0, doubt);
                    let mut workflow = WorkflowDecision::new(batch, run);
                    workflow.fail_node(node, ErrorCode::Rejected, &error);
                    return Ok(workflow.conclude());
                }
                return Ok(rejected(state, batch.into_events(), error));
            }
            (ReviewSubject::Doubt { .. }, ReviewVerdict::Approve) => {
                return Err(CommandRejection::DoubtNeedsChoice { task });
            }
            (subject @ ReviewSubject::Doubt { .. }, ReviewVerdict::Modify { .. }) => {
                let (asks, verdict) = (asks(subject), "other arguments");
                return Err(CommandRejection::WrongVerdict { task, asks, verdict });
            }
            (
                subject @ ReviewSubject::Approval { .. },
                ReviewVerdict::Retry | ReviewVerdict::SkipWith { .. },
            ) => {
                let (asks, verdict) = (asks(subject), "--retry or --skip-with");
                return Err(CommandRejection::WrongVerdict { task, asks, verdict });
            }
            (
                ReviewSubject::RunDoubt { .. }
                | ReviewSubject::RemoteQuestion { .. }
                | ReviewSubject::Node { .. }
                | ReviewSubject::Checkpoint { .. },
                _,
            ) => return Err(nothing()),
        }
        // The answer to its call finishes the node.
        if let (Some(_), ReviewVerdict::SkipWith { .. }) = (state.workflow_run(), &self.verdict) {
            return Ok(continue_task(batch));
        }
        Ok(Decision { events: batch.into_events(), effects: Vec::new() })
    }
}

fn asks(subject: &ReviewSubject) -> &'static str {
    match subject {
        ReviewSubject::Approval { .. } => "asks whether a tool may be called",
        ReviewSubject::Doubt { .. } => "asks what became of a call in doubt",
        ReviewSubject::RunDoubt { .. } => ASKS_ABOUT_RUN,
        ReviewSubject::RemoteQuestion { .. } => ASKS_QUESTION,
        ReviewSubject::Node { .. } | ReviewSubject::Checkpoint { .. } => {
            "waits for a decision about a node of its workflow"
        }
    }
}

/// Fails the task with the person's message.
fn rejected(state: &TaskState, mut events: Vec<Event>, error: String) -> Decision {
    answer_open_calls(state, "the task ended", &mut events);
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message: error.clone() };
    events.extend(end_execution(state, ExecutionChange::Fail { failure, retry_at: None }));
    let (code, partial_result) = (ErrorCode::Rejected, Some(ResultRef::LastAnswer));
    events.push(Event::TaskFailed { code, error, partial_result });
    Decision { events, effects: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn answer(state: &TaskState, verdict: ReviewVerdict) -> DecisionResult {
        let answer = answer_review(state, verdict, Some("not today"));
        answer.decide(state, &mut test_context())
    }

    fn asked() -> TaskState {
        turn_with_calls(&["files/delete"])
    }

    fn in_doubt() -> TaskState {
        let state = turn_with_calls(&["files/write"]);
        step(state, |state, ctx| ResumeTask.decide(state, ctx))
    }

    fn resumed(state: TaskState) -> (TaskState, Vec<Effect>) {
        let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
        (with(state, decision.events), decision.effects)
    }

    #[test]
    fn approved_call_starts_on_resume() {
        let state = with(asked(), answer(&asked(), ReviewVerdict::Approve).unwrap().events);
        assert_eq!((state.status().to_string().as_str(), state.owner()), ("running", None));
        let (state, effects) = resumed(state);
        assert!(matches!(effects.as_slice(), [Effect::CallTool { .. }]), "{effects:?}");
        assert_eq!(state.calls().all()[0].name(), "files/delete");
    }

    #[test]
    fn modified_arguments_are_validated_and_used() {
        let arguments = |value: serde_json::Value| ReviewVerdict::Modify {
            arguments: value.as_object().unwrap().clone(),
        };
        assert_rejected!(answer(&asked(), arguments(json!({"path": 7}))), Misfit);
        let events = answer(&asked(), arguments(json!({"path": "other"}))).unwrap().events;
        let (state, _) = resumed(with(asked(), events));
        assert_eq!(state.calls().all()[0].arguments()["path"], "other");
    }

    #[test]
    fn rejection_is_answered_to_the_model() {
        let state = asked();
        let decision = answer(&state, ReviewVerdict::Reject).unwrap();
        let content = answer_to(&decision, call_id(&state, 0)).unwrap();
        assert_eq!(content, "a person rejected the call of files/delete: not today");
        let (state, effects) = resumed(with(state, decision.events));
        assert_eq!(effects, [Effect::CallModel]);
        assert_eq!(state.messages().len(), 3);
    }

    #[test]
    fn doubt_is_settled_by_retry_skip_or_reject() {
        let state = in_doubt();
        assert!(state.review().unwrap().question.contains("it is unknown"));
        let events = answer(&state, ReviewVerdict::Retry).unwrap().events;
        let (_, effects) = resumed(with(state.clone(), events));
        assert!(matches!(effects.as_slice(), [Effect::CallTool { .. }]), "{effects:?}");

        let events =
            answer(&state, ReviewVerdict::SkipWith { result: "done".into() }).unwrap().events;
        let (skipped, effects) = resumed(with(state.clone(), events));
        assert_eq!(effects, [Effect::CallModel]);
        assert_eq!(skipped.messages().last().unwrap().content(), "done");

        let rejected = answer(&state, ReviewVerdict::Reject).unwrap();
        assert_eq!(rejected.events.last().unwrap().label(), "task_failed");
        let task = with(state.clone(), rejected.events).snapshot();
        assert_eq!(task.error_code, Some(ErrorCode::Rejected));
        assert!(task.error.unwrap().ends_with("ada ended the task: not today"));
        assert_eq!(
            answer(&state, ReviewVerdict::Approve),
            Err(CommandRejection::DoubtNeedsChoice { task: state.id() })
        );
    }

    #[test]
    fn answer_to_an_earlier_review_is_refused() {
        let state = turn_with_calls(&["files/delete", "files/delete"]);
        let late = answer_review(&state, ReviewVerdict::Approve, None);
        let events = answer(&state, ReviewVerdict::Reject).unwrap().events;
        let (next, _) = resumed(with(state, events));
        assert_ne!(next.review().unwrap().checkpoint_id, late.checkpoint_id);
        assert_rejected!(late.decide(&next, &mut test_context()), AnotherQuestion);
    }

    #[test]
    fn second_and_unfitting_answers_are_refused() {
        let answered = with(asked(), answer(&asked(), ReviewVerdict::Approve).unwrap().events);
        for state in [answered, running()] {
            assert_rejected!(answer(&state, ReviewVerdict::Approve), NothingToDecide);
        }
        for verdict in [ReviewVerdict::Retry, ReviewVerdict::SkipWith { result: String::new() }] {
            assert_rejected!(answer(&asked(), verdict), WrongVerdict);
        }
        assert_eq!(labels(&answer(&asked(), ReviewVerdict::Approve).unwrap()), ["review_answered"]);
    }
}

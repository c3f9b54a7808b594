//! Expires a review whose deadline has passed. The owner of the task drives it, or the process that
//! claims the task. The review's default action becomes the answer, as if given through
//! `AnswerReview`. Without a default action the node or task fails with a timeout.

use polity_model::event::{Event, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::review::{ReviewAction, ReviewVerdict};
use polity_model::state::StateUpdates;
use serde_json::Map;

use crate::commands::AnswerReview;
use crate::decide::call_batch::CallBatch;
use crate::decide::outcomes::answer_open_calls;
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;
use crate::workflow::WorkflowDecision;

/// The answerer recorded for an expired review.
const BY_DEADLINE: &str = "deadline";

/// The deadline has passed.
#[derive(Debug, Clone, Copy)]
pub struct ExpireReview;

impl ExpireReview {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let task = state.id();
        let open = state.review().and_then(|review| Some((review, review.deadline?)));
        let Some((review, deadline)) = open else {
            return Err(CommandRejection::NothingToDecide { task, status: state.status() });
        };
        if ctx.now < deadline {
            return Err(CommandRejection::TooEarly { task, deadline });
        }
        let message = format!("no answer came before {deadline}");
        let verdict = match review.default_action {
            Some(ReviewAction::Approve) => ReviewVerdict::Approve,
            Some(ReviewAction::Reject) | None => ReviewVerdict::Reject,
            Some(ReviewAction::Modify) => ReviewVerdict::Modify { arguments: Map::new() },
        };
        let answer = AnswerReview {
            checkpoint_id: review.checkpoint_id,
            verdict,
            message: Some(message.clone()),
            by: BY_DEADLINE.to_owned(),
            state_updates: StateUpdates::default(),
        };
        match review.default_action {
            Some(_) => answer.decide_at_any_time(state, ctx),
            None => fail(state, answer.event(), message, ctx),
        }
    }
}

/// Fails the node or the task, because no default action is set.
fn fail(
    state: &TaskState,
    answered: Event,
    message: String,
    ctx: &mut DecisionContext,
) -> DecisionResult {
    let code = ErrorCode::Timeout;
    let node = state.review().and_then(|review| review.subject.node());
    if let Some((run, node)) =
        state.workflow_run().and_then(|run| Some((run, run.plan().number(node?)?)))
    {
        let mut batch = CallBatch::of_state(state, ctx)?;
        batch.push(answered);
        let mut workflow = WorkflowDecision::new(batch, run);
        workflow.fail_node(node, code, &message);
        return Ok(workflow.conclude());
    }
    let mut events = vec![answered];
    answer_open_calls(state, "the task failed", &mut events);
    let partial_result = state.last_answer().map(|_| ResultRef::LastAnswer);
    events.push(Event::TaskFailed { code, error: message, partial_result });
    Ok(Decision { events, effects: Vec::new() })
}

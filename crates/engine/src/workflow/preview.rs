//! Previews of the routes that the answers to a review would take.

use jiff::Timestamp;
use polity_model::review::{ReviewAction, ReviewAnswer, ReviewPreview, ReviewSubject};
use polity_model::state::StateUpdates;

use super::route::{RouteError, error_link, route};
use crate::state::{NodeOutcome, TaskState, WorkflowRun};

/// The fields that an answer may change. Conditions over them cannot be previewed.
const CHANGED_BY_ANSWERS: [&str; 3] = ["messages", "metadata", "nodes"];

/// Previews the answers to a human node's question, assuming that the person changes no State.
pub fn preview_answers(state: &TaskState, now: Timestamp) -> Vec<ReviewAnswer> {
    let Some(ReviewSubject::Node { node }) = state.review().map(|review| &review.subject) else {
        return Vec::new();
    };
    let Some((run, node)) =
        state.workflow_run().and_then(|run| Some((run, run.plan().number(node)?)))
    else {
        return Vec::new();
    };
    let actions = [ReviewAction::Approve, ReviewAction::Modify, ReviewAction::Reject];
    let known = actions.into_iter().filter_map(|action| {
        Some(ReviewAnswer { action, preview: preview_answer(run, node, action, now)? })
    });
    known.collect()
}

fn preview_answer(
    run: &WorkflowRun,
    node: usize,
    action: ReviewAction,
    now: Timestamp,
) -> Option<ReviewPreview> {
    let plan = run.plan();
    let planned = &plan.nodes()[node];
    let mut conditions =
        planned.edges.iter().filter_map(|edge| plan.edges()[*edge].condition.as_ref());
    let depends = conditions
        .any(|condition| CHANGED_BY_ANSWERS.iter().any(|field| condition.mentions(field)));
    if depends {
        return None;
    }
    let mut answered = run.clone();
    answered.apply_answer(action.label(), None, &StateUpdates::default(), now).ok()?;
    let answered = answered.state();
    let after = NodeOutcome {
        node,
        output: action.label(),
        value: None,
        routing_key: answered.routing_key.as_deref(),
        state: Some(&answered),
        at: now,
    };
    Some(match route(run, run.progress(), &after) {
        Ok(taken) => {
            let to = taken.iter().map(|link| plan.nodes()[plan.links()[*link].to].name().clone());
            ReviewPreview::LeadsTo(to.collect())
        }
        Err(error) => match error_link(plan, run.progress(), node, error.edge()) {
            Some(link) => {
                let handler = &plan.nodes()[plan.links()[link].to];
                ReviewPreview::LeadsTo(vec![handler.name().clone()])
            }
            None => fails(&error, action, planned.branch_of.is_some()),
        },
    })
}

/// A failed branch fails the task only if its join does.
fn fails(error: &RouteError, action: ReviewAction, is_branch: bool) -> ReviewPreview {
    let why = error.before_answering(action.label());
    if is_branch { ReviewPreview::FailsBranch(why) } else { ReviewPreview::FailsTask(why) }
}

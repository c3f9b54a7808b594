//! What each answer to a question of a workflow would lead to, as far as that is known before it
//! is given. Nothing changes by looking.

use jiff::Timestamp;
use polity_model::review::{ReviewAction, ReviewAnswer, ReviewPreview, ReviewSubject};
use polity_model::state::StateUpdates;

use super::walking::{NoWay, route};
use crate::state::{After, TaskState, WorkflowRun};

/// What the person who answers may change, so that conditions over it cannot be told beforehand.
const CHANGED_BY_ANSWERS: [&str; 3] = ["messages", "metadata", "nodes"];

/// The answers to what a human node asks whose consequences are known, if the person changes
/// nothing in the State with them.
pub fn outlook(state: &TaskState, now: Timestamp) -> Vec<ReviewAnswer> {
    let Some(ReviewSubject::Node { node }) = state.review().map(|review| &review.subject) else {
        return Vec::new();
    };
    let Some((walk, node)) = state.walk().and_then(|walk| Some((walk, walk.plan().number(node)?)))
    else {
        return Vec::new();
    };
    let actions = [ReviewAction::Approve, ReviewAction::Modify, ReviewAction::Reject];
    let known = actions.into_iter().filter_map(|action| {
        Some(ReviewAnswer { action, preview: outlook_of(walk, node, action, now)? })
    });
    known.collect()
}

fn outlook_of(
    walk: &WorkflowRun,
    node: usize,
    action: ReviewAction,
    now: Timestamp,
) -> Option<ReviewPreview> {
    let plan = walk.plan();
    let planned = &plan.nodes()[node];
    let mut conditions =
        planned.edges.iter().filter_map(|edge| plan.edges()[*edge].condition.as_ref());
    let depends = conditions
        .any(|condition| CHANGED_BY_ANSWERS.iter().any(|field| condition.mentions(field)));
    if depends {
        return None;
    }
    let mut told = walk.clone();
    told.tell(action.label(), None, &StateUpdates::default(), now).ok()?;
    let told = told.state();
    let after = After {
        node,
        output: action.label(),
        routing_key: told.routing_key.as_deref(),
        state: Some(&told),
        at: now,
    };
    Some(match route(walk, walk.progress(), &after) {
        Ok(taken) => {
            let to = taken.iter().map(|link| plan.nodes()[plan.links()[*link].to].name().clone());
            ReviewPreview::LeadsTo(to.collect())
        }
        Err(no_way) => fails(&no_way, action, planned.branch_of.is_some()),
    })
}

/// Whether the end of a branch is that of the task depends on the other branches.
fn fails(no_way: &NoWay, action: ReviewAction, is_branch: bool) -> ReviewPreview {
    let why = no_way.before_answering(action.label());
    if is_branch { ReviewPreview::FailsBranch(why) } else { ReviewPreview::FailsTask(why) }
}

//! Answers a workflow's review: a human node's question, or the approval before a node.
//!
//! The action becomes the routing key, and the route is decided in the same commit. The next owner
//! only starts the nodes. The output of a human node is the person's message; without one, a node
//! that was not rejected passes on the newest output before it.

use polity_model::event::NodeOutput;
use polity_model::failure::ErrorCode;
use polity_model::review::{ReviewSubject, ReviewVerdict};

use crate::commands::AnswerReview;
use crate::decide::call_batch::CallBatch;
use crate::decide::{CommandRejection, DecisionContext, DecisionResult};
use crate::state::{TaskState, WorkflowRun};
use crate::workflow::{FinishedNode, WorkflowDecision};

/// Decides the consequences of an answer about a node.
pub(crate) fn answer_node(
    answer: &AnswerReview,
    state: &TaskState,
    run: &WorkflowRun,
    subject: &ReviewSubject,
    ctx: &mut DecisionContext,
) -> DecisionResult {
    let AnswerReview { verdict, message, state_updates, .. } = answer;
    let task = state.id();
    let Some(node) = subject.node().and_then(|node| run.plan().number(node)) else {
        return Err(CommandRejection::NothingToDecide { task, status: state.status() });
    };
    let wrong = |verdict| {
        let asks = "waits for a decision about a node of its workflow";
        Err(CommandRejection::WrongVerdict { task, asks, verdict })
    };
    match verdict {
        ReviewVerdict::Approve | ReviewVerdict::Reject => {}
        ReviewVerdict::Modify { arguments } if arguments.is_empty() => {}
        ReviewVerdict::Modify { .. } => return wrong("other arguments"),
        ReviewVerdict::Retry => return wrong("--retry"),
        ReviewVerdict::SkipWith { .. } => return wrong("--skip-with"),
    }
    let mut answered = run.clone();
    answered.apply_answer(verdict.action(), message.clone(), state_updates, ctx.now)?;
    let answered = answered.state();
    let mut batch = CallBatch::of_state(state, ctx)?;
    batch.push(answer.event());
    let mut workflow = WorkflowDecision::new(batch, run);
    match subject {
        ReviewSubject::Checkpoint { .. } if *verdict == ReviewVerdict::Reject => {
            let why = answer.explain(format!("{} rejected it", answer.by));
            workflow.fail_node(node, ErrorCode::Rejected, &why);
        }
        ReviewSubject::Checkpoint { .. } => workflow.allow(node),
        ReviewSubject::Node { .. }
        | ReviewSubject::Approval { .. }
        | ReviewSubject::Doubt { .. }
        | ReviewSubject::RunDoubt { .. }
        | ReviewSubject::RemoteQuestion { .. } => {
            let output = message.as_deref().unwrap_or_else(|| match verdict {
                ReviewVerdict::Reject => verdict.action(),
                // Without a message, the node passes on the text that was reviewed.
                ReviewVerdict::Approve
                | ReviewVerdict::Modify { .. }
                | ReviewVerdict::Retry
                | ReviewVerdict::SkipWith { .. } => run.scope(node).last,
            });
            workflow.finish(FinishedNode {
                node,
                output,
                stored: NodeOutput::Text(output.to_owned()),
                routing_key: answered.routing_key.clone(),
                answer: Some((&answered, message.as_deref())),
                script: None,
            });
        }
    }
    Ok(workflow.conclude())
}

//! Answers a remote agent's question. The answer becomes the next message of the conversation, or
//! the task ends.

use polity_model::event::Event;
use polity_model::failure::ErrorCode;
use polity_model::message::Message;
use polity_model::review::ReviewVerdict;

use crate::commands::AnswerReview;
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;

pub(crate) const ASKS_QUESTION: &str = "asks something for its agent on another server";

pub(crate) fn answer_question(
    answer: &AnswerReview,
    state: &TaskState,
    ctx: &DecisionContext,
) -> DecisionResult {
    let task = state.id();
    let AnswerReview { verdict, message, by, .. } = answer;
    if !answer.state_updates.is_empty() {
        return Err(CommandRejection::NoStateThere { task, asks: ASKS_QUESTION });
    }
    let wrong =
        |verdict| Err(CommandRejection::WrongVerdict { task, asks: ASKS_QUESTION, verdict });
    let follows = match verdict {
        ReviewVerdict::Modify { arguments } if !arguments.is_empty() => {
            return wrong("other arguments");
        }
        // The owner that resumes the task sends the message.
        ReviewVerdict::Approve | ReviewVerdict::Modify { .. } => {
            let said = message.clone().filter(|said| !said.trim().is_empty());
            let content = said.ok_or(CommandRejection::AnswerNeedsText { task })?;
            Event::MessageAdded { message: Message::User { content, timestamp: ctx.now } }
        }
        ReviewVerdict::Reject => {
            let agent = &state.task().order().assigned_agent;
            let error = format!("{agent} asked something, and {by} ended the task");
            let error = answer.explain(error);
            Event::TaskFailed { code: ErrorCode::Rejected, error, partial_result: None }
        }
        ReviewVerdict::Retry | ReviewVerdict::SkipWith { .. } => {
            return wrong("--retry or --skip-with");
        }
    };
    Ok(Decision { events: vec![answer.event(), follows], effects: Vec::new() })
}

//! Open reviews.

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::preview_answers;
use polity_engine::runtime::{EngineError, load_task};
use polity_engine::state::TurnCall;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::Review;
use polity_store::{TaskFilter, TaskRow};

use super::HomeQueries;
use super::review_path::ReviewPath;
use crate::error::HostError;

impl HomeQueries {
    /// The tasks that wait for a review, longest waiting first.
    pub async fn tasks_awaiting_review(&self) -> Result<Vec<TaskRow>, HostError> {
        let statuses = vec![TaskStatus::AwaitingHuman];
        let mut rows =
            self.store.task_rows(&TaskFilter { statuses, ..TaskFilter::default() }).await?;
        rows.reverse();
        Ok(rows)
    }

    /// The open review of a task, or of the one sub-agent of it that waits.
    pub async fn find_review(&self, id: TaskId) -> Result<Review, HostError> {
        let mut asking = id;
        loop {
            if let Some(review) = self.open_review(asking).await? {
                return Ok(review);
            }
            let waiting = TaskFilter {
                statuses: vec![TaskStatus::AwaitingHuman],
                parent: Some(asking),
                ..TaskFilter::default()
            };
            match self.store.task_rows(&waiting).await?.as_slice() {
                [] => return Err(HostError::NoReview(id)),
                [one] => asking = one.id,
                several => {
                    let mut reviews = Vec::with_capacity(several.len());
                    for row in several.iter().rev() {
                        let question = match Box::pin(self.find_review(row.id)).await {
                            Ok(review) => format!("{}: {}", review.place, review.question),
                            // An unreadable review must not hide the others.
                            Err(error) => error.to_string(),
                        };
                        reviews.push((row.id, question));
                    }
                    return Err(HostError::SeveralReviews { task: asking, reviews });
                }
            }
        }
    }

    /// The open review of a task, if it has one of its own.
    pub async fn open_review(&self, id: TaskId) -> Result<Option<Review>, HostError> {
        let store = &self.store;
        let state = load_task(&**store, id).await?.state;
        let Some(review) = state.review() else { return Ok(None) };
        let call = review.subject.call_id().and_then(|call| state.calls().get(call));
        let of_call = call.and_then(|call| state.workflow_run()?.node_name(call.id()));
        let node = review.subject.node().or(of_call);
        let row = store.task_row(id).await?.ok_or(EngineError::NotFound(id))?;
        let ReviewPath { top, path } = ReviewPath::load(&**store, row, node).await?;
        let position = node.unwrap_or(&state.task().order().assigned_agent);
        let now = SystemClock.now();
        let expired = review.deadline.is_some_and(|deadline| deadline <= now);
        let answers = if expired { Vec::new() } else { preview_answers(&state, now) };
        Ok(Some(Review {
            task_id: id,
            checkpoint_id: review.checkpoint_id,
            position: position.to_string(),
            top_task_id: top,
            place: path,
            question: review.question.clone(),
            created_at: review.created_at,
            deadline: review.deadline,
            expired,
            answers,
            subject: review.subject.clone(),
            default_action: review.default_action,
            tool: call.map(TurnCall::name),
            arguments: call.map(|call| call.arguments().clone()),
        }))
    }
}

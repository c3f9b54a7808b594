//! `/api/v1/reviews`: lists, shows and answers reviews.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use polity_engine::commands::AnswerReview;
use polity_model::ids::{CheckpointId, TaskId};
use polity_model::review::{Review, ReviewVerdict};
use polity_model::state::StateUpdates;
use polity_model::task::Task;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::route::Route;
use super::tasks::{answer_task, find_row};
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiJson, ApiPath, Page, Problem};
use crate::state::ServerState;

/// The longest name of a person.
const REVIEWER_CHARACTERS_MAX: usize = 200;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/reviews", "listReviews", "Lists open reviews, oldest first.", list)
            .answers::<Page<Map<String, Value>>>(200),
        Route::get(
            "/api/v1/reviews/{task_id}",
            "showReview",
            "Shows the open review of a task.",
            show,
        )
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/reviews/{task_id}/answer",
            "answerReview",
            Scope::Review,
            "Answers the open review of a task. The task then continues.",
            answer,
        )
        .takes::<AnswerRequest>()
        .example(json!({"action": "approve", "message": "Looks good."}))
        .answers::<Task>(200)
        .answers::<Task>(202),
    ]
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
) -> Result<Json<Page<Review>>, Problem> {
    let queries = state.host.queries();
    let mut items = Vec::new();
    for row in queries.tasks_awaiting_review().await? {
        if find_row(&state, &caller, row.id).await.is_ok() {
            items.extend(queries.open_review(row.id).await?);
        }
    }
    Ok(Json(Page { items, next_cursor: None }))
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Response, Problem> {
    find_row(&state, &caller, id).await?;
    Ok(Json(state.host.queries().find_review(id).await?).into_response())
}

/// An action of a reviewer.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AnswerAction {
    /// It may go on as it is.
    Approve,
    /// It may not.
    Reject,
    /// It may go on with `arguments` or `state_updates`.
    Modify,
    /// The call in doubt is made again.
    Retry,
    /// The call in doubt is not made again; `result` is its result.
    SkipWith,
}

/// An answer to a review.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerRequest {
    /// The action.
    action: AnswerAction,
    /// The checkpoint of the review that the reviewer saw. An answer to another one is refused.
    #[serde(default)]
    checkpoint_id: Option<CheckpointId>,
    /// A message.
    #[serde(default)]
    message: Option<String>,
    /// The new arguments of a tool call, for `modify`. Others stay.
    #[serde(default)]
    arguments: Map<String, Value>,
    /// Changes of the State, by path.
    #[serde(default)]
    #[schemars(schema_with = "crate::http::state_changes_schema")]
    state_updates: Map<String, Value>,
    /// The result, for `skip_with`.
    #[serde(default)]
    result: Option<String>,
    /// The name of the person, for the record. With another token than the local one, the token is
    /// named too.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    by: Option<String>,
}

async fn answer(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
    body: ApiJson<AnswerRequest>,
) -> Result<Response, Problem> {
    find_row(&state, &caller, id).await?;
    let review = state.host.queries().find_review(id).await?;
    let request = body.value;
    let by = reviewer(&caller, request.by)?;
    let verdict = match (request.action, request.result) {
        (AnswerAction::Approve, None) => ReviewVerdict::Approve,
        (AnswerAction::Reject, None) => ReviewVerdict::Reject,
        (AnswerAction::Retry, None) => ReviewVerdict::Retry,
        (AnswerAction::Modify, None) => {
            let mut arguments = review.arguments.clone().unwrap_or_default();
            arguments.extend(request.arguments);
            ReviewVerdict::Modify { arguments }
        }
        (AnswerAction::SkipWith, Some(result)) => ReviewVerdict::SkipWith { result },
        (AnswerAction::SkipWith, None) => {
            return Err(Problem::unprocessable("skip_with needs a result").field("result"));
        }
        (
            AnswerAction::Approve
            | AnswerAction::Reject
            | AnswerAction::Retry
            | AnswerAction::Modify,
            Some(_),
        ) => {
            return Err(Problem::unprocessable("only skip_with takes a result").field("result"));
        }
    };
    let state_updates = StateUpdates::new(request.state_updates)
        .map_err(|error| Problem::unprocessable(error.to_string()).field("state_updates"))?;
    let answer = AnswerReview {
        checkpoint_id: request.checkpoint_id.unwrap_or(review.checkpoint_id),
        verdict,
        message: request.message,
        by,
        state_updates,
    };
    // The adoption of tasks without an owner continues the task.
    state.host.runtime().answer(review.task_id, answer).await?;
    answer_task(&state, review.task_id).await
}

/// The name under which an answer is recorded. The local token is the user of the machine, who is
/// believed; others cannot hide their token behind a name.
fn reviewer(caller: &ApiCaller, by: Option<String>) -> Result<String, Problem> {
    let Some(by) = by else { return Ok(caller.name()) };
    if !(1..=REVIEWER_CHARACTERS_MAX).contains(&by.chars().count()) {
        let detail = format!("the name must have 1 to {REVIEWER_CHARACTERS_MAX} characters");
        return Err(Problem::unprocessable(detail).field("by"));
    }
    Ok(if caller.is_local() { by } else { format!("{by} ({})", caller.name()) })
}

//! Cancels, resumes, forks and retries tasks.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use polity_engine::decide::CommandRejection;
use polity_engine::pinned::Assignee;
use polity_engine::runtime::{EngineError, ForkRequest, RetryError, RetryRequest};
use polity_host::find_assignee;
use polity_model::event::RaisedLimits;
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_model::number::UsdLimit;
use polity_model::state::StateUpdates;
use polity_model::task::{Task, retry_id};
use polity_store::CommitError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::route::Route;
use super::tasks::{KeyedRequest, SubmitQuery, answer_started, answer_task, find_row, replay};
use crate::auth::{ApiCaller, Scope};
use crate::http::{
    ApiJson, ApiPath, ApiQuery, IdempotencyKey, Problem, WHOLE_NUMBER_MAX, optional_whole,
    state_changes_schema, whole_number,
};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/tasks/{task_id}/cancel",
            "cancelTask",
            Scope::Run,
            "Cancels a task.",
            cancel,
        )
        .takes::<EmptyRequest>()
        .answers::<Task>(200)
        .answers::<Task>(202),
        Route::post(
            "/api/v1/tasks/{task_id}/resume",
            "resumeTask",
            Scope::Run,
            "Continues a task whose process died.",
            resume,
        )
        .query::<SubmitQuery>()
        .takes::<EmptyRequest>()
        .answers::<Task>(200)
        .answers::<Task>(202),
        Route::post(
            "/api/v1/tasks/{task_id}/fork",
            "forkTask",
            Scope::Run,
            "Starts a task that continues from a checkpoint of another.",
            fork,
        )
        .query::<SubmitQuery>()
        .takes::<ForkTaskRequest>()
        .example(json!({"from": 0, "set": {"metadata.topic": "rain"}}))
        .takes_key()
        .answers::<Task>(200)
        .answers::<Task>(202),
        Route::post(
            "/api/v1/tasks/{task_id}/retry",
            "retryTask",
            Scope::Run,
            "Starts a task that continues a failed one. A task has one retry.",
            retry,
        )
        .query::<SubmitQuery>()
        .takes::<RetryTaskRequest>()
        .example(json!({"max_tokens": 10_000}))
        .takes_key()
        .answers::<Task>(200)
        .answers::<Task>(202),
    ]
}

/// A request without fields.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyRequest {}

async fn cancel(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
    _: ApiJson<EmptyRequest>,
) -> Result<Response, Problem> {
    let row = find_row(&state, &caller, id).await?;
    if row.status.is_final() {
        let detail = format!("task {id} is already {}", row.status);
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
    }
    state.host.runtime().cancel(id).await?;
    answer_task(&state, id).await
}

async fn resume(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<SubmitQuery>,
    _: ApiJson<EmptyRequest>,
) -> Result<Response, Problem> {
    state.expect_open()?;
    let row = find_row(&state, &caller, id).await?;
    let top = state.host.queries().top_task(row).await?;
    let handle = state.host.runtime().adopt(top.id).await?;
    answer_started(&state, handle, query.wait()).await
}

/// The definitions that a fork or retry uses.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DefinitionChoice {
    /// Those that the task has pinned.
    #[default]
    Pinned,
    /// The files as they are now.
    Current,
}

impl DefinitionChoice {
    fn assignee(self, state: &ServerState, name: &Name) -> Result<Option<Assignee>, Problem> {
        match self {
            Self::Pinned => Ok(None),
            Self::Current => Ok(Some(find_assignee(&state.context, &state.home(), name.as_str())?)),
        }
    }
}

/// A fork.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkTaskRequest {
    /// The checkpoint, counted from 0.
    #[serde(deserialize_with = "whole_number")]
    #[schemars(range(max = u32::MAX))]
    from: u32,
    /// Changes of the State, by path.
    #[serde(default)]
    #[schemars(schema_with = "state_changes_schema")]
    set: Map<String, Value>,
    /// The definitions to use.
    #[serde(default)]
    definitions: DefinitionChoice,
}

async fn fork(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    key: Option<IdempotencyKey>,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<SubmitQuery>,
    body: ApiJson<ForkTaskRequest>,
) -> Result<Response, Problem> {
    let row = find_row(&state, &caller, id).await?;
    let (route, wait) = (format!("tasks/{id}/fork"), query.wait());
    let keyed = KeyedRequest::begin(&state, &caller, key.as_ref(), &route, &body.bytes, wait)?;
    if let Some(earlier) = keyed.earlier(&state).await? {
        return replay(&state, earlier, wait).await;
    }
    state.expect_open()?;
    let ForkTaskRequest { from, set, definitions } = body.value;
    let updates = StateUpdates::new(set)
        .map_err(|error| Problem::unprocessable(error.to_string()).field("set"))?;
    let definitions = definitions.assignee(&state, &row.assigned_agent)?;
    state.rates.admit_start(&row.assigned_agent)?;
    let request =
        ForkRequest { definitions, request: keyed.work(), ..ForkRequest::new(id, from, updates) };
    match state.host.runtime().fork(request).await {
        Ok(handle) => answer_started(&state, handle, wait).await,
        // The journal has the fork of this key.
        Err(EngineError::Commit(CommitError::Conflict { .. })) => {
            match keyed.earlier(&state).await? {
                Some(earlier) => replay(&state, earlier, wait).await,
                None => Err(Problem::in_progress()),
            }
        }
        // The request makes sense, and the task has no such node or field.
        Err(EngineError::Rejected(CommandRejection::InvalidUpdate(invalid))) => {
            let detail = invalid.to_string();
            Err(Problem::new(StatusCode::CONFLICT, "conflict", detail).field("set"))
        }
        Err(error) => Err(error.into()),
    }
}

/// A retry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RetryTaskRequest {
    /// The most US dollars, including those that were spent.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_cost_usd: Option<f64>,
    /// The most tokens, including those that were used.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    max_tokens: Option<NonZeroU64>,
    /// The time limit of each call and run, in seconds.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    timeout_seconds: Option<NonZeroU64>,
    /// The definitions to use.
    #[serde(default)]
    definitions: DefinitionChoice,
}

async fn retry(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    key: Option<IdempotencyKey>,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<SubmitQuery>,
    body: ApiJson<RetryTaskRequest>,
) -> Result<Response, Problem> {
    let row = find_row(&state, &caller, id).await?;
    let (route, wait) = (format!("tasks/{id}/retry"), query.wait());
    let keyed = KeyedRequest::begin(&state, &caller, key.as_ref(), &route, &body.bytes, wait)?;
    if keyed.has_retried(&state, retry_id(id)).await? {
        return replay(&state, retry_id(id), wait).await;
    }
    state.expect_open()?;
    let RetryTaskRequest { max_cost_usd, max_tokens, timeout_seconds, definitions } = body.value;
    let max_cost_usd = max_cost_usd.map(UsdLimit::try_from).transpose();
    let max_cost_usd = max_cost_usd
        .map_err(|error| Problem::unprocessable(error.to_string()).field("max_cost_usd"))?;
    let raised = RaisedLimits { max_cost_usd, max_tokens, timeout_seconds };
    let definitions = definitions.assignee(&state, &row.assigned_agent)?;
    state.rates.admit_start(&row.assigned_agent)?;
    let request = RetryRequest { task: id, raised, definitions, request: keyed.combined() };
    match state.host.runtime().retry(request).await {
        Ok(handle) => answer_started(&state, handle, wait).await,
        // A task has one retry. A request with the same key has started it meanwhile.
        Err(EngineError::Retry(RetryError::Retried { retry, .. }))
            if keyed.has_retried(&state, retry).await? =>
        {
            replay(&state, retry, wait).await
        }
        Err(error) => Err(error.into()),
    }
}

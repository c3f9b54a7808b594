//! `POST /api/v1/executions`: starts an agent, and answers with the execution.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use polity_engine::commands::TaskOrigin;
use polity_engine::runtime::EngineError;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use polity_store::CommitError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::api::route::Route;
use crate::api::task_waiting::{wait_for_end, wait_for_handle};
use crate::api::tasks::{KeyedRequest, SubmitQuery, TaskRequest, create_task, mark_replayed};
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiJson, ApiQuery, IdempotencyKey, Problem, WaitTime};
use crate::state::ServerState;

/// The time in which a new task takes its place in line. After it, the answer has no execution.
const EXECUTION_TIME_MAX: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/executions",
            "startExecution",
            Scope::Run,
            "Starts an agent. The answer has the task and its execution.",
            start,
        )
        .query::<SubmitQuery>()
        .takes::<ExecutionRequest>()
        .takes_key()
        .example(json!({"agent": "greeter", "input": "Ada"}))
        .answers::<StartedExecution>(200)
        .answers::<StartedExecution>(202),
    ]
}

/// An agent to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecutionRequest {
    /// The agent.
    agent: String,
    /// The input.
    #[schemars(regex(pattern = r"\S"))]
    input: String,
    /// Named values, which templates read as `metadata`.
    #[serde(default)]
    parameters: Map<String, Value>,
    /// The working directory of a CLI agent.
    #[serde(default)]
    working_directory: Option<String>,
    /// Environment variables of a CLI agent. They are not stored.
    #[serde(default)]
    envs: BTreeMap<String, String>,
}

/// A started agent.
#[derive(Debug, Serialize, JsonSchema)]
struct StartedExecution {
    /// The task.
    #[schemars(with = "String")]
    task_id: TaskId,
    /// The execution; null if it has not begun yet.
    #[schemars(with = "Option<String>")]
    execution_id: Option<ExecutionId>,
    /// The execution, as `GET /api/v1/executions/{execution_id}` shows it.
    #[schemars(with = "Option<Map<String, Value>>")]
    execution: Option<Value>,
    /// The task with its result.
    task: Task,
}

async fn start(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    key: Option<IdempotencyKey>,
    ApiQuery(query): ApiQuery<SubmitQuery>,
    body: ApiJson<ExecutionRequest>,
) -> Result<Response, Problem> {
    let wait = query.wait();
    let keyed =
        KeyedRequest::begin(&state, &caller, key.as_ref(), "executions", &body.bytes, wait)?;
    if let Some(id) = keyed.earlier(&state).await? {
        return replay_execution(&state, id, wait).await;
    }
    state.expect_open()?;
    let ExecutionRequest { agent, input, parameters, working_directory, envs } = body.value;
    let request = TaskRequest::of_agent(agent, input, parameters, working_directory, envs);
    let mut create = create_task(&state, &caller, request)?;
    if let Some((id, digest)) = keyed.work() {
        create.origin = TaskOrigin::Request { id, digest };
    }
    match state.host.runtime().create(create).await {
        Ok(handle) => {
            let id = handle.id;
            match wait {
                Some(WaitTime(time)) => wait_for_handle(handle, time).await?,
                None => wait_for_execution(&state, id).await?,
            }
            answer_execution(&state, id).await
        }
        Err(EngineError::Commit(CommitError::Conflict { .. })) => {
            match keyed.earlier(&state).await? {
                Some(id) => replay_execution(&state, id, wait).await,
                None => Err(Problem::in_progress()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

async fn replay_execution(
    state: &ServerState,
    id: TaskId,
    wait: Option<WaitTime>,
) -> Result<Response, Problem> {
    if let Some(WaitTime(time)) = wait {
        wait_for_end(state, id, time).await?;
    }
    Ok(mark_replayed(answer_execution(state, id).await?))
}

/// Waits until a task has an execution or needs none.
async fn wait_for_execution(state: &ServerState, id: TaskId) -> Result<(), Problem> {
    let deadline = Instant::now() + EXECUTION_TIME_MAX;
    let mut live = state.hub.subscribe();
    loop {
        let queries = state.host.queries();
        let row = queries.task_row(id).await?;
        let is_over = row.status.is_final() || row.status == TaskStatus::AwaitingHuman;
        if is_over || !queries.store().executions(id).await?.is_empty() {
            return Ok(());
        }
        loop {
            match tokio::time::timeout_at(deadline, live.recv()).await {
                Err(_) | Ok(Err(RecvError::Closed)) => return Ok(()),
                Ok(Ok(frame)) if frame.task() != Some(id) => {}
                Ok(Ok(_) | Err(RecvError::Lagged(_))) => break,
            }
        }
    }
}

async fn answer_execution(state: &ServerState, id: TaskId) -> Result<Response, Problem> {
    let queries = state.host.queries();
    let newest = queries.store().executions(id).await?.pop();
    let execution = match &newest {
        Some(execution) => Some(json!(queries.execution_view(execution).await?)),
        None => None,
    };
    let task = queries.load_task(id).await?;
    let is_over = task.status.is_final() || task.status == TaskStatus::AwaitingHuman;
    let status = if is_over { StatusCode::OK } else { StatusCode::ACCEPTED };
    let execution_id = newest.map(|execution| execution.id);
    let started = StartedExecution { task_id: id, execution_id, execution, task };
    Ok((status, Json(started)).into_response())
}

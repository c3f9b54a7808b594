//! `/api/v1/executions`: starts, lists, shows and cancels executions.

mod pool;
mod start;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use polity_model::execution::AgentExecution;
use polity_model::execution::view::ExecutionView;
use polity_model::ids::ExecutionId;
use polity_model::task::Task;
use polity_store::ExecutionFilter;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::route::Route;
use super::tasks::{answer_task, find_row};
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiPath, ApiQuery, Page, PageLimit, Problem};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::get("/api/v1/executions", "listExecutions", "Lists executions, newest first.", list)
            .query::<ExecutionListQuery>()
            .answers::<Page<Map<String, Value>>>(200),
        Route::get(
            "/api/v1/executions/{execution_id}",
            "showExecution",
            "Shows an execution with its result.",
            show,
        )
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/executions/{execution_id}/cancel",
            "cancelExecution",
            Scope::Run,
            "Cancels the task of an execution.",
            cancel,
        )
        .answers::<Task>(200)
        .answers::<Task>(202),
    ];
    [own, start::routes(), pool::routes()].into_iter().flatten().collect()
}

/// The query of a list of executions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecutionListQuery {
    /// Only executions of this agent.
    agent: Option<String>,
    /// True for executions that have not ended.
    #[serde(default)]
    active: bool,
    /// The number of items, from 1 to 1000.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: PageLimit,
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<ExecutionListQuery>,
) -> Result<Json<Page<ExecutionView>>, Problem> {
    let filter = ExecutionFilter {
        agent: query.agent,
        open_only: query.active,
        limit: Some(query.limit.get()?),
        ..ExecutionFilter::default()
    };
    let mut items = state.host.queries().execution_views(&filter).await?;
    items.retain(|execution| caller.grant.may_use(&execution.agent_id));
    Ok(Json(Page { items, next_cursor: None }))
}

/// The execution of a path, if the caller may see its task.
pub(super) async fn find_execution(
    state: &ServerState,
    caller: &ApiCaller,
    id: ExecutionId,
) -> Result<AgentExecution, Problem> {
    let execution = state.host.queries().store().execution(id).await?;
    let execution = execution.ok_or_else(|| {
        Problem::not_found(format!("there is no execution {id}"))
            .hint("GET /api/v1/executions lists them")
    })?;
    find_row(state, caller, execution.task_id).await?;
    Ok(execution)
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<ExecutionId>,
) -> Result<Response, Problem> {
    let execution = find_execution(&state, &caller, id).await?;
    Ok(Json(state.host.queries().execution_view(&execution).await?).into_response())
}

async fn cancel(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<ExecutionId>,
) -> Result<Response, Problem> {
    let task = find_execution(&state, &caller, id).await?.task_id;
    state.host.runtime().cancel(task).await?;
    answer_task(&state, task).await
}

//! Documents about tasks: comparisons, exports, drawings of their progress and sessions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use polity_host::archive::export_files;
use polity_host::{SessionSummary, TaskDiff};
use polity_model::ids::TaskId;
use polity_model::session::SubAgentSession;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::find_row;
use crate::api::definitions::drawing::{GraphQuery, draw};
use crate::api::route::{AnswerBody, Route};
use crate::auth::ApiCaller;
use crate::http::{ApiPath, ApiQuery, Page, PageLimit, Problem};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/tasks/{task_id}/diff/{other_task_id}",
            "compareTasks",
            "Compares it with another task: definitions, steps and results.",
            diff,
        )
        .answers::<Map<String, Value>>(200),
        Route::get(
            "/api/v1/tasks/{task_id}/export",
            "exportTask",
            "Exports it with everything that belongs to it: the files of `polity task export`.",
            export,
        )
        .answers::<ExportDocument>(200),
        Route::get(
            "/api/v1/tasks/{task_id}/graph",
            "drawTask",
            "Draws its workflow with the progress of each node.",
            graph,
        )
        .query::<GraphQuery>()
        .answers_one_of(200, AnswerBody::DRAWINGS),
        Route::get("/api/v1/sessions", "listSessions", "Lists sessions of sub-agents.", sessions)
            .query::<SessionQuery>()
            .answers::<Page<Map<String, Value>>>(200),
        Route::get(
            "/api/v1/sessions/{session_id}",
            "showSession",
            "Shows a session with its messages.",
            session,
        )
        .answers::<Map<String, Value>>(200),
    ]
}

async fn diff(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath((a, b)): ApiPath<(TaskId, TaskId)>,
) -> Result<Json<TaskDiff>, Problem> {
    for id in [a, b] {
        find_row(&state, &caller, id).await?;
    }
    Ok(Json(state.host.queries().task_diff(a, b).await?))
}

/// A task and all that belongs to it, as files.
#[derive(Debug, serde::Serialize, JsonSchema)]
struct ExportDocument {
    /// The task.
    #[schemars(with = "String")]
    task_id: TaskId,
    /// The files, by their paths below the folder of an export.
    files: Map<String, Value>,
}

async fn export(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Json<ExportDocument>, Problem> {
    let row = find_row(&state, &caller, id).await?;
    // An export has the tasks that forks share a history with, whichever agent they have.
    caller.expect_unlimited("exports")?;
    let mut files = Map::new();
    for (task, of_task) in export_files(state.host.queries(), &row).await? {
        for (name, bytes) in of_task {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            files.insert(format!("tasks/{task}/{name}"), Value::String(text));
        }
    }
    Ok(Json(ExportDocument { task_id: id, files }))
}

async fn graph(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    headers: HeaderMap,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<GraphQuery>,
) -> Result<Response, Problem> {
    let row = find_row(&state, &caller, id).await?;
    let Some((workflow, marks)) = state.host.queries().workflow_progress(id).await? else {
        let agent = row.assigned_agent;
        return Err(Problem::not_found(format!(
            "task {id} runs the agent \"{agent}\", not a workflow"
        ))
        .hint(format!("GET /api/v1/tasks/{id}/trace shows its steps")));
    };
    Ok(draw(&workflow, query.format(&headers), &marks))
}

/// The query of a list of sessions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SessionQuery {
    /// Only sessions of this task.
    task: Option<TaskId>,
    /// The number of items, from 1 to 1000.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: PageLimit,
}

async fn sessions(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<SessionQuery>,
) -> Result<Json<Page<Value>>, Problem> {
    let limit = query.limit.get()?;
    if let Some(task) = query.task {
        find_row(&state, &caller, task).await?;
    }
    let mut items = Vec::new();
    for session in state.host.queries().sessions(query.task, limit).await? {
        if super::is_visible(&state, &caller, &session.row).await? {
            items.push(SessionSummary::to_json(&session));
        }
    }
    Ok(Json(Page { items, next_cursor: None }))
}

async fn session(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Response, Problem> {
    let missing = || {
        Problem::not_found(format!("there is no session {id}"))
            .hint("GET /api/v1/sessions lists them")
    };
    let row = find_row(&state, &caller, id).await.map_err(|_| missing())?;
    if row.parent_task_id.is_none() {
        return Err(missing());
    }
    let (session, _): (SubAgentSession, _) = state.host.queries().session(&row).await?;
    Ok(Json(json!(session)).into_response())
}

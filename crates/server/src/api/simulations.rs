//! `/api/v1/simulations`: starts, shows, changes, stops and resumes simulations.

mod lifecycle;
mod start;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use polity_host::simulations::runs::{RunOverview, list_runs};
use polity_host::{HostContext, HostError, LookupError, RecordKind};
use polity_model::ids::RunId;
use polity_simulator::folder::{RunFolder, RunStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::route::Route;
use crate::auth::ApiCaller;
use crate::http::{ApiPath, ApiQuery, Page, Problem, WAIT_PATTERN, WaitTime, run_blocking};
use crate::state::ServerState;

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::get("/api/v1/simulations", "listSimulations", "Lists runs, newest first.", list)
            .answers::<Page<Map<String, Value>>>(200),
        Route::get(
            "/api/v1/simulations/{run_id}",
            "showSimulation",
            "Shows the status of a run.",
            show,
        )
        .query::<RunWaitQuery>()
        .answers::<Map<String, Value>>(200),
    ];
    [own, start::routes(), lifecycle::routes()].into_iter().flatten().collect()
}

/// The query of a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunWaitQuery {
    /// The time to wait for the run to stop or end, such as `30s`.
    #[schemars(with = "Option<String>", regex(pattern = WAIT_PATTERN))]
    wait: Option<WaitTime>,
}

/// The folder of a run of the home. Paths never come from a request.
fn open_run(context: &HostContext, id: RunId) -> Result<RunFolder, HostError> {
    let id = id.to_string();
    let missing = || LookupError::NotFound { kind: RecordKind::Run, id: id.clone() }.into();
    RunFolder::open(&context.folder().runs().join(&id)).ok_or_else(missing)
}

fn overview(folder: RunFolder) -> Result<RunOverview, HostError> {
    let record = folder.record()?;
    RunOverview::read(folder, record)
}

/// The JSON of a run, with the turn and failure that this server knows.
fn run_json(state: &ServerState, overview: &RunOverview) -> Value {
    let id = &overview.record.run_id;
    let mut document = overview.to_json();
    if let Some(turn) = state.simulations.turn(id).filter(|turn| *turn > overview.turn()) {
        document["turn"] = json!(turn);
    }
    document["error"] = json!(state.simulations.failure(id));
    document
}

async fn load(state: &ServerState, id: RunId) -> Result<RunOverview, Problem> {
    let context = state.context.clone();
    run_blocking(move || overview(open_run(&context, id)?)).await
}

/// Answers with a run: 202 while it is active, else 200.
async fn answer_run(
    state: &ServerState,
    id: RunId,
    wait: Option<WaitTime>,
) -> Result<Response, Problem> {
    if let Some(WaitTime(time)) = wait {
        state.simulations.wait(&id.to_string(), time).await;
    }
    let overview = load(state, id).await?;
    let is_active = overview.record.status == RunStatus::Running && !overview.interrupted;
    let status = if is_active { StatusCode::ACCEPTED } else { StatusCode::OK };
    let mut response = (status, Json(run_json(state, &overview))).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/v1/simulations/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
) -> Result<Json<Page<Value>>, Problem> {
    caller.expect_unlimited("simulations")?;
    let context = state.context.clone();
    let runs = run_blocking(move || {
        let list = list_runs(context.folder())?;
        for error in &list.unreadable {
            tracing::warn!(%error, "a run of a simulation cannot be read");
        }
        let read = |(folder, record)| RunOverview::read(folder, record);
        list.runs.into_iter().map(read).collect::<Result<Vec<_>, HostError>>()
    });
    let items = runs.await?.iter().map(|run| run_json(&state, run)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<RunId>,
    ApiQuery(query): ApiQuery<RunWaitQuery>,
) -> Result<Json<Value>, Problem> {
    caller.expect_unlimited("simulations")?;
    if let Some(WaitTime(time)) = query.wait {
        state.simulations.wait(&id.to_string(), time).await;
    }
    let overview = load(&state, id).await?;
    Ok(Json(run_json(&state, &overview)))
}

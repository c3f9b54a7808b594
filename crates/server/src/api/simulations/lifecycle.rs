//! Changes of the population of a run.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use polity_host::HostError;
use polity_host::simulations::lifecycle::LifecycleBatch;
use polity_model::ids::RunId;
use polity_simulator::lifecycle::{LifecycleAction, LifecycleOperation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::open_run;
use crate::api::route::Route;
use crate::auth::{ApiCaller, Scope};
use crate::http::{
    ApiJson, ApiPath, ApiQuery, Problem, WAIT_PATTERN, WHOLE_NUMBER_MAX, WaitTime, optional_whole,
    run_blocking,
};
use crate::state::ServerState;

/// The most requests of one batch.
const REQUESTS_MAX: usize = 1000;

/// The time to wait for the end of the turn, unless the request says otherwise.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// The interval between two reads of the answers.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/simulations/{run_id}/lifecycle",
            "changePopulation",
            Scope::Run,
            "Adds, removes, pauses and resumes agents of a run at the end of its turn.",
            change,
        )
        .query::<LifecycleQuery>()
        .takes::<LifecycleRequest>()
        .example(json!({"requests": [{"operation": "pause_agent", "target_agent_name": "ada"}]}))
        .answers::<LifecycleAnswers>(200)
        .answers::<LifecycleAnswers>(202),
        Route::get(
            "/api/v1/simulations/{run_id}/lifecycle/{request_id}",
            "showPopulationChange",
            "Shows the answer to a request that was pending.",
            show,
        )
        .answers::<Map<String, Value>>(200),
    ]
}

/// The query of a batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LifecycleQuery {
    /// The time to wait for the end of the turn, such as `30s`, which is the default.
    #[schemars(with = "Option<String>", regex(pattern = WAIT_PATTERN))]
    wait: Option<WaitTime>,
}

/// Changes of a population, in order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LifecycleRequest {
    /// The changes.
    #[schemars(length(min = 1, max = REQUESTS_MAX))]
    requests: Vec<PopulationRequest>,
}

/// A change of a population.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PopulationRequest {
    /// The operation.
    operation: LifecycleOperation,
    /// The target; for a new agent, the requested name.
    target_agent_name: String,
    /// The initial state of a new agent, which `add_agent` requires.
    #[serde(default)]
    initial_state: Option<Map<String, Value>>,
    /// The number of turns of a pause; by default until resumed.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    auto_resume_turns: Option<u64>,
}

impl From<PopulationRequest> for LifecycleAction {
    fn from(request: PopulationRequest) -> Self {
        let PopulationRequest { operation, target_agent_name, initial_state, auto_resume_turns } =
            request;
        let auto_resume_turns =
            auto_resume_turns.map(|turns| i64::try_from(turns).unwrap_or(i64::MAX));
        Self { initial_state, auto_resume_turns, ..Self::new(operation, target_agent_name) }
    }
}

/// The answers to a batch.
#[derive(Debug, Serialize, JsonSchema)]
struct LifecycleAnswers {
    /// The answers so far, in order: `valid`, `reason`, `warnings`, `name`, `turn` and `request_id`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    answers: Vec<Value>,
    /// The ids of the requests that have no answer yet.
    pending: Vec<String>,
}

async fn change(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<RunId>,
    ApiQuery(query): ApiQuery<LifecycleQuery>,
    body: ApiJson<LifecycleRequest>,
) -> Result<Response, Problem> {
    caller.expect_unlimited("simulations")?;
    let requests = body.value.requests;
    if requests.is_empty() || requests.len() > REQUESTS_MAX {
        let detail =
            format!("requests has {} items, and must have 1 to {REQUESTS_MAX}", requests.len());
        return Err(Problem::unprocessable(detail).field("requests"));
    }
    let deadline = Instant::now() + query.wait.map_or(WAIT_DEFAULT, |WaitTime(time)| time);
    let context = state.context.clone();
    let mut batch = run_blocking(move || {
        let folder = open_run(&context, id)?;
        LifecycleBatch::submit(folder, requests.into_iter().map(Into::into).collect())
    })
    .await?;
    loop {
        let (polled, is_done) = run_blocking(move || {
            let is_done = batch.poll()?;
            Ok::<_, HostError>((batch, is_done))
        })
        .await?;
        batch = polled;
        if is_done || Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let answers = LifecycleAnswers {
        answers: batch.outcomes().map(|outcome| json!(outcome)).collect(),
        pending: batch.pending().map(str::to_owned).collect(),
    };
    let status = if answers.pending.is_empty() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(answers)).into_response())
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath((id, request)): ApiPath<(RunId, RunId)>,
) -> Result<Json<Value>, Problem> {
    caller.expect_unlimited("simulations")?;
    let context = state.context.clone();
    let answer = run_blocking(move || {
        Ok::<_, HostError>(open_run(&context, id)?.find_answer(&request.to_string())?)
    });
    let missing = || {
        Problem::not_found(format!("the run {id} has not answered a request {request}"))
            .hint("it is answered at the end of a turn, once the run is active")
    };
    answer.await?.map(|answer| Json(json!(answer))).ok_or_else(missing)
}

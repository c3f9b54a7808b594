//! Starts, stops and resumes runs.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_host::ErrorReport;
use polity_host::simulations::changes::{
    FieldChange, FixedFields, ScenarioChanges, SizeChange, apply_changes, reject_fixed_fields,
};
use polity_host::simulations::preparation::{NewRunOptions, PreparedSimulation};
use polity_host::simulations::runs::pinned_scenario;
use polity_model::digest::Digest;
use polity_model::ids::RunId;
use polity_simulator::error::SimError;
use polity_simulator::folder::RunStatus;
use polity_simulator::run::SimulationRun;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{RunWaitQuery, answer_run, load, open_run};
use crate::api::route::Route;
use crate::api::tasks::request_digest;
use crate::auth::{ApiCaller, Scope};
use crate::http::{
    ApiJson, ApiPath, ApiQuery, IdempotencyKey, Problem, WHOLE_NUMBER_MAX, WaitTime,
    optional_whole, run_blocking,
};
use crate::state::ServerState;

/// The most threads of a run.
const THREADS_MAX: usize = 512;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/simulations",
            "startSimulation",
            Scope::Run,
            "Starts a run of a scenario.",
            start,
        )
        .query::<RunWaitQuery>()
        .takes::<StartRunRequest>()
        .example(json!({"scenario": "society", "turns": 10}))
        .takes_key()
        .answers::<Map<String, Value>>(200)
        .answers::<Map<String, Value>>(202),
        Route::post(
            "/api/v1/simulations/{run_id}/stop",
            "stopSimulation",
            Scope::Run,
            "Stops a run at the end of its turn. It can be resumed.",
            stop,
        )
        .query::<RunWaitQuery>()
        .takes::<StopRunRequest>()
        .answers::<Map<String, Value>>(200)
        .answers::<Map<String, Value>>(202),
        Route::post(
            "/api/v1/simulations/{run_id}/resume",
            "resumeSimulation",
            Scope::Run,
            "Resumes a run that was stopped or interrupted.",
            resume,
        )
        .query::<RunWaitQuery>()
        .takes::<ResumeRunRequest>()
        .answers::<Map<String, Value>>(200)
        .answers::<Map<String, Value>>(202),
    ]
}

/// A run to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartRunRequest {
    /// The scenario.
    scenario: String,
    /// The number of turns, instead of the scenario's.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    turns: Option<u64>,
    /// The size of the population. Groups keep their proportions.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    agents: Option<u64>,
    /// The seed of all random draws.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    seed: Option<u64>,
    /// The number of threads, which does not change the result.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(min = 1, max = THREADS_MAX))]
    threads: Option<u64>,
    /// True to drop all lifecycle requests of a turn if one of them is invalid.
    #[serde(default)]
    strict: bool,
    /// Changes of the scenario, by path.
    #[serde(default)]
    set: Map<String, Value>,
}

/// The number of threads of a request.
fn threads(number: Option<u64>) -> Result<Option<NonZeroUsize>, Problem> {
    let Some(number) = number else { return Ok(None) };
    let threads = usize::try_from(number).ok().and_then(NonZeroUsize::new);
    threads.filter(|threads| threads.get() <= THREADS_MAX).map(Some).ok_or_else(|| {
        let detail = format!("threads is {number}, and must be from 1 to {THREADS_MAX}");
        Problem::unprocessable(detail).field("threads")
    })
}

impl StartRunRequest {
    /// The changes of the scenario.
    fn changes(&self) -> ScenarioChanges {
        let change = |path: &str, value: Value| {
            let request = format!("{path}={value}");
            FieldChange { path: path.to_owned(), value, request }
        };
        let named = [("turns", self.turns), ("seed", self.seed)];
        let named = named.into_iter().filter_map(|(path, number)| Some((path, number?)));
        let mut fields: Vec<FieldChange> =
            self.set.iter().map(|(path, value)| change(path, value.clone())).collect();
        fields.extend(named.map(|(path, number)| change(path, number.into())));
        let size = |agents: u64| SizeChange { agents, request: format!("agents={agents}") };
        ScenarioChanges { after: 0, fields, size: self.agents.map(size) }
    }
}

async fn start(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    key: Option<IdempotencyKey>,
    ApiQuery(query): ApiQuery<RunWaitQuery>,
    body: ApiJson<StartRunRequest>,
) -> Result<Response, Problem> {
    caller.expect_unlimited("simulations")?;
    let threads = threads(body.value.threads)?;
    let keyed = key.map(|key| key.task_id(&caller, "simulations"));
    let digest = keyed.map(|_| request_digest(&body.bytes));
    let id = match keyed {
        Some(task) => RunId::from_bytes(*task.as_bytes()),
        None => RunId::from_random_bytes(SystemEntropy.seed()),
    };
    let running = keyed.map(|task| state.running_keys.begin(task));
    if let (Some(None), None) = (&running, query.wait) {
        return Err(Problem::in_progress());
    }
    if let Some(digest) = digest
        && let Some(answer) = replay_run(&state, id, digest, query.wait).await?
    {
        return Ok(answer);
    }
    state.expect_open()?;
    let limit = state.home().settings.server.concurrent_simulations;
    let slot = state.simulations.begin(&id.to_string(), limit)?;
    let context = state.context.clone();
    slot.start(move || {
        let request = body.value;
        let simulations = context.folder().simulations()?;
        let changes = request.changes();
        reject_fixed_fields(&changes.fields, FixedFields::InRun)?;
        let read = apply_changes(simulations.scenario(&request.scenario)?, changes)?;
        let options = NewRunOptions {
            id: Some(id),
            strict: request.strict,
            threads,
            forked_from: None,
            request: digest.map(|digest| digest.to_string()),
        };
        let prepared = PreparedSimulation::new(read, options)?;
        context.protect_data()?;
        let path = context.folder().runs().join(prepared.id());
        prepared.start(&path).map_err(ErrorReport::from)
    })
    .await?;
    answer_run(&state, id, query.wait).await
}

/// The answer to a repeated request; none if its run does not exist yet.
async fn replay_run(
    state: &ServerState,
    id: RunId,
    digest: Digest,
    wait: Option<WaitTime>,
) -> Result<Option<Response>, Problem> {
    let context = state.context.clone();
    let found = run_blocking(move || {
        let folder = polity_simulator::folder::RunFolder::open(
            &context.folder().runs().join(id.to_string()),
        );
        folder.map(|folder| folder.record()).transpose()
    });
    let Some(record) = found.await? else { return Ok(None) };
    if record.request != Some(digest.to_string()) {
        return Err(Problem::key_reused());
    }
    let mut response = answer_run(state, id, wait).await?;
    response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    Ok(Some(response))
}

/// A request without fields.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopRunRequest {}

async fn stop(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<RunId>,
    ApiQuery(query): ApiQuery<RunWaitQuery>,
    _: ApiJson<StopRunRequest>,
) -> Result<Response, Problem> {
    caller.expect_unlimited("simulations")?;
    let overview = load(&state, id).await?;
    if !state.simulations.stop(&id.to_string()) {
        let detail = match overview.record.status {
            RunStatus::Running if !overview.interrupted => {
                format!("another process runs the simulation {id}")
            }
            RunStatus::Running | RunStatus::Stopped | RunStatus::Ended => {
                format!(
                    "the run {id} is {}, and only an active run can be stopped",
                    overview.status()
                )
            }
        };
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
    }
    answer_run(&state, id, query.wait).await
}

/// The continuation of a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResumeRunRequest {
    /// The turn after which it continues. By default its newest checkpoint.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    from: Option<u64>,
    /// The total number of turns, instead of the original one.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    turns: Option<u64>,
    /// The number of threads, which does not change the result.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(min = 1, max = THREADS_MAX))]
    threads: Option<u64>,
}

async fn resume(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<RunId>,
    ApiQuery(query): ApiQuery<RunWaitQuery>,
    body: ApiJson<ResumeRunRequest>,
) -> Result<Response, Problem> {
    caller.expect_unlimited("simulations")?;
    state.expect_open()?;
    let ResumeRunRequest { from, turns, .. } = body.value;
    let threads = threads(body.value.threads)?;
    load(&state, id).await?;
    let limit = state.home().settings.server.concurrent_simulations;
    let slot = state.simulations.begin(&id.to_string(), limit)?;
    let context = state.context.clone();
    slot.start(move || {
        let folder = open_run(&context, id)?;
        let scenario = Arc::new(pinned_scenario(&folder)?.scenario);
        SimulationRun::resume(folder, from, turns, &scenario, threads).map_err(
            |error| match error {
                SimError::TooFewTurns { .. } => ErrorReport::conflict(&error)
                    .hint("use more turns, or an earlier turn in `from`"),
                error => ErrorReport::from(error).about("RUN", &id.to_string()),
            },
        )
    })
    .await?;
    answer_run(&state, id, query.wait).await
}

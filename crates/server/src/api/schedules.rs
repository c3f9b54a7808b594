//! `/api/v1/schedules`: lists, creates, controls and runs schedules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use polity_definition::ScheduleDefinition;
use polity_engine::clock::{Clock as _, SystemClock};
use polity_engine::runtime::{ScheduleRecord, ScheduleSubject, decide_schedule, remove_schedule};
use polity_engine::schedule::{ScheduleCommand, StartFault};
use polity_host::{
    DueTimeRow, HostError, ScheduleView, ScheduledStart, add_schedule, delete_schedule,
    find_schedule, next_starts, schedule_assignee, start_scheduled,
};
use polity_model::event::{ScheduleChange, TickOutcome};
use polity_model::ids::TaskId;
use polity_model::name::Name;
use polity_model::task::Task;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::route::Route;
use super::task_actions::EmptyRequest;
use super::tasks::{SubmitQuery, answer_started, answer_task, replay};
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiJson, ApiPath, ApiQuery, IdempotencyKey, Page, PageLimit, Problem};
use crate::state::ServerState;

/// The due times that a preview shows, unless the request says otherwise.
const NEXT_DEFAULT: u32 = 10;

/// The most due times that a preview shows.
const NEXT_MAX: u32 = 1_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/schedules", "listSchedules", "Lists schedules.", list)
            .answers::<Page<Map<String, Value>>>(200),
        Route::post(
            "/api/v1/schedules",
            "createSchedule",
            Scope::Admin,
            "Creates a schedule: writes its file.",
            create,
        )
        .takes::<ScheduleRequest>()
        .answers::<Map<String, Value>>(201),
        Route::get("/api/v1/schedules/{name}", "showSchedule", "Shows a schedule.", show)
            .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/schedules/{name}/remove",
            "removeSchedule",
            Scope::Admin,
            "Removes a schedule: deletes its file. Its history stays.",
            remove,
        )
        .takes::<EmptyRequest>()
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/schedules/{name}/pause",
            "pauseSchedule",
            Scope::Admin,
            "Pauses a schedule: its due times are skipped.",
            pause,
        )
        .takes::<PauseRequest>()
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/schedules/{name}/resume",
            "resumeSchedule",
            Scope::Admin,
            "Resumes a paused schedule.",
            resume,
        )
        .takes::<EmptyRequest>()
        .answers::<Map<String, Value>>(200),
        Route::post(
            "/api/v1/schedules/{name}/run",
            "runSchedule",
            Scope::Run,
            "Starts a run of a schedule now.",
            run,
        )
        .query::<SubmitQuery>()
        .takes::<EmptyRequest>()
        .takes_key()
        .answers::<Task>(200)
        .answers::<Task>(202),
        Route::post(
            "/api/v1/schedules/{name}/backfill",
            "backfillSchedule",
            Scope::Run,
            "Starts the due times of a past range that have no task.",
            backfill,
        )
        .takes::<BackfillRequest>()
        .answers::<Map<String, Value>>(202),
        Route::get(
            "/api/v1/schedules/{name}/next",
            "listNextTimes",
            "Lists the next times of a schedule.",
            next,
        )
        .query::<NextQuery>()
        .answers::<Page<String>>(200),
        Route::get(
            "/api/v1/schedules/{name}/history",
            "listDueTimes",
            "Lists the due times of a schedule with their outcomes, newest record first.",
            history,
        )
        .query::<HistoryQuery>()
        .answers::<Page<Map<String, Value>>>(200),
    ]
}

/// The schedule of a path, if the caller may use its agent or workflow.
fn find(
    state: &ServerState,
    caller: &ApiCaller,
    name: &str,
) -> Result<Arc<ScheduleDefinition>, Problem> {
    let schedule = find_schedule(&state.home(), name)?;
    caller.expect_agent(schedule.target.name())?;
    Ok(schedule)
}

async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
) -> Result<Json<Page<ScheduleView>>, Problem> {
    let home = state.home();
    let visible = home.schedules.values().filter(|one| caller.grant.may_use(one.target.name()));
    let items = state.host.queries().schedule_views(visible, SystemClock.now()).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<ScheduleView>, Problem> {
    answer_view(&state, &*find(&state, &caller, &name)?).await
}

async fn answer_view(
    state: &ServerState,
    definition: &ScheduleDefinition,
) -> Result<Json<ScheduleView>, Problem> {
    Ok(Json(state.host.queries().schedule_view(definition, SystemClock.now()).await?))
}

/// The fields of a schedule's file.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes the body, which is checked as a file")]
struct ScheduleRequest {
    /// The schedule's name.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9_]*$"))]
    name: String,
    /// The times: minute, hour, day of month, month, day of week; with six fields, seconds come
    /// first.
    cron_expression: String,
    /// The other fields, of which `agent` or `workflow` is required: `polity schema schedule`.
    #[schemars(flatten)]
    others: Map<String, Value>,
}

/// Creates a schedule from the fields of its file.
async fn create(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    body: ApiJson<Map<String, Value>>,
) -> Result<Response, Problem> {
    state.expect_open()?;
    let name = body.value.get("name").and_then(Value::as_str).ok_or_else(|| {
        Problem::unprocessable("the schedule has no name")
            .field("name")
            .hint("the fields are those of schedules/NAME.yaml: `polity schema schedule`")
    })?;
    let name: Name = name.parse().map_err(|error: polity_model::name::InvalidName| {
        Problem::unprocessable(error.to_string()).field("name")
    })?;
    for field in ["agent", "workflow"] {
        if let Some(target) = body.value.get(field).and_then(Value::as_str)
            && let Ok(target) = target.parse()
        {
            caller.expect_agent(&target)?;
        }
    }
    let fields: Vec<_> = body.value.into_iter().collect();
    let path = add_schedule(&state.context, &name, &fields)?;
    let definition = find_schedule(&state.changed_home(), name.as_str())?;
    // The scheduler hears of it through the journal.
    command(&state, &definition, None, &ScheduleCommand::Register).await?;
    let Json(view) = answer_view(&state, &definition).await?;
    let document = json!({"file": path, "schedule": view});
    Ok((StatusCode::CREATED, Json(document)).into_response())
}

async fn remove(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    _: ApiJson<EmptyRequest>,
) -> Result<Response, Problem> {
    let schedule = find(&state, &caller, &name)?;
    delete_schedule(&state.context, &state.home(), &schedule.name)?;
    state.changed_home();
    let store = state.host.queries().store();
    remove_schedule(&**store, &SystemClock, &schedule.name).await?;
    Ok(Json(json!({"name": schedule.name, "removed": true})).into_response())
}

/// The reason of a pause.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PauseRequest {
    /// The reason, for people.
    #[serde(default)]
    note: Option<String>,
}

async fn pause(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    body: ApiJson<PauseRequest>,
) -> Result<Json<ScheduleView>, Problem> {
    let schedule = find(&state, &caller, &name)?;
    let pause = ScheduleCommand::Pause { by: caller.name(), note: body.value.note };
    command(&state, &schedule, None, &pause).await?;
    answer_view(&state, &schedule).await
}

async fn resume(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    _: ApiJson<EmptyRequest>,
) -> Result<Json<ScheduleView>, Problem> {
    let schedule = find(&state, &caller, &name)?;
    command(&state, &schedule, None, &ScheduleCommand::Resume { by: caller.name() }).await?;
    answer_view(&state, &schedule).await
}

/// Commits a command to the stream of a schedule. The scheduler reads it there.
async fn command(
    state: &ServerState,
    definition: &ScheduleDefinition,
    fault: Option<&StartFault>,
    command: &ScheduleCommand,
) -> Result<Vec<ScheduleChange>, Problem> {
    let store = &**state.host.queries().store();
    let mut record = ScheduleRecord::load(store, &definition.name).await?;
    let times = definition.due_times();
    let subject = ScheduleSubject { definition, times: &times, fault };
    Ok(decide_schedule(store, &SystemClock, &mut record, subject, command).await?)
}

async fn run(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    key: Option<IdempotencyKey>,
    ApiQuery(query): ApiQuery<SubmitQuery>,
    _: ApiJson<EmptyRequest>,
) -> Result<Response, Problem> {
    state.expect_open()?;
    let schedule = find(&state, &caller, &name)?;
    let task_id = key.map(|key| key.task_id(&caller, &format!("schedules/{name}/run")));
    let running = task_id.map(|id| state.running_keys.begin(id));
    if running.as_ref().is_some_and(Option::is_none) {
        return Err(Problem::in_progress());
    }
    if let Some(id) = task_id
        && state.host.queries().store().task_row(id).await?.is_some()
    {
        return replay(&state, id, query.wait()).await;
    }
    state.rates.admit_start(schedule.target.name())?;
    let toggles = state.host.queries().agent_toggles().await?;
    let assignee = schedule_assignee(&state.context, &state.home(), &toggles, &schedule);
    let fault = assignee.as_ref().err();
    let changes = command(&state, &schedule, fault, &ScheduleCommand::RunNow { task_id }).await?;
    for change in &changes {
        if let ScheduleChange::Tick { outcome, .. } = change {
            state.metrics.count_ticks(&schedule.name, outcome.label(), 1);
        }
    }
    let (Ok(assignee), Some((due, id))) = (assignee, started(&changes)) else {
        return Err(Problem::unavailable("not_started", "the schedule started nothing"));
    };
    match start_scheduled(&state.host, assignee, &schedule, due, id).await {
        ScheduledStart::Started(handle) => answer_started(&state, handle, query.wait()).await,
        ScheduledStart::Exists => answer_task(&state, id).await,
        ScheduledStart::Later(error) => Err(error.into()),
        ScheduledStart::Failed(fault) => {
            let detail = fault.message.clone();
            let fail = ScheduleCommand::FailStart { task_id: id, fault };
            command(&state, &schedule, None, &fail).await?;
            Err(Problem::unprocessable(detail)
                .hint("GET /api/v1/schedules/NAME/history shows the attempt"))
        }
    }
}

/// The task that a run by hand starts.
fn started(changes: &[ScheduleChange]) -> Option<(Timestamp, TaskId)> {
    changes.iter().rev().find_map(|change| {
        let ScheduleChange::Tick { due, outcome, .. } = change else { return None };
        outcome.task_id().map(|task_id| (*due, task_id))
    })
}

/// A range of past times.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BackfillRequest {
    /// The start, included.
    from: Timestamp,
    /// The end, included.
    to: Timestamp,
}

async fn backfill(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    body: ApiJson<BackfillRequest>,
) -> Result<Response, Problem> {
    state.expect_open()?;
    let schedule = find(&state, &caller, &name)?;
    let BackfillRequest { from, to } = body.value;
    let queries = state.host.queries();
    let started = queries.started_due_times(&schedule.name, from, to).await?;
    let skipped = started.len();
    let changes =
        command(&state, &schedule, None, &ScheduleCommand::Backfill { from, to, started }).await?;
    let queued = changes.iter().filter(|change| is_queued(change)).count();
    let document = json!({"name": schedule.name, "queued": queued, "already_started": skipped});
    Ok((StatusCode::ACCEPTED, Json(document)).into_response())
}

fn is_queued(change: &ScheduleChange) -> bool {
    matches!(change, ScheduleChange::Tick { outcome: TickOutcome::Queued, .. })
}

/// The query of a preview.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NextQuery {
    /// The number of times, from 1 to 1000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    count: Option<u32>,
}

async fn next(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    ApiQuery(query): ApiQuery<NextQuery>,
) -> Result<Json<Page<Timestamp>>, Problem> {
    let schedule = find(&state, &caller, &name)?;
    let count = query.count.unwrap_or(NEXT_DEFAULT);
    if !(1..=NEXT_MAX).contains(&count) {
        let detail = format!("count is {count}, and must be from 1 to {NEXT_MAX}");
        return Err(Problem::unprocessable(detail).field("count"));
    }
    let items = next_starts(&schedule, SystemClock.now(), count as usize);
    Ok(Json(Page { items, next_cursor: None }))
}

/// The query of a history.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// The number of rows, from 1 to 1000.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: PageLimit,
}

async fn history(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(name): ApiPath<String>,
    ApiQuery(query): ApiQuery<HistoryQuery>,
) -> Result<Json<Page<DueTimeRow>>, Problem> {
    // The history of a removed schedule stays, for callers who may see everything.
    let name = match (find(&state, &caller, &name), caller.grant.agents(), name.parse::<Name>()) {
        (Ok(schedule), _, _) => schedule.name.clone(),
        (Err(_), None, Ok(name)) if has_history(&state, &name).await? => name,
        (Err(problem), _, _) => return Err(problem),
    };
    let limit = query.limit.get()?;
    let items = state.host.queries().schedule_history(&name, limit).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

async fn has_history(state: &ServerState, name: &Name) -> Result<bool, HostError> {
    Ok(!state.host.queries().schedule_history(name, 1).await?.is_empty())
}

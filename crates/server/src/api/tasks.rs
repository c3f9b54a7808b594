//! `/api/v1/tasks`: submits, lists and shows tasks.

mod cancel_many;
mod keyed;
mod output;
mod views;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use polity_engine::commands::{CreateTask, TaskOrigin};
use polity_engine::driver::RunOverrides;
use polity_engine::runtime::{EngineError, TaskHandle};
use polity_host::{find_agent, find_assignee, find_workflow};
use polity_model::budget::Budget;
use polity_model::event::{JournalPosition, RaisedLimits};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::number::UsdLimit;
use polity_model::task::Task;
use polity_store::{CommitError, TaskFilter, TaskRow};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::route::Route;
use super::task_waiting::{wait_for_end, wait_for_handle};
use crate::auth::{ApiCaller, Scope};
use crate::http::{
    ApiJson, ApiPath, ApiQuery, Cursor, IdempotencyKey, Page, PageLimit, Problem, WAIT_PATTERN,
    WHOLE_NUMBER_MAX, WaitTime, optional_whole,
};
use crate::state::ServerState;
pub(super) use keyed::{KeyedRequest, mark_replayed, replay, request_digest};

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::post("/api/v1/tasks", "submitTask", Scope::Run, "Starts a task.", submit)
            .query::<SubmitQuery>()
            .takes::<TaskRequest>()
            .takes_key()
            .example(json!({"agent": "greeter", "input": "Ada"}))
            .answers::<Task>(200)
            .answers::<Task>(202),
        Route::get("/api/v1/tasks", "listTasks", "Lists tasks, newest first.", list)
            .query::<TaskListQuery>()
            .answers::<Page<Task>>(200),
        Route::get("/api/v1/tasks/{task_id}", "showTask", "Shows a task.", show)
            .query::<ShowQuery>()
            .answers::<Task>(200),
        Route::get("/api/v1/tasks/{task_id}/trace", "showTrace", "Shows its steps.", trace)
            .answers::<Map<String, Value>>(200),
        Route::get(
            "/api/v1/tasks/{task_id}/checkpoints",
            "listCheckpoints",
            "Lists its checkpoints with their States.",
            checkpoints,
        )
        .answers::<Page<Map<String, Value>>>(200),
    ];
    let others = [cancel_many::routes(), output::routes(), views::routes()];
    own.into_iter().chain(others.into_iter().flatten()).collect()
}

/// The task to start. Either `agent` or `workflow` is required.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
// Generators of clients do not know these keywords, and take the fields as they are.
#[schemars(extend(
    "not" = {
        "required": ["agent", "workflow"],
        "properties": {"agent": {"type": "string"}, "workflow": {"type": "string"}},
    },
    "if" = {"required": ["agent"], "properties": {"agent": {"type": "string"}}},
    "else" = {"required": ["workflow"], "properties": {"workflow": {"type": "string"}}},
))]
pub(super) struct TaskRequest {
    /// The agent.
    #[serde(default)]
    agent: Option<String>,
    /// The workflow.
    #[serde(default)]
    workflow: Option<String>,
    /// The input.
    #[schemars(regex(pattern = r"\S"))]
    input: String,
    /// Named values, which templates read as `metadata`.
    #[serde(default)]
    parameters: Map<String, Value>,
    /// A class of the retention policy.
    #[serde(default)]
    class: Option<String>,
    /// The number of days to keep the task after its end.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = u32::MAX))]
    retention_days: Option<u32>,
    /// The working directory of a CLI agent.
    #[serde(default)]
    working_directory: Option<String>,
    /// Environment variables of a CLI agent. They are not stored.
    #[serde(default)]
    envs: BTreeMap<String, String>,
    /// The most US dollars that the task may spend.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_cost_usd: Option<f64>,
    /// The most tokens that the task may use.
    #[serde(default, deserialize_with = "optional_whole")]
    #[schemars(range(max = WHOLE_NUMBER_MAX))]
    max_tokens: Option<NonZeroU64>,
}

impl TaskRequest {
    /// A task of an agent.
    pub(super) fn of_agent(
        agent: String,
        input: String,
        parameters: Map<String, Value>,
        working_directory: Option<String>,
        envs: BTreeMap<String, String>,
    ) -> Self {
        Self {
            agent: Some(agent),
            workflow: None,
            input,
            parameters,
            class: None,
            retention_days: None,
            working_directory,
            envs,
            max_cost_usd: None,
            max_tokens: None,
        }
    }
}

/// The query of a submission.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitQuery {
    /// The time to wait for the task to end or to ask a person, such as `30s`.
    #[schemars(with = "Option<String>", regex(pattern = WAIT_PATTERN))]
    wait: Option<WaitTime>,
}

impl SubmitQuery {
    /// The time to wait.
    pub(super) fn wait(&self) -> Option<WaitTime> {
        self.wait
    }
}

/// Starts a task.
async fn submit(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    key: Option<IdempotencyKey>,
    ApiQuery(query): ApiQuery<SubmitQuery>,
    body: ApiJson<TaskRequest>,
) -> Result<Response, Problem> {
    let wait = query.wait;
    let keyed = KeyedRequest::begin(&state, &caller, key.as_ref(), "tasks", &body.bytes, wait)?;
    if let Some(id) = keyed.earlier(&state).await? {
        return replay(&state, id, wait).await;
    }
    state.expect_open()?;
    let mut create = create_task(&state, &caller, body.value)?;
    if let Some((id, digest)) = keyed.work() {
        create.origin = TaskOrigin::Request { id, digest };
    }
    match state.host.runtime().create(create).await {
        Ok(handle) => answer_started(&state, handle, wait).await,
        // The journal has a task of this id: the work is not started twice.
        Err(EngineError::Commit(CommitError::Conflict { .. })) => {
            match keyed.earlier(&state).await? {
                Some(id) => replay(&state, id, wait).await,
                None => Err(Problem::in_progress()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks a request and finds its definitions.
pub(super) fn create_task(
    state: &ServerState,
    caller: &ApiCaller,
    request: TaskRequest,
) -> Result<CreateTask, Problem> {
    let (context, home) = (&state.context, state.home());
    let name = match (&request.agent, &request.workflow) {
        (Some(agent), None) => find_agent(context, &home, agent)?.name.clone(),
        (None, Some(workflow)) => find_workflow(context, &home, workflow)?.name.clone(),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::unprocessable("either \"agent\" or \"workflow\" is required")
                .field("agent")
                .hint("GET /api/v1/agents and GET /api/v1/workflows list them"));
        }
    };
    caller.expect_agent(&name)?;
    // Either can make a program run other code: PATH, or a folder with its settings.
    if !request.envs.is_empty() || request.working_directory.is_some() {
        let field = if request.envs.is_empty() { "working_directory" } else { "envs" };
        if !caller.grant.has(Scope::Admin) {
            return Err(Problem::forbidden(format!("\"{field}\" needs the scope \"admin\""))
                .field(field)
                .hint("set it in the agent's file, or use a token with that scope"));
        }
    }
    if let Some(folder) = &request.working_directory
        && !std::path::Path::new(folder).is_dir()
    {
        return Err(Problem::not_found(format!("there is no folder {folder} on the server"))
            .field("working_directory"));
    }
    let max_cost_usd = request.max_cost_usd.map(UsdLimit::try_from).transpose();
    let max_cost_usd = max_cost_usd
        .map_err(|error| Problem::unprocessable(error.to_string()).field("max_cost_usd"))?;
    let budget = Budget { max_cost_usd, max_tokens: request.max_tokens };
    let has_budget = budget.max_cost_usd.is_some() || budget.max_tokens.is_some();
    let assignee = find_assignee(context, &home, name.as_str())?;
    state.rates.admit_start(&name)?;
    Ok(CreateTask {
        assignee,
        origin: TaskOrigin::Outside,
        description: request.input,
        parameters: request.parameters,
        class: request.class,
        retention_days: request.retention_days,
        budget: has_budget.then_some(budget),
        raised: RaisedLimits::default(),
        overrides: RunOverrides {
            working_directory: request.working_directory,
            envs: request.envs.into_iter().collect(),
        },
    })
}

/// Answers with a task that was just started.
pub(super) async fn answer_started(
    state: &ServerState,
    handle: TaskHandle,
    wait: Option<WaitTime>,
) -> Result<Response, Problem> {
    let id = handle.id;
    if let Some(WaitTime(time)) = wait {
        wait_for_handle(handle, time).await?;
    }
    answer_task(state, id).await
}

/// Answers with a task: 200 if it has ended or waits for a person, else 202.
pub(super) async fn answer_task(state: &ServerState, id: TaskId) -> Result<Response, Problem> {
    let task = state.host.queries().load_task(id).await?;
    let is_over = task.status.is_final() || task.status == TaskStatus::AwaitingHuman;
    let status = if is_over { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(task)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/v1/tasks/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// The query of a list of tasks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskListQuery {
    /// Only tasks in this status.
    status: Option<TaskStatus>,
    /// Only tasks of this agent or workflow.
    agent: Option<String>,
    /// Only direct parts of this task.
    parent: Option<TaskId>,
    /// True to list the parts of tasks too.
    #[serde(default)]
    parts: bool,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// The number of items, from 1 to 1000.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: PageLimit,
}

/// Lists tasks, newest first.
async fn list(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<TaskListQuery>,
) -> Result<Json<Page<Task>>, Problem> {
    let TaskListQuery { status, agent, parent, parts, cursor, limit } = query;
    let limit = limit.get()?;
    let label = format!("{status:?} {agent:?} {parent:?} {parts}");
    let cursor = cursor.map(|text| Cursor::read(&text, &label)).transpose()?;
    let filter = TaskFilter {
        statuses: status.into_iter().collect(),
        assigned_agent: agent,
        parent,
        roots_only: !parts && parent.is_none(),
        created_before: cursor.map(|cursor| JournalPosition(cursor.position)),
        // One more shows that there is another page.
        limit: Some(limit + 1),
        ..TaskFilter::default()
    };
    let queries = state.host.queries();
    let mut rows = queries.rows_by_shown_status(filter).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let last = rows.last().map(|row| row.created_position.0);
    let next = last.filter(|_| has_more).map(|last| Cursor::new(&label, last).text());
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        if is_visible(&state, &caller, &row).await? {
            items.push(queries.task_of(&row).await?);
        }
    }
    Ok(Json(Page { items, next_cursor: next }))
}

/// True if the caller may see a task: by the agent or workflow of its root.
pub(super) async fn is_visible(
    state: &ServerState,
    caller: &ApiCaller,
    row: &TaskRow,
) -> Result<bool, Problem> {
    if caller.grant.agents().is_none() {
        return Ok(true);
    }
    let mut root: Name = row.assigned_agent.clone();
    let mut parent = row.parent_task_id;
    while let Some(id) = parent {
        let row = state.host.queries().task_row(id).await?;
        (root, parent) = (row.assigned_agent, row.parent_task_id);
    }
    Ok(caller.grant.may_use(&root))
}

/// The task of a path, if the caller may see it.
pub(super) async fn find_row(
    state: &ServerState,
    caller: &ApiCaller,
    id: TaskId,
) -> Result<TaskRow, Problem> {
    let row = state.host.queries().store().task_row(id).await?;
    let missing = || {
        Problem::not_found(format!("there is no task {id}")).hint("GET /api/v1/tasks lists them")
    };
    let row = row.ok_or_else(missing)?;
    if is_visible(state, caller, &row).await? { Ok(row) } else { Err(missing()) }
}

/// The query of one task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    /// The time to wait for the task to end or to ask a person, such as `30s`.
    #[schemars(with = "Option<String>", regex(pattern = WAIT_PATTERN))]
    wait: Option<WaitTime>,
}

async fn show(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<ShowQuery>,
) -> Result<Json<Task>, Problem> {
    find_row(&state, &caller, id).await?;
    if let Some(WaitTime(time)) = query.wait {
        wait_for_end(&state, id, time).await?;
    }
    Ok(Json(state.host.queries().load_task(id).await?))
}

async fn trace(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Response, Problem> {
    let row = find_row(&state, &caller, id).await?;
    Ok(Json(state.host.queries().trace(&row).await?).into_response())
}

async fn checkpoints(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Response, Problem> {
    find_row(&state, &caller, id).await?;
    let items = state.host.queries().checkpoints(id, |_| true).await?;
    Ok(Json(Page { items, next_cursor: None }).into_response())
}

//! `POST /api/v1/tasks/cancel`: cancels all tasks that match a filter.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::EngineError;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::TaskFilter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::is_visible;
use crate::api::route::Route;
use crate::auth::{ApiCaller, Scope};
use crate::http::{ApiJson, Problem, ProblemDetails};
use crate::state::ServerState;

/// The most tasks that one request cancels.
const CANCELLED_TASKS_MAX: usize = 1000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/v1/tasks/cancel",
            "cancelTasks",
            Scope::Run,
            "Cancels all active tasks that match a filter, at most 1000 at a time.",
            cancel_many,
        )
        .takes::<CancelFilter>()
        .example(json!({"agent": "greeter"}))
        .answers::<CancelReport>(200),
    ]
}

/// An active status.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ActiveStatus {
    /// It waits in line.
    Pending,
    /// It runs.
    Running,
    /// It waits for a person.
    AwaitingHuman,
}

impl From<ActiveStatus> for TaskStatus {
    fn from(status: ActiveStatus) -> Self {
        match status {
            ActiveStatus::Pending => Self::Pending,
            ActiveStatus::Running => Self::Running,
            ActiveStatus::AwaitingHuman => Self::AwaitingHuman,
        }
    }
}

/// The tasks to cancel. `all` must be true if nothing else narrows them down.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "if" = {"required": ["all"], "properties": {"all": {"const": true}}},
    "else" = {"anyOf": [
        {"required": ["agent"], "properties": {"agent": {"type": "string"}}},
        {"required": ["status"], "properties": {"status": {"type": "string"}}},
    ]},
))]
struct CancelFilter {
    /// True to cancel every active task.
    #[serde(default)]
    all: bool,
    /// Only tasks of this agent or workflow.
    #[serde(default)]
    agent: Option<String>,
    /// Only tasks in this status.
    #[serde(default)]
    status: Option<ActiveStatus>,
}

/// The result of a request to cancel tasks.
#[derive(Debug, Serialize, JsonSchema)]
struct CancelReport {
    /// The tasks that are cancelled, or that their process was asked to end.
    #[schemars(with = "Vec<String>")]
    cancelled: Vec<TaskId>,
    /// The tasks that could not be cancelled.
    failed: Vec<CancelFailure>,
    /// True if more tasks match: repeat the request.
    has_more: bool,
}

/// A task that could not be cancelled.
#[derive(Debug, Serialize, JsonSchema)]
struct CancelFailure {
    /// The task.
    #[schemars(with = "String")]
    task_id: TaskId,
    /// The problem.
    problem: ProblemDetails,
}

async fn cancel_many(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    body: ApiJson<CancelFilter>,
) -> Result<Json<CancelReport>, Problem> {
    let CancelFilter { all, agent, status } = body.value;
    if !all && agent.is_none() && status.is_none() {
        return Err(Problem::unprocessable("nothing says which tasks to cancel")
            .field("all")
            .hint("name an agent or a status, or set all to true"));
    }
    let active = [TaskStatus::Pending, TaskStatus::Running, TaskStatus::AwaitingHuman];
    let filter = TaskFilter {
        statuses: status.map_or(active.to_vec(), |status| vec![status.into()]),
        assigned_agent: agent,
        roots_only: true,
        ..TaskFilter::default()
    };
    let mut report = CancelReport { cancelled: Vec::new(), failed: Vec::new(), has_more: false };
    for row in state.host.queries().rows_by_shown_status(filter).await? {
        if !is_visible(&state, &caller, &row).await? {
            continue;
        }
        if report.cancelled.len() + report.failed.len() == CANCELLED_TASKS_MAX {
            report.has_more = true;
            break;
        }
        match state.host.runtime().cancel(row.id).await {
            Ok(_) => report.cancelled.push(row.id),
            // It has ended since it was listed.
            Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
            Err(error) => {
                let problem = Problem::from(error).into_details();
                report.failed.push(CancelFailure { task_id: row.id, problem });
            }
        }
    }
    Ok(Json(report))
}

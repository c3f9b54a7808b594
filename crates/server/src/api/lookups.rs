//! Lookups for command lines and other clients of people: ids by their beginning, the number of parts
//! of tasks, and the record of an execution.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::executions::find_execution;
use super::route::Route;
use super::tasks::find_row;
use crate::auth::ApiCaller;
use crate::http::{ApiPath, ApiQuery, Page, Problem};
use crate::state::ServerState;

/// The most ids that a beginning is expanded to.
const IDS_MAX: u32 = 10;

/// The length of a whole id.
const ID_CHARACTERS: usize = 36;

/// The most tasks whose parts one request counts.
const COUNTED_TASKS_MAX: usize = 500;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/v1/ids", "findIds", "Finds ids by their beginning, at most ten.", ids)
            .query::<IdQuery>()
            .answers::<Page<String>>(200),
        Route::get(
            "/api/v1/part-counts",
            "countParts",
            "Counts the tasks in the tree below each of some tasks.",
            part_counts,
        )
        .query::<PartCountQuery>()
        .answers::<Page<u64>>(200),
        Route::get(
            "/api/v1/executions/{execution_id}/record",
            "showExecutionRecord",
            "Shows every run of an execution.",
            execution_record,
        )
        .answers::<Map<String, Value>>(200),
    ]
}

/// A kind of record.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum IdKind {
    /// Tasks.
    Task,
    /// Executions.
    Execution,
}

/// The beginning of an id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct IdQuery {
    /// The kind of record.
    kind: IdKind,
    /// The first characters of the id.
    #[schemars(regex(pattern = "^[0-9A-Fa-f-]{1,36}$"))]
    prefix: String,
}

async fn ids(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<IdQuery>,
) -> Result<Json<Page<String>>, Problem> {
    let prefix = query.prefix.to_lowercase();
    let can_be_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    if !(1..=ID_CHARACTERS).contains(&prefix.len()) || !prefix.chars().all(can_be_id) {
        let detail = format!("\"{prefix}\" does not begin an id");
        return Err(Problem::unprocessable(detail).field("prefix"));
    }
    let store = state.host.queries().store();
    let mut items = Vec::new();
    match query.kind {
        IdKind::Task => {
            for id in store.task_ids_by_prefix(&prefix, IDS_MAX).await? {
                if find_row(&state, &caller, id).await.is_ok() {
                    items.push(id.to_string());
                }
            }
        }
        IdKind::Execution => {
            for id in store.execution_ids_by_prefix(&prefix, IDS_MAX).await? {
                if find_execution(&state, &caller, id).await.is_ok() {
                    items.push(id.to_string());
                }
            }
        }
    }
    Ok(Json(Page { items, next_cursor: None }))
}

/// The form of a list of ids.
const IDS_PATTERN: &str = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\
                           (,[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}){0,499}$";

/// The tasks whose parts are counted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PartCountQuery {
    /// The ids of the tasks, separated by commas; at most 500.
    #[schemars(regex(pattern = IDS_PATTERN))]
    tasks: String,
}

async fn part_counts(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiQuery(query): ApiQuery<PartCountQuery>,
) -> Result<Json<Page<u64>>, Problem> {
    let wrong = |text: &str| {
        Problem::unprocessable(format!("\"{text}\" is not the id of a task")).field("tasks")
    };
    let ids = query.tasks.split(',').map(|text| text.parse().map_err(|_| wrong(text)));
    let ids = ids.collect::<Result<Vec<TaskId>, Problem>>()?;
    if ids.len() > COUNTED_TASKS_MAX {
        let detail = format!("{} tasks, and at most {COUNTED_TASKS_MAX} are counted", ids.len());
        return Err(Problem::unprocessable(detail).field("tasks"));
    }
    let mut items = Vec::with_capacity(ids.len());
    for id in ids {
        find_row(&state, &caller, id).await?;
        items.push(state.host.queries().count_parts(id).await?);
    }
    Ok(Json(Page { items, next_cursor: None }))
}

async fn execution_record(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<ExecutionId>,
) -> Result<Json<AgentExecution>, Problem> {
    Ok(Json(find_execution(&state, &caller, id).await?))
}

//! `/api/v1/tasks/{task_id}/logs`: the output of a task's programs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use polity_host::{OutputPart, OutputRange, OutputStream, read_output};
use polity_model::ids::{ExecutionId, TaskId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::find_row;
use crate::api::route::Route;
use crate::auth::ApiCaller;
use crate::http::{ApiPath, ApiQuery, Page, Problem, run_blocking};
use crate::state::ServerState;

/// The most bytes of each stream in one answer.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// The bytes of each stream in one answer, unless the request says otherwise.
const LOG_BYTES_DEFAULT: u64 = 64 << 10;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/v1/tasks/{task_id}/logs",
            "readLogs",
            "Reads the output of its programs, without secrets. Repeat with `execution_id`, `stream` \
             and `after` set to the item's `next_after` to read on.",
            logs,
        )
        .query::<LogQuery>()
        .answers::<Page<Map<String, Value>>>(200),
    ]
}

/// A stream of a program, in a query.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum LogStream {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
}

impl From<LogStream> for OutputStream {
    fn from(stream: LogStream) -> Self {
        match stream {
            LogStream::Stdout => Self::Stdout,
            LogStream::Stderr => Self::Stderr,
        }
    }
}

/// The query of logs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    /// Only this execution.
    execution_id: Option<ExecutionId>,
    /// Only this stream.
    stream: Option<LogStream>,
    /// The offset, in bytes, at which each stream is read.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    after: u64,
    /// The most bytes of each stream, from 4 to 1048576.
    #[schemars(range(min = 4, max = LOG_BYTES_MAX))]
    limit: Option<u64>,
}

async fn logs(
    State(state): State<Arc<ServerState>>,
    caller: ApiCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<LogQuery>,
) -> Result<Json<Page<OutputPart>>, Problem> {
    find_row(&state, &caller, id).await?;
    let LogQuery { execution_id, stream, after, limit } = query;
    let bytes_max = limit.unwrap_or(LOG_BYTES_DEFAULT);
    if !(4..=LOG_BYTES_MAX).contains(&bytes_max) {
        let detail = format!("limit is {bytes_max}, and must be from 4 to {LOG_BYTES_MAX}");
        return Err(Problem::unprocessable(detail).field("limit"));
    }
    let range = OutputRange { after, bytes_max };
    let mut executions = state.host.queries().store().executions(id).await?;
    if let Some(wanted) = execution_id {
        executions.retain(|execution| execution.id == wanted);
        if executions.is_empty() {
            let detail = format!("task {id} has no execution {wanted}");
            return Err(Problem::not_found(detail).field("execution_id"));
        }
    }
    let streams = match stream {
        Some(stream) => vec![stream.into()],
        None => OutputStream::ALL.to_vec(),
    };
    let context = state.context.clone();
    let items = run_blocking(move || {
        let mut items = Vec::new();
        for execution in &executions {
            items.extend(read_output(context.folder(), execution, &streams, range)?);
        }
        Ok::<_, polity_host::HostError>(items)
    });
    Ok(Json(Page { items: items.await?, next_cursor: None }))
}

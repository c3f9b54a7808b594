//! Lookup of tasks and executions by the beginning of their ids.

use polity_host::{HostError, LookupError, RecordKind};
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::task::Task;

use crate::client::ApiClient;
use crate::error::CliError;

/// The length of a whole id.
const ID_CHARACTERS: usize = 36;

/// The id of a task: whole, its beginning, or `last` for the newest.
pub(super) async fn find_task(client: &ApiClient, id: &str) -> Result<TaskId, CliError> {
    if id == "last" {
        let newest: Vec<Task> = client.list(&["tasks"], &[], Some(1)).await?;
        let none = || HostError::from(LookupError::NoneYet(RecordKind::Task)).into();
        return newest.first().map(|task| task.id).ok_or_else(none);
    }
    let id = expand(client, RecordKind::Task, "task", id).await?;
    id.parse().map_err(|_| not_found(RecordKind::Task, &id))
}

/// The id of an execution: whole, or its beginning.
pub(super) async fn find_execution(client: &ApiClient, id: &str) -> Result<ExecutionId, CliError> {
    let id = expand(client, RecordKind::Execution, "execution", id).await?;
    id.parse().map_err(|_| not_found(RecordKind::Execution, &id))
}

async fn expand(
    client: &ApiClient,
    kind: RecordKind,
    kind_name: &str,
    id: &str,
) -> Result<String, CliError> {
    let id = id.to_lowercase();
    match kind {
        RecordKind::Task | RecordKind::Run if id.is_empty() => {
            return Err(HostError::from(LookupError::EmptyId(kind)).into());
        }
        RecordKind::Execution | RecordKind::Session if id.is_empty() => {
            return Err(not_found(kind, &id));
        }
        RecordKind::Task | RecordKind::Run | RecordKind::Execution | RecordKind::Session => {}
    }
    // Such a text begins no id.
    let can_be_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    if id.len() > ID_CHARACTERS || !id.chars().all(can_be_id) {
        return Err(not_found(kind, &id));
    }
    let query = [("kind", kind_name.to_owned()), ("prefix", id.clone())];
    let mut found: Vec<String> = client.list(&["ids"], &query, None).await?;
    match (found.pop(), found.is_empty()) {
        (Some(id), true) => Ok(id),
        (Some(_), false) => {
            Err(HostError::from(LookupError::Ambiguous { kind, prefix: id }).into())
        }
        (None, _) => Err(not_found(kind, &id)),
    }
}

fn not_found(kind: RecordKind, id: &str) -> CliError {
    HostError::from(LookupError::NotFound { kind, id: id.to_owned() }).into()
}

//! Export of a task, with every task that it belongs to or that belongs to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_store::{PinnedDefinition, TaskImport, TaskRow};

use super::folder::{FolderOutcome, write_folders};
use super::staging::StagedTasks;
use super::{ArchiveError, without_trust};
use crate::error::HostError;
use crate::queries::HomeQueries;

/// The most attempts to read a task that changes while it is read.
const ATTEMPTS_MAX: u32 = 50;

/// The most new events that are checked for changes of the exported tasks.
const HEADERS_MAX: u32 = 1000;

/// A task whose folder an export has written or found.
pub struct ExportedTask {
    /// The task.
    pub task: TaskId,
    /// The number of its files.
    pub files: usize,
    /// The result of writing its folder.
    pub outcome: FolderOutcome,
}

/// Writes a task and all that belongs to it below `out`. The task itself is last in the list.
pub async fn export_task(
    queries: &HomeQueries,
    row: &TaskRow,
    out: &Path,
    force: bool,
) -> Result<Vec<ExportedTask>, HostError> {
    let tasks = export_files(queries, row).await?;
    let outcomes = write_folders(out, row.id, &tasks, force)?;
    let exported = tasks.into_iter().zip(outcomes);
    let exported =
        exported.map(|((task, files), outcome)| ExportedTask { task, files: files.len(), outcome });
    Ok(exported.collect())
}

/// The files of a task, by name.
pub type TaskFiles = BTreeMap<String, Vec<u8>>;

/// The files of a task and all that belongs to it. The task itself is last in the list.
pub async fn export_files(
    queries: &HomeQueries,
    row: &TaskRow,
) -> Result<Vec<(TaskId, TaskFiles)>, HostError> {
    if let Some(parent) = row.parent_task_id {
        return Err(ArchiveError::PartOfTask { task: row.id, parent }.into());
    }
    let staged = StagedTasks::new(collect(queries, row.id).await?)
        .map_err(|error| ArchiveError::Contradiction { task: row.id, error })?;
    let mut tasks: Vec<(TaskId, TaskFiles)> = Vec::new();
    for import in staged.imports() {
        let interrupted = queries.is_interrupted(&staged.row(import.task).await?).await?;
        tasks.push((import.task, staged.files(import, interrupted).await?));
    }
    // Written last, the folder of the task itself implies that all others are there.
    tasks.sort_by_key(|(task, _)| *task == row.id);
    Ok(tasks)
}

/// Reads a task, its parts, and the tasks that forks among them share a history with, all as of one
/// moment.
async fn collect(queries: &HomeQueries, task: TaskId) -> Result<Vec<TaskImport>, HostError> {
    let store = queries.store();
    for _ in 0..ATTEMPTS_MAX {
        let before = store.last_position().await?;
        let tasks = related_tasks(queries, task).await?;
        let mut imports = Vec::with_capacity(tasks.len());
        for task in &tasks {
            imports.push(read_task(queries, *task).await?);
        }
        let newer = store.headers_after(before, HEADERS_MAX).await?;
        let changed = newer.iter().any(|header| match &header.stream {
            StreamId::Task(id) => tasks.contains(id),
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => false,
        });
        // A part may have been created since the related tasks were listed.
        let is_complete = newer.len() < HEADERS_MAX as usize;
        if !changed && is_complete && related_tasks(queries, task).await? == tasks {
            return Ok(imports);
        }
    }
    Err(HostError::ChangingTask(task))
}

async fn related_tasks(queries: &HomeQueries, task: TaskId) -> Result<BTreeSet<TaskId>, HostError> {
    let (mut related, mut waiting) = (BTreeSet::new(), vec![task]);
    while let Some(task) = waiting.pop() {
        let Some(row) = queries.store().task_row(task).await? else { continue };
        if related.insert(task) {
            waiting.extend(queries.parts(task).await?.iter().map(|part| part.id));
            waiting.extend(row.forked_from.iter().chain(&row.parent_task_id));
        }
    }
    Ok(related)
}

async fn read_task(queries: &HomeQueries, task: TaskId) -> Result<TaskImport, HostError> {
    let recorded = queries.events(task, StreamSequence::default()).await?;
    let mut definitions = Vec::new();
    if let Some(Event::TaskCreated(created)) = recorded.first().map(|first| &first.event) {
        for pin in &created.pins {
            let json = queries.store().definition(&pin.digest).await?;
            let json =
                json.ok_or_else(|| HostError::LostDefinition { task, name: pin.name.to_string() })?;
            definitions.push(PinnedDefinition { digest: pin.digest, json: json.into() });
        }
    }
    let mut events: Vec<_> =
        recorded.into_iter().map(|recorded| (recorded.at, recorded.event)).collect();
    events.truncate(without_trust(&events));
    Ok(TaskImport { task, events, definitions })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polity_store::{MemoryLeases, MemoryStore, Store};
    use polity_testkit::task_fixtures::{
        claimed, commit, created, created_under, definition, forked, instance_id, task_id,
    };

    use super::*;

    #[tokio::test]
    async fn fork_is_exported_with_the_tasks_it_shares_history_with() {
        let store = MemoryStore::new();
        // 2 is a part of 1, 3 a fork of 1, and 4 a fork of 2; 5 is unrelated.
        for (number, first) in [
            (1, created("top")),
            (2, created_under(Some(task_id(1)), "part")),
            (3, forked(task_id(1), 2)),
            (4, forked(task_id(2), 2)),
            (5, created("other")),
        ] {
            let mut begun =
                commit(task_id(number), 0, Some(1), vec![first, claimed(instance_id(1), 1)]);
            begun.definitions.push(definition());
            store.commit(begun).wait().unwrap();
        }
        let queries = HomeQueries::new(Arc::new(store), Arc::new(MemoryLeases::default()));
        for (asked_for, expected) in
            [(1, [1, 2].as_slice()), (3, &[1, 2, 3]), (4, &[1, 2, 4]), (5, &[5])]
        {
            let collected = collect(&queries, task_id(asked_for)).await.unwrap();
            let staged = StagedTasks::new(collected).unwrap();
            let ids: Vec<_> = staged.imports().iter().map(|import| import.task).collect();
            let expected: Vec<_> = expected.iter().map(|number| task_id(*number)).collect();
            assert_eq!(ids, expected);
            assert!(staged.imports().iter().all(|import| import.definitions == [definition()]));
        }
    }
}

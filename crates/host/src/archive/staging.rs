//! Tasks in a store in memory, where they are checked before they reach files or the real store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polity_engine::runtime::{EngineError, load_task};
use polity_model::event::{Event, StreamSequence};
use polity_model::ids::TaskId;
use polity_store::{ImportError, MemoryLeases, MemoryStore, Store, TaskImport, TaskRow};
use serde::Serialize;

use super::{
    ArchiveError, CHECKPOINT_PREFIX, JOURNAL_FILE, TASK_FILE, TRACE_FILE, creation, journal,
};
use crate::error::HostError;
use crate::queries::HomeQueries;
use crate::to_pretty_json;

/// The number of checkpoints between turns of an agent that an archive has as files.
const TURN_CHECKPOINT_FILES_MAX: usize = 20;

/// The tasks of one archive, with every task they refer to.
pub(super) struct StagedTasks {
    queries: HomeQueries,
    imports: Vec<TaskImport>,
}

/// A contradiction in the events of a task that the store does not notice.
pub(super) struct TaskContradiction {
    /// The first event that contradicts; none if a definition does.
    pub(super) sequence: Option<StreamSequence>,
    /// The contradiction.
    pub(super) reason: String,
}

impl StagedTasks {
    /// Applies the events of every task. The state machines hold here as in any store.
    pub(super) fn new(mut imports: Vec<TaskImport>) -> Result<Self, ImportError> {
        sort_by_dependency(&mut imports);
        let store = MemoryStore::new();
        store.import(imports.clone()).wait()?;
        // No process owns a staged task, so the registry stays empty.
        let queries = HomeQueries::new(Arc::new(store), Arc::new(MemoryLeases::default()));
        Ok(Self { queries, imports })
    }

    /// The tasks, each after those that it is a part or a fork of.
    pub(super) fn imports(&self) -> &[TaskImport] {
        &self.imports
    }

    /// The tasks, for import into another store.
    pub(super) fn into_imports(self) -> Vec<TaskImport> {
        self.imports
    }

    /// The row of a task.
    pub(super) async fn row(&self, task: TaskId) -> Result<TaskRow, HostError> {
        self.queries.task_row(task).await
    }

    /// The files of a task by name. The events do not show whether it is interrupted.
    pub(super) async fn files(
        &self,
        import: &TaskImport,
        interrupted: bool,
    ) -> Result<BTreeMap<String, Vec<u8>>, HostError> {
        let id = import.task;
        let row = self.row(id).await?;
        let mut task = self.queries.store().task(&row).await?;
        task.interrupted = interrupted;
        let not_serializable = |error| ArchiveError::NotSerializable { task: id, error };
        let journal = journal::write(import).map_err(not_serializable)?;
        let mut files = BTreeMap::from([
            (TASK_FILE.to_owned(), json(&task, id)?),
            (TRACE_FILE.to_owned(), json(&self.queries.trace(&row).await?, id)?),
            (JOURNAL_FILE.to_owned(), journal),
        ]);
        let left_out = left_out_turns(import);
        for checkpoint in self.queries.checkpoints(id, |n| !left_out.contains(&n)).await? {
            let name = format!("{CHECKPOINT_PREFIX}{:03}.json", checkpoint.sequence);
            files.insert(name, json(&checkpoint, id)?);
        }
        Ok(files)
    }

    /// Loads a task as the runtime does, and finds the first event that contradicts.
    pub(super) async fn find_contradiction(
        &self,
        import: &TaskImport,
    ) -> Result<Option<TaskContradiction>, HostError> {
        let reason = match self.load(import.task).await {
            Ok(()) => return Ok(None),
            Err(EngineError::Broken { reason, .. }) => reason,
            Err(EngineError::Pinned(error)) => {
                let reason = error.to_string();
                return Ok(Some(TaskContradiction { sequence: None, reason }));
            }
            Err(other) => return Err(other.into()),
        };
        // The shortest prefix that fails ends with the contradicting event.
        let (mut sound, mut broken) = (0, import.events.len());
        while broken - sound > 1 {
            let middle = usize::midpoint(sound, broken);
            if self.loads_up_to(import, middle).await? { sound = middle } else { broken = middle }
        }
        Ok(Some(TaskContradiction { sequence: Some(StreamSequence(broken as u64)), reason }))
    }

    async fn loads_up_to(&self, import: &TaskImport, events: usize) -> Result<bool, HostError> {
        let mut imports = self.imports.clone();
        for other in &mut imports {
            if other.task == import.task {
                other.events.truncate(events);
            }
        }
        let staged = Self::new(imports).map_err(ArchiveError::Refused)?;
        Ok(staged.load(import.task).await.is_ok())
    }

    async fn load(&self, task: TaskId) -> Result<(), EngineError> {
        load_task(&**self.queries.store(), task).await.map(drop)
    }
}

/// The checkpoints between turns that have no file: all but the newest. Each file has the whole
/// conversation so far, so that files of all turns would grow with the square of its length. The
/// journal has them all.
fn left_out_turns(import: &TaskImport) -> BTreeSet<u32> {
    let turns = import.events.iter().filter_map(|(_, event)| {
        let Event::ModelCalled { checkpoint, .. } = event else { return None };
        checkpoint.map(|taken| taken.sequence)
    });
    let turns: Vec<u32> = turns.collect();
    let count = turns.len().saturating_sub(TURN_CHECKPOINT_FILES_MAX);
    turns.into_iter().take(count).collect()
}

fn json(value: &impl Serialize, task: TaskId) -> Result<Vec<u8>, ArchiveError> {
    to_pretty_json(value).map_err(|error| ArchiveError::NotSerializable { task, error })
}

/// Sorts tasks so that each follows those that it is a part or a fork of, and else by age.
fn sort_by_dependency(imports: &mut [TaskImport]) {
    let above: BTreeMap<TaskId, Vec<TaskId>> =
        imports.iter().map(|import| (import.task, dependencies(import).collect())).collect();
    let depth = |task: TaskId| {
        let (mut depth, mut layer, mut passed) = (0, vec![task], BTreeSet::from([task]));
        loop {
            let next = layer.iter().filter_map(|task| above.get(task)).flatten().copied();
            layer = next.filter(|task| passed.insert(*task)).collect();
            if layer.is_empty() {
                return depth;
            }
            depth += 1;
        }
    };
    imports.sort_by_cached_key(|import| {
        (depth(import.task), import.events.first().map(|(at, _)| *at), import.task)
    });
}

/// The tasks that this one is a part or a fork of.
pub(super) fn dependencies(import: &TaskImport) -> impl Iterator<Item = TaskId> {
    let created = creation(import);
    let parent = created.and_then(|created| created.parent_task_id);
    let origin = created.and_then(|created| created.forked_from).map(|point| point.task_id);
    parent.into_iter().chain(origin)
}

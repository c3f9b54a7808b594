//! Tasks in a store of their own, where they can be looked at before anyone sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polity_engine::runtime::{EngineError, load};
use polity_model::event::StreamSequence;
use polity_model::ids::TaskId;
use polity_store::{Import, ImportError, MemoryStore, Store, TaskRow};

use super::{CHECKPOINT_PREFIX, JOURNAL_FILE, TASK_FILE, TRACE_FILE, creation, journal};
use crate::app::block_on;
use crate::commands::{checkpoints_of_task, trace_of};
use crate::error::CliError;
use crate::view::pretty;

/// Tasks of one archive, together with all that they refer to.
pub(crate) struct Stage {
    store: Arc<dyn Store>,
    imports: Vec<Import>,
}

/// A task whose events make no sense, though each could have been written.
pub(super) struct Broken {
    /// The first event that makes none; nothing where the definitions are to blame.
    pub(super) sequence: Option<StreamSequence>,
    /// Why.
    pub(super) reason: String,
}

impl Stage {
    /// Follows the events of every task. The state machines hold here as in any store.
    pub(crate) fn of(mut imports: Vec<Import>) -> Result<Self, ImportError> {
        in_order(&mut imports);
        let store = MemoryStore::new();
        store.import(imports.clone())?;
        Ok(Self { store: Arc::new(store), imports })
    }

    /// The tasks, each behind those that it is a part or a fork of.
    pub(crate) fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// The tasks, to be taken in elsewhere.
    pub(crate) fn into_imports(self) -> Vec<Import> {
        self.imports
    }

    /// A task's row.
    pub(crate) fn row(&self, task: TaskId) -> Result<TaskRow, CliError> {
        let row = self.store.task_row(task)?;
        row.ok_or_else(|| CliError::not_found(format!("there is no task {task}")))
    }

    /// The files of a task by name. Whether it is interrupted is not in its events.
    pub(crate) fn files(
        &self,
        import: &Import,
        interrupted: bool,
    ) -> Result<BTreeMap<String, Vec<u8>>, CliError> {
        let row = self.row(import.task)?;
        let mut task = self.store.task(&row)?;
        task.interrupted = interrupted;
        let journal = journal::write(import).map_err(|error| {
            CliError::archive(format!("task {} cannot be written: {error}", import.task))
        })?;
        let mut files = BTreeMap::from([
            (TASK_FILE.to_owned(), pretty(&task)?),
            (TRACE_FILE.to_owned(), pretty(&trace_of(&*self.store, &row)?)?),
            (JOURNAL_FILE.to_owned(), journal),
        ]);
        for checkpoint in checkpoints_of_task(&*self.store, import.task)? {
            let name = format!("{CHECKPOINT_PREFIX}{:03}.json", checkpoint.sequence);
            files.insert(name, pretty(&checkpoint)?);
        }
        Ok(files)
    }

    /// Folds a task as whoever runs it would, and finds the first event that cannot be.
    pub(super) fn fold(&self, import: &Import) -> Result<Result<(), Broken>, CliError> {
        let reason = match self.load(import.task) {
            Ok(()) => return Ok(Ok(())),
            Err(EngineError::Broken { reason, .. }) => reason,
            Err(EngineError::Pinned(error)) => {
                return Ok(Err(Broken { sequence: None, reason: error.to_string() }));
            }
            Err(other) => return Err(other.into()),
        };
        // The shortest beginning that fails ends with the event that is to blame.
        let (mut sound, mut broken) = (0, import.events.len());
        while broken - sound > 1 {
            let middle = usize::midpoint(sound, broken);
            if self.folds_up_to(import, middle)? { sound = middle } else { broken = middle }
        }
        Ok(Err(Broken { sequence: Some(StreamSequence(broken as u64)), reason }))
    }

    fn folds_up_to(&self, import: &Import, events: usize) -> Result<bool, CliError> {
        let mut imports = self.imports.clone();
        for other in &mut imports {
            if other.task == import.task {
                other.events.truncate(events);
            }
        }
        let stage = Self::of(imports).map_err(CliError::archive)?;
        Ok(stage.load(import.task).is_ok())
    }

    fn load(&self, task: TaskId) -> Result<(), EngineError> {
        let (store, loaded) = (&self.store, &mut Ok(()));
        // Only the outcome counts; what was loaded is dropped.
        let ran = block_on(async {
            *loaded = load(store, task).await.map(drop);
            Ok(())
        });
        match (ran, std::mem::replace(loaded, Ok(()))) {
            (_, Err(error)) => Err(error),
            (Ok(()), Ok(())) => Ok(()),
            (Err(_), Ok(())) => Err(EngineError::Left(task)),
        }
    }
}

/// Sorts tasks so that each stands behind those that it is a part or a fork of, and else by age.
fn in_order(imports: &mut [Import]) {
    let above: BTreeMap<TaskId, Vec<TaskId>> =
        imports.iter().map(|import| (import.task, needs(import).collect())).collect();
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

/// The tasks without which this one makes no sense: those that it is a part or a fork of.
pub(super) fn needs(import: &Import) -> impl Iterator<Item = TaskId> {
    let created = creation(import);
    let parent = created.and_then(|created| created.parent_task_id);
    let origin = created.and_then(|created| created.forked_from).map(|point| point.task_id);
    parent.into_iter().chain(origin)
}

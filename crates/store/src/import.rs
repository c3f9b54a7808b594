//! Taking in tasks that happened in another store.

use jiff::Timestamp;
use polity_model::event::{Event, JournalPosition, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};

use crate::StoreError;
use crate::commit::PinnedDefinition;
use crate::projection::{Changes, Refused, TaskRow};

/// A task that happened elsewhere, from its first event on.
#[derive(Debug, Clone)]
pub struct Import {
    /// The task.
    pub task: TaskId,
    /// Its events in order, each with the time it happened at.
    pub events: Vec<(Timestamp, Event)>,
    /// The definitions that it pinned.
    pub definitions: Vec<PinnedDefinition>,
}

/// Why tasks were not taken in. Nothing of them was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// There is such a task already.
    #[error("task {task} is here already")]
    Exists {
        /// The task.
        task: TaskId,
    },
    /// An event cannot follow on those before it.
    #[error("event {} of task {task} cannot have happened there: {reason}", sequence.0)]
    Illegal {
        /// The task.
        task: TaskId,
        /// The event.
        sequence: StreamSequence,
        /// Why not.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Import {
    /// Why a fork is not taken in whose origin is not there.
    pub(crate) fn orphaned(&self, origin: TaskId) -> ImportError {
        let Refused(reason) = TaskRow::orphaned(origin);
        ImportError::Illegal { task: self.task, sequence: StreamSequence(1), reason }
    }

    /// Follows the events from the first on. `is_taken` says whether another task has an execution
    /// of this id.
    pub(crate) fn changes(
        &self,
        first_position: JournalPosition,
        mut is_taken: impl FnMut(ExecutionId) -> Result<bool, StoreError>,
    ) -> Result<Changes, ImportError> {
        let stream = StreamId::Task(self.task);
        let mut changes = Changes::of(None);
        for (index, (at, event)) in self.events.iter().enumerate() {
            let mut failed = None;
            let load = |id| -> Result<Option<AgentExecution>, Refused> {
                match is_taken(id) {
                    Ok(false) => Ok(None),
                    Ok(true) => Err(Refused(format!("execution {id} is another task's"))),
                    Err(error) => Err(Refused(failed.insert(error).to_string())),
                }
            };
            let applied = changes.apply(&stream, first_position.plus(index), *at, event, load);
            match (applied, failed) {
                (_, Some(error)) => return Err(error.into()),
                (Ok(()), None) => {}
                (Err(Refused(reason)), None) => {
                    let (task, sequence) = (self.task, StreamSequence(index as u64 + 1));
                    return Err(ImportError::Illegal { task, sequence, reason });
                }
            }
        }
        if changes.row.is_none() {
            let reason = "a task begins with its creation".to_owned();
            return Err(ImportError::Illegal {
                task: self.task,
                sequence: StreamSequence(1),
                reason,
            });
        }
        // What was spent elsewhere counts there.
        changes.spent.clear();
        Ok(changes)
    }
}

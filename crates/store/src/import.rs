//! Imports: tasks copied from another store.

use jiff::Timestamp;
use polity_model::event::{Event, JournalPosition, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};

use crate::StoreError;
use crate::commit::PinnedDefinition;
use crate::projection::{IllegalEvent, ProjectionChanges, TaskRow};

/// A task of another store, from its first event on.
#[derive(Debug, Clone)]
pub struct TaskImport {
    /// The task.
    pub task: TaskId,
    /// Its events in order, each with its time.
    pub events: Vec<(Timestamp, Event)>,
    /// The definitions that it pinned.
    pub definitions: Vec<PinnedDefinition>,
}

/// The reason why an import was refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The store has such a task already.
    #[error("task {task} is here already")]
    Exists {
        /// The task.
        task: TaskId,
    },
    /// An event cannot follow the events before it.
    #[error("event {} of task {task} cannot have happened there: {reason}", sequence.0)]
    Illegal {
        /// The task.
        task: TaskId,
        /// The event.
        sequence: StreamSequence,
        /// The rule that it breaks.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TaskImport {
    /// The error for a fork whose origin is missing.
    pub(crate) fn orphaned(&self, origin: TaskId) -> ImportError {
        let IllegalEvent(reason) = TaskRow::orphaned(origin);
        ImportError::Illegal { task: self.task, sequence: StreamSequence(1), reason }
    }

    /// Projects the events. `is_taken` returns true if another task has an execution of this id.
    pub(crate) fn changes(
        &self,
        first_position: JournalPosition,
        mut is_taken: impl FnMut(ExecutionId) -> Result<bool, StoreError>,
    ) -> Result<ProjectionChanges, ImportError> {
        let stream = StreamId::Task(self.task);
        let mut changes = ProjectionChanges::new(None);
        for (index, (at, event)) in self.events.iter().enumerate() {
            let mut failed = None;
            let load = |id| -> Result<Option<AgentExecution>, IllegalEvent> {
                match is_taken(id) {
                    Ok(false) => Ok(None),
                    Ok(true) => Err(IllegalEvent(format!("execution {id} is another task's"))),
                    Err(error) => Err(IllegalEvent(failed.insert(error).to_string())),
                }
            };
            let applied = changes.apply(&stream, first_position.plus(index), *at, event, load);
            match (applied, failed) {
                (_, Some(error)) => return Err(error.into()),
                (Ok(()), None) => {}
                (Err(IllegalEvent(reason)), None) => {
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
        // The original store has already counted the spending.
        changes.spent.clear();
        Ok(changes)
    }
}

//! Removals: outcomes, and the reasons why a task cannot be removed.

use std::collections::BTreeSet;

use polity_model::ids::{ExecutionId, TaskId};
use polity_model::machine::task::TaskStatus;

use crate::projection::TaskRow;

/// The outcome for tasks that are removed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalOutcome {
    /// All of them are removed.
    Removed {
        /// The tasks that existed; another process may have removed some before.
        tasks: Vec<TaskId>,
        /// Their executions, which may have left files.
        executions: Vec<ExecutionId>,
    },
    /// None of them is removed.
    Refused {
        /// The task that cannot be removed.
        task: TaskId,
        /// The reason.
        blocker: RemovalBlocker,
    },
}

/// The reason why a task cannot be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalBlocker {
    /// It has not ended.
    NotEnded(TaskStatus),
    /// Its parent, this task, stays.
    Parent(TaskId),
    /// Its sub-task, this task, stays.
    SubTask(TaskId),
    /// Its fork, this task, stays: they share history.
    Fork(TaskId),
}

/// Returns the reason why a task cannot be removed together with the others of its unit. `parent`
/// is the task's parent if the store has it.
pub(crate) fn removal_blocker(
    unit: &BTreeSet<TaskId>,
    row: &TaskRow,
    parent: Option<TaskId>,
    sub_tasks: impl IntoIterator<Item = TaskId>,
    forks: impl IntoIterator<Item = TaskId>,
) -> Option<RemovalBlocker> {
    if !row.status.is_final() {
        return Some(RemovalBlocker::NotEnded(row.status));
    }
    let stays = |task: &TaskId| !unit.contains(task);
    parent
        .filter(stays)
        .map(RemovalBlocker::Parent)
        .or_else(|| sub_tasks.into_iter().find(stays).map(RemovalBlocker::SubTask))
        .or_else(|| forks.into_iter().find(stays).map(RemovalBlocker::Fork))
}

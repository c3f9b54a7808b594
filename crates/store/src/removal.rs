//! Removing tasks: what is asked, and why it is not done.

use std::collections::BTreeSet;

use polity_model::ids::{ExecutionId, TaskId};
use polity_model::machine::task::TaskStatus;

use crate::projection::TaskRow;

/// What became of tasks that were to be removed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// They are gone, with all that was theirs.
    Removed {
        /// Those that were there; others may have removed some before.
        tasks: Vec<TaskId>,
        /// Their executions, which may have left files.
        executions: Vec<ExecutionId>,
    },
    /// All of them stay.
    Refused {
        /// The task that stands in the way.
        task: TaskId,
        /// Why it does.
        because: Kept,
    },
}

/// Why a task cannot be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It has not ended.
    Alive(TaskStatus),
    /// It is a part of this one, which is to stay.
    PartOf(TaskId),
    /// This one is a part of it, and is to stay.
    HasPart(TaskId),
    /// This one is a fork of it, and is to stay: they share a history.
    SharedBy(TaskId),
}

/// Why a task cannot be removed together with the others of its unit, if it cannot. `parent` is
/// the task that it is a part of, where that is in the store.
pub(crate) fn kept(
    unit: &BTreeSet<TaskId>,
    row: &TaskRow,
    parent: Option<TaskId>,
    parts: impl IntoIterator<Item = TaskId>,
    forks: impl IntoIterator<Item = TaskId>,
) -> Option<Kept> {
    if !row.status.is_final() {
        return Some(Kept::Alive(row.status));
    }
    let stays = |task: &TaskId| !unit.contains(task);
    parent
        .filter(stays)
        .map(Kept::PartOf)
        .or_else(|| parts.into_iter().find(stays).map(Kept::HasPart))
        .or_else(|| forks.into_iter().find(stays).map(Kept::SharedBy))
}

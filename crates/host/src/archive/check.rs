//! The check of journals that are each well formed: together they must be possible.

use polity_model::ids::TaskId;
use polity_store::{ImportError, TaskImport};

use super::ancestry::find_ancestry_fault;
use super::journal::line_of;
use super::staging::{StagedTasks, dependencies};
use crate::error::HostError;

/// A reason to refuse journals.
pub(super) enum JournalSetFault {
    /// A task needs another that is not there.
    Missing { task: TaskId, missing: TaskId },
    /// A line contradicts the lines before it, or another journal.
    Line { task: TaskId, line: usize, message: String },
    /// A task is there twice.
    Duplicate(TaskId),
    /// The check itself failed.
    Failed(HostError),
}

/// Loads every task as the runtime does. Fails if a task needs another that is not there, is its own
/// ancestor, or has an event that is not possible where it is.
pub(super) async fn check_journals(
    imports: Vec<TaskImport>,
) -> Result<StagedTasks, JournalSetFault> {
    for import in &imports {
        let is_missing = |task: &TaskId| !imports.iter().any(|import| import.task == *task);
        if let Some(missing) = dependencies(import).find(is_missing) {
            return Err(JournalSetFault::Missing { task: import.task, missing });
        }
    }
    if let Some(fault) = find_ancestry_fault(&imports) {
        // The event that creates the task names its ancestors.
        return Err(JournalSetFault::Line { task: fault.task, line: 2, message: fault.message });
    }
    let impossible = |task, line, reason| JournalSetFault::Line {
        task,
        line,
        message: format!("this event is not valid here: {reason}"),
    };
    let staged = StagedTasks::new(imports).map_err(|error| match error {
        ImportError::Illegal { task, sequence, reason } => {
            impossible(task, line_of(sequence), reason)
        }
        ImportError::Exists { task } => JournalSetFault::Duplicate(task),
        ImportError::Store(error) => JournalSetFault::Failed(error.into()),
    })?;
    for import in staged.imports() {
        let contradiction = staged.find_contradiction(import).await;
        if let Some(found) = contradiction.map_err(JournalSetFault::Failed)? {
            let line = found.sequence.map_or(1, line_of);
            return Err(impossible(import.task, line, found.reason));
        }
    }
    Ok(staged)
}

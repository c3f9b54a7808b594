//! Tasks as files: `task export` writes them and `task import` reads them back.
//!
//! The folder of a task has `task.json`, `checkpoint_NNN.json` and `trace.json` for readers, and
//! `journal.jsonl`, from which the others follow. Both directions stage the tasks in a store in
//! memory: an export derives its files from the events that it writes, and an import derives them
//! again and compares.

mod ancestry;
mod check;
mod export;
mod folder;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod import;
mod journal;
mod staging;

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use polity_model::event::{Event, TaskCreated};
use polity_model::ids::TaskId;
use polity_store::{ImportError, TaskImport};

pub use export::{ExportedTask, TaskFiles, export_files, export_task};
pub use folder::FolderOutcome;
pub use import::{ImportReport, import_tasks};

/// The definitions and events of a task, one JSON document a line.
const JOURNAL_FILE: &str = "journal.jsonl";

/// The output of `task show --json`.
const TASK_FILE: &str = "task.json";

/// The output of `task trace --json`.
const TRACE_FILE: &str = "trace.json";

/// The prefix of checkpoint files.
const CHECKPOINT_PREFIX: &str = "checkpoint_";

/// The folder with one folder per task.
const TASKS_FOLDER: &str = "tasks";

/// The most bytes that an import reads of one file.
const ARCHIVE_FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// An archive that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ArchiveError {
    /// A file is missing or damaged.
    #[error(transparent)]
    Damaged(#[from] ArchiveDamage),
    /// The folder holds no exported task.
    #[error("there is no exported task in {}", .0.display())]
    Empty(PathBuf),
    /// The folder to write to exists.
    #[error("{} already exists", .0.display())]
    FolderExists(PathBuf),
    /// The task is a part of another, and is exported with that.
    #[error("task {task} is a part of task {parent}")]
    PartOfTask { task: TaskId, parent: TaskId },
    /// A task is twice in an archive.
    #[error("task {0} is there twice")]
    Duplicate(TaskId),
    /// The task cannot be serialized.
    #[error("task {task} cannot be written: {error}")]
    NotSerializable { task: TaskId, error: serde_json::Error },
    /// The events of a task to export contradict each other.
    #[error("task {task}: {error}")]
    Contradiction { task: TaskId, error: ImportError },
    /// The store has the task with other events.
    #[error("task {task} is already in this home and differs: {difference}")]
    Conflict { task: TaskId, difference: String },
    /// The store refused the import.
    #[error(transparent)]
    Refused(ImportError),
}

/// A file of an archive that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ArchiveDamage {
    file: PathBuf,
    line: Option<usize>,
    message: String,
}

impl ArchiveDamage {
    fn new(file: &Path, line: impl Into<Option<usize>>, message: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: line.into(), message: message.to_string() }
    }
}

impl fmt::Display for ArchiveDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The number of events before a task's import and the trust that a person gave it here: the
/// history that the task has in every home.
fn without_trust(events: &[(Timestamp, Event)]) -> usize {
    let is_trust = |(_, event): &&(Timestamp, Event)| event.needs_trust().is_some();
    events.len() - events.iter().rev().take_while(is_trust).count()
}

/// The creation event of a task, if that is its first.
fn creation(import: &TaskImport) -> Option<&TaskCreated> {
    match import.events.first() {
        Some((_, Event::TaskCreated(created))) => Some(created),
        Some(_) | None => None,
    }
}

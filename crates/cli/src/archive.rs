//! Tasks as files: what `task export` writes and `task import` reads back.
//!
//! A task's folder has the seed's `task.json`, `checkpoint_NNN.json` and `trace.json`, which are
//! for whoever wants to read them, and `journal.jsonl`, from which all of them follow. Both ways go
//! over a store in memory: what is exported is told from the events that are written, and what is
//! imported must tell the same again.

mod collect;
mod folder;
mod journal;
mod read;
mod stage;

use std::fmt;
use std::path::{Path, PathBuf};

use polity_model::event::{Event, TaskCreated};
use polity_store::Import;

pub(crate) use collect::collect;
pub(crate) use folder::{Written, write};
pub(crate) use read::read;
pub(crate) use stage::Stage;

/// The events and definitions of a task, one JSON document a line.
const JOURNAL_FILE: &str = "journal.jsonl";

/// What `task show --json` prints.
const TASK_FILE: &str = "task.json";

/// What `task trace --json` prints.
const TRACE_FILE: &str = "trace.json";

/// What the files of checkpoints begin with.
const CHECKPOINT_PREFIX: &str = "checkpoint_";

/// The folder that has a folder for each task.
const TASKS_FOLDER: &str = "tasks";

/// A file of an archive that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    file: PathBuf,
    line: Option<usize>,
    what: String,
}

impl Damage {
    fn new(file: &Path, line: impl Into<Option<usize>>, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: line.into(), what: what.to_string() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What a task's first event says, if it is what it must be.
fn creation(import: &Import) -> Option<&TaskCreated> {
    match import.events.first() {
        Some((_, Event::TaskCreated(created))) => Some(created),
        Some(_) | None => None,
    }
}

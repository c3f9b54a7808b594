//! Import of an archive, after every contradiction in it is ruled out.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use polity_definition::Home;
use polity_engine::clock::{Clock, SystemClock};
use polity_files::{RegularFileError, read_named_file};
use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::{ImportError, SqliteStore, Store, TaskImport};
use serde_json::Value;

use super::check::{JournalSetFault, check_journals};
use super::journal;
use super::staging::{StagedTasks, dependencies};
use super::{
    ARCHIVE_FILE_BYTES_MAX, ArchiveDamage, ArchiveError, CHECKPOINT_PREFIX, JOURNAL_FILE,
    TASK_FILE, TASKS_FOLDER, TRACE_FILE, without_trust,
};
use crate::context::HostContext;
use crate::error::HostError;

/// The result of an import.
pub struct ImportReport {
    /// The tasks that are new in the store.
    pub imported: Vec<TaskId>,
    /// The tasks that the store had already, with the same events.
    pub present: Vec<TaskId>,
    /// The store.
    pub store: SqliteStore,
}

/// Imports the tasks of an archive: all of them, or one with those that belong to it.
pub async fn import_tasks(
    context: &HostContext,
    home: &Home,
    folder: &Path,
) -> Result<ImportReport, HostError> {
    // The store is opened, and possibly created, only for a usable archive.
    let staged = read_archive(folder).await?;
    let store = context.open_writer(home)?;
    let (mut new, mut present) = (Vec::new(), Vec::new());
    for mut import in staged.into_imports() {
        if is_present(&store, &import).await? {
            present.push(import.task);
        } else {
            // Trust that was given in another home does not count here.
            import.events.push((SystemClock.now(), Event::TaskImported));
            new.push(import);
        }
    }
    let imported: Vec<TaskId> = new.iter().map(|import| import.task).collect();
    if !new.is_empty() {
        store.import(new).await.map_err(|error| match error {
            ImportError::Store(error) => HostError::from(error),
            ImportError::Exists { .. } | ImportError::Illegal { .. } => {
                ArchiveError::Refused(error).into()
            }
        })?;
    }
    Ok(ImportReport { imported, present, store })
}

/// True if the store has the task with the same events. Other events are a conflict.
async fn is_present(store: &dyn Store, import: &TaskImport) -> Result<bool, HostError> {
    let here = store.events(&StreamId::Task(import.task), StreamSequence::default()).await?;
    let here: Vec<_> = here.into_iter().map(|recorded| (recorded.at, recorded.event)).collect();
    if here.is_empty() {
        return Ok(false);
    }
    let here = &here[..without_trust(&here)];
    let there = &import.events[..without_trust(&import.events)];
    let same = here.iter().zip(there).take_while(|(here, there)| here == there).count();
    if same == here.len() && same == there.len() {
        return Ok(true);
    }
    let difference = match (here.len() > same, there.len() > same) {
        (true, true) => format!("they differ from event {} on", same + 1),
        (true, false) => "it has continued here since the export".to_owned(),
        (false, _) => "it had continued there before the export".to_owned(),
    };
    Err(ArchiveError::Conflict { task: import.task, difference }.into())
}

/// Reads an archive and checks that its files agree with each other byte for byte.
async fn read_archive(folder: &Path) -> Result<StagedTasks, HostError> {
    let archive = ArchiveFolder::open(folder)?;
    let imports = archive.journals()?.into_values().collect();
    let staged = check_journals(imports).await.map_err(|fault| match fault {
        JournalSetFault::Missing { task, missing } => {
            let message = format!("this needs task {missing}, which is not in {}", archive.name());
            archive.damage(task, JOURNAL_FILE, 2, message)
        }
        JournalSetFault::Line { task, line, message } => {
            archive.damage(task, JOURNAL_FILE, line, message)
        }
        JournalSetFault::Duplicate(task) => ArchiveError::Duplicate(task).into(),
        JournalSetFault::Failed(error) => error,
    })?;
    for import in staged.imports() {
        archive.compare(&staged, import).await?;
    }
    Ok(staged)
}

/// The folder with the task folders, and the tasks to import.
struct ArchiveFolder {
    tasks: PathBuf,
    asked_for: Vec<TaskId>,
}

impl ArchiveFolder {
    fn open(folder: &Path) -> Result<Self, HostError> {
        let tasks = folder.join(TASKS_FOLDER);
        if tasks.is_dir() {
            let asked_for = ids_in(&tasks)?;
            if asked_for.is_empty() {
                return Err(ArchiveError::Empty(tasks).into());
            }
            return Ok(Self { tasks, asked_for });
        }
        if !folder.is_dir() {
            return Err(ArchiveError::Empty(folder.to_owned()).into());
        }
        // Only the canonical form of `.` has a file name.
        let folder = folder.canonicalize().map_err(|error| HostError::io("read", folder, error))?;
        let name = folder.file_name().and_then(|name| name.to_str());
        match (name.and_then(|name| name.parse().ok()), folder.parent()) {
            (Some(id), Some(tasks)) => Ok(Self { tasks: tasks.to_owned(), asked_for: vec![id] }),
            (_, _) => Err(ArchiveError::Empty(folder).into()),
        }
    }

    fn name(&self) -> std::path::Display<'_> {
        self.tasks.display()
    }

    fn file(&self, task: TaskId, name: &str) -> PathBuf {
        self.tasks.join(task.to_string()).join(name)
    }

    fn damage(
        &self,
        task: TaskId,
        name: &str,
        line: impl Into<Option<usize>>,
        message: impl std::fmt::Display,
    ) -> HostError {
        damage(&self.file(task, name), line, message)
    }

    /// The journals of the requested tasks and of all that belong to them.
    fn journals(&self) -> Result<BTreeMap<TaskId, TaskImport>, HostError> {
        let mut journals = BTreeMap::new();
        let mut waiting = self.asked_for.clone();
        while let Some(task) = waiting.pop() {
            if journals.contains_key(&task) {
                continue;
            }
            let import = journal::read(&self.bytes(task, JOURNAL_FILE)?)
                .map_err(|fault| self.damage(task, JOURNAL_FILE, fault.line, fault.message))?;
            if import.task != task {
                let what = format!("this is the journal of task {}", import.task);
                return Err(self.damage(task, JOURNAL_FILE, 1, what));
            }
            let belonging = dependencies(&import).chain(self.parts(task)?);
            waiting.extend(belonging.filter(|task| self.file(*task, "").is_dir()));
            journals.insert(task, import);
        }
        Ok(journals)
    }

    /// The parts that the trace of a task names. A session has the id of its task.
    fn parts(&self, task: TaskId) -> Result<Vec<TaskId>, HostError> {
        let trace = self.json(task, TRACE_FILE)?;
        let sessions = trace.get("sub_agent_sessions").and_then(Value::as_object);
        Ok(sessions.into_iter().flatten().filter_map(|(id, _)| id.parse().ok()).collect())
    }

    /// Fails if the folder of a part is missing, which also changes the files of its parent.
    fn expect_parts(&self, task: TaskId) -> Result<(), HostError> {
        let missing = self.parts(task)?.into_iter().find(|part| !self.file(*part, "").is_dir());
        missing.map_or(Ok(()), |part| {
            let what = format!("the folder is missing; it is a part of task {task}");
            Err(damage(&self.tasks.join(part.to_string()), None, what))
        })
    }

    fn json(&self, task: TaskId, name: &str) -> Result<Value, HostError> {
        serde_json::from_slice(&self.bytes(task, name)?).map_err(|error| {
            let told = error.to_string();
            let what = told.split(" at line ").next().unwrap_or_default();
            self.damage(task, name, error.line(), format!("this is not JSON: {what}"))
        })
    }

    fn bytes(&self, task: TaskId, name: &str) -> Result<Vec<u8>, HostError> {
        let path = self.file(task, name);
        read_named_file(&path, ARCHIVE_FILE_BYTES_MAX).map_err(|error| match error {
            RegularFileError::Io(error) if error.kind() == ErrorKind::NotFound => {
                damage(&path, None, "the file is missing")
            }
            RegularFileError::Io(error) => HostError::io("read", &path, error),
            RegularFileError::TooLarge { bytes_max } => {
                let limit = "ARCHIVE_FILE_BYTES_MAX";
                damage(&path, None, format!("the file has more than {bytes_max} bytes ({limit})"))
            }
            error @ (RegularFileError::NotRegular(_) | RegularFileError::LinkedFolder(_)) => {
                damage(&path, None, error)
            }
        })
    }

    /// Compares the other files with those that follow from the journal.
    async fn compare(&self, staged: &StagedTasks, import: &TaskImport) -> Result<(), HostError> {
        let task = import.task;
        // Only the exporting home knew whether the task had a live owner.
        let interrupted = match staged.row(task).await?.status {
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman => {
                self.json(task, TASK_FILE)?.get("interrupted") == Some(&Value::Bool(true))
            }
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => false,
        };
        let expected = staged.files(import, interrupted).await?;
        for (name, bytes) in &expected {
            let found = self.bytes(task, name)?;
            if found == *bytes {
                continue;
            }
            if name != JOURNAL_FILE {
                self.json(task, name)?;
            }
            self.expect_parts(task)?;
            let line = first_difference(&found, bytes);
            let what = "this does not agree with the journal";
            return Err(self.damage(task, name, line, what));
        }
        for name in names_in(&self.file(task, ""))? {
            if name.starts_with(CHECKPOINT_PREFIX) && !expected.contains_key(&name) {
                let what = "the journal has no such checkpoint";
                return Err(self.damage(task, &name, None, what));
            }
        }
        Ok(())
    }
}

/// The first line in which two texts differ.
fn first_difference(found: &[u8], expected: &[u8]) -> usize {
    let same = found.iter().zip(expected).take_while(|(found, expected)| found == expected);
    1 + same.filter(|(byte, _)| **byte == b'\n').count()
}

fn damage(
    path: &Path,
    line: impl Into<Option<usize>>,
    message: impl std::fmt::Display,
) -> HostError {
    ArchiveError::from(ArchiveDamage::new(path, line, message)).into()
}

fn names_in(folder: &Path) -> Result<Vec<String>, HostError> {
    let io = |error| HostError::io("read", folder, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// The tasks that have a folder. A hidden folder is an unfinished export.
fn ids_in(tasks: &Path) -> Result<Vec<TaskId>, HostError> {
    let visible = names_in(tasks)?.into_iter().filter(|name| !name.starts_with('.'));
    visible
        .map(|name| {
            name.parse().map_err(|_| {
                let what = "a folder of an export is named by a task's id";
                damage(&tasks.join(&name), None, what)
            })
        })
        .collect()
}

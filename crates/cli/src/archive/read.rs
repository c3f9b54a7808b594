//! Reading an archive, and finding what is wrong with it before anything of it is used.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::{Import, ImportError};
use serde_json::Value;

use super::journal::{self, line_of};
use super::stage::{Stage, needs};
use super::{CHECKPOINT_PREFIX, Damage, JOURNAL_FILE, TASK_FILE, TASKS_FOLDER, TRACE_FILE};
use crate::error::CliError;

/// Reads the tasks of an archive: all that are in it, or one with those that belong to it. What
/// comes back agrees with itself to the byte.
pub(crate) fn read(folder: &Path) -> Result<Stage, CliError> {
    let archive = Archive::at(folder)?;
    let imports: Vec<Import> = archive.journals()?.into_values().collect();
    for import in &imports {
        if let Some(missing) = needs(import).find(|need| !archive.has(&imports, *need)) {
            let what = format!("this needs task {missing}, which is not in {}", archive.name());
            return Err(archive.damage(import.task, JOURNAL_FILE, 2, what).into());
        }
    }
    let stage = Stage::of(imports).map_err(|error| match error {
        ImportError::Illegal { task, sequence, reason } => {
            let what = format!("this cannot have happened here: {reason}");
            archive.damage(task, JOURNAL_FILE, line_of(sequence), what).into()
        }
        ImportError::Exists { task } => CliError::archive(format!("task {task} is there twice")),
        ImportError::Store(error) => error.into(),
    })?;
    for import in stage.imports() {
        if let Err(broken) = stage.fold(import)? {
            let line = broken.sequence.map_or(1, line_of);
            let what = format!("this cannot have happened here: {}", broken.reason);
            return Err(archive.damage(import.task, JOURNAL_FILE, line, what).into());
        }
        archive.compare(&stage, import)?;
    }
    Ok(stage)
}

/// Where the folders of tasks are, and which are asked for.
struct Archive {
    tasks: PathBuf,
    asked_for: Vec<TaskId>,
}

impl Archive {
    fn at(folder: &Path) -> Result<Self, CliError> {
        let tasks = folder.join(TASKS_FOLDER);
        if tasks.is_dir() {
            let asked_for = ids_in(&tasks)?;
            if asked_for.is_empty() {
                return Err(nothing_in(&tasks));
            }
            return Ok(Self { tasks, asked_for });
        }
        if !folder.is_dir() {
            return Err(nothing_in(folder));
        }
        // `.` has a name only when it is asked for it.
        let folder = folder.canonicalize().map_err(|error| CliError::io("read", folder, &error))?;
        let name = folder.file_name().and_then(|name| name.to_str());
        match (name.and_then(|name| name.parse().ok()), folder.parent()) {
            (Some(id), Some(tasks)) => Ok(Self { tasks: tasks.to_owned(), asked_for: vec![id] }),
            (_, _) => Err(nothing_in(&folder)),
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
        what: impl std::fmt::Display,
    ) -> Damage {
        Damage::new(&self.file(task, name), line, what)
    }

    fn has(&self, imports: &[Import], task: TaskId) -> bool {
        imports.iter().any(|import| import.task == task)
    }

    /// The journals of those that are asked for, and of all that belong to them.
    fn journals(&self) -> Result<BTreeMap<TaskId, Import>, CliError> {
        let mut journals = BTreeMap::new();
        let mut waiting = self.asked_for.clone();
        while let Some(task) = waiting.pop() {
            if journals.contains_key(&task) {
                continue;
            }
            let import = journal::read(&self.bytes(task, JOURNAL_FILE)?)
                .map_err(|fault| self.damage(task, JOURNAL_FILE, fault.line, fault.what))?;
            if import.task != task {
                let what = format!("this is the journal of task {}", import.task);
                return Err(self.damage(task, JOURNAL_FILE, 1, what).into());
            }
            let belonging = needs(&import).chain(self.parts(task)?);
            waiting.extend(belonging.filter(|task| self.file(*task, "").is_dir()));
            journals.insert(task, import);
        }
        Ok(journals)
    }

    /// The sub-agents' tasks that a task's trace names: a session has the id of its task.
    fn parts(&self, task: TaskId) -> Result<Vec<TaskId>, CliError> {
        let trace = self.json(task, TRACE_FILE)?;
        let sessions = trace.get("sub_agent_sessions").and_then(Value::as_object);
        Ok(sessions.into_iter().flatten().filter_map(|(id, _)| id.parse().ok()).collect())
    }

    /// A part that is not there leaves its mark in the files of the whole. It is named itself.
    fn expect_parts(&self, task: TaskId) -> Result<(), CliError> {
        let missing = self.parts(task)?.into_iter().find(|part| !self.file(*part, "").is_dir());
        missing.map_or(Ok(()), |part| {
            let what = format!("the folder is missing; it is a part of task {task}");
            Err(Damage::new(&self.tasks.join(part.to_string()), None, what).into())
        })
    }

    fn json(&self, task: TaskId, name: &str) -> Result<Value, CliError> {
        serde_json::from_slice(&self.bytes(task, name)?).map_err(|error| {
            let told = error.to_string();
            let what = told.split(" at line ").next().unwrap_or_default();
            self.damage(task, name, error.line(), format!("this is not JSON: {what}")).into()
        })
    }

    fn bytes(&self, task: TaskId, name: &str) -> Result<Vec<u8>, CliError> {
        let path = self.file(task, name);
        fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Damage::new(&path, None, "the file is missing").into(),
            _ => CliError::io("read", &path, &error),
        })
    }

    /// Whether the other files say what follows from the journal.
    fn compare(&self, stage: &Stage, import: &Import) -> Result<(), CliError> {
        let task = import.task;
        // Only where the task was exported is known whether someone was at work on it.
        let interrupted = match stage.row(task)?.status {
            TaskStatus::Pending | TaskStatus::Running => {
                self.json(task, TASK_FILE)?.get("interrupted") == Some(&Value::Bool(true))
            }
            TaskStatus::AwaitingHuman
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled => false,
        };
        let expected = stage.files(import, interrupted)?;
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
            return Err(self.damage(task, name, line, what).into());
        }
        for name in names_in(&self.file(task, ""))? {
            if name.starts_with(CHECKPOINT_PREFIX) && !expected.contains_key(&name) {
                let what = "the journal knows of no such checkpoint";
                return Err(self.damage(task, &name, None, what).into());
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

fn nothing_in(folder: &Path) -> CliError {
    CliError::not_found(format!("there is no exported task in {}", folder.display())).hint(
        "name the folder that `polity task export --out` wrote to, or the folder of one task in it",
    )
}

fn names_in(folder: &Path) -> Result<Vec<String>, CliError> {
    let cannot = |error: std::io::Error| CliError::io("read", folder, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        names.extend(entry.map_err(cannot)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// The tasks whose folders are here. What is hidden was left unfinished.
fn ids_in(tasks: &Path) -> Result<Vec<TaskId>, CliError> {
    let visible = names_in(tasks)?.into_iter().filter(|name| !name.starts_with('.'));
    visible
        .map(|name| {
            name.parse().map_err(|_| {
                let what = "a folder of an export is named by a task's id";
                Damage::new(&tasks.join(&name), None, what).into()
            })
        })
        .collect()
}

//! Writing a task's folder, so that it is there as a whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use polity_model::ids::TaskId;

use super::TASKS_FOLDER;
use crate::error::CliError;

/// What became of a task's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is new, or has taken the place of another.
    New,
    /// It was there already, to the byte.
    AsItWas,
}

/// A task's folder in an archive.
pub(super) fn folder_of(root: &Path, task: TaskId) -> PathBuf {
    root.join(TASKS_FOLDER).join(task.to_string())
}

/// Writes folders of tasks. What is there already stays unless `force` says otherwise, and then
/// nothing is written at all. `asked_for` is written even where it is there to the byte.
pub(crate) fn write(
    root: &Path,
    asked_for: TaskId,
    tasks: &[(TaskId, BTreeMap<String, Vec<u8>>)],
    force: bool,
) -> Result<Vec<Written>, CliError> {
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (task, files) in tasks {
        let folder = folder_of(root, *task);
        outcomes.push(match (folder.exists(), force) {
            (false, _) | (true, true) => Written::New,
            // Exports of several forks share what they were forked from.
            (true, false) if *task != asked_for && holds(&folder, files)? => Written::AsItWas,
            (true, false) => return Err(CliError::exists(&folder)),
        });
    }
    for ((task, files), outcome) in tasks.iter().zip(&outcomes) {
        if *outcome == Written::New {
            put(&folder_of(root, *task), files)?;
        }
    }
    Ok(outcomes)
}

fn holds(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<bool, CliError> {
    for (name, bytes) in files {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(found) if found == *bytes => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(CliError::io("read", &path, &error)),
        }
    }
    Ok(true)
}

/// Writes the files beside the folder's place, and then puts them there in one step.
fn put(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), CliError> {
    let (unfinished, replaced) = (beside(folder, "unfinished"), beside(folder, "replaced"));
    for left_over in [&unfinished, &replaced] {
        remove(left_over)?;
    }
    fs::create_dir_all(&unfinished).map_err(|error| CliError::io("make", &unfinished, &error))?;
    for (name, bytes) in files {
        let path = unfinished.join(name);
        File::create_new(&path)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
            .map_err(|error| CliError::io("write", &path, &error))?;
    }
    if folder.exists() {
        fs::rename(folder, &replaced).map_err(|error| CliError::io("replace", folder, &error))?;
    }
    fs::rename(&unfinished, folder).map_err(|error| CliError::io("write", folder, &error))?;
    remove(&replaced)
}

/// A hidden name in the same folder, which no import looks at.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{suffix}"))
}

fn remove(folder: &Path) -> Result<(), CliError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(CliError::io("remove", folder, &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

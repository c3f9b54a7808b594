//! Atomic writes of task folders.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use polity_files::{
    FileAccess, RegularFileError, create_file, create_folder, read_named_file, remove_tree,
    sync_folder, sync_name,
};
use polity_model::ids::TaskId;

use super::{ARCHIVE_FILE_BYTES_MAX, ArchiveError, TASKS_FOLDER};
use crate::error::HostError;

/// The result of writing the folder of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderOutcome {
    /// The folder was written, possibly in place of another.
    Written,
    /// The folder was there with identical files.
    Unchanged,
}

/// The folder of a task in an archive.
fn folder_of(root: &Path, task: TaskId) -> PathBuf {
    root.join(TASKS_FOLDER).join(task.to_string())
}

/// Writes the folders of tasks. Without `force`, a folder that exists with other files is an error
/// and nothing is written; so is an existing folder of `asked_for`.
pub(super) fn write_folders(
    root: &Path,
    asked_for: TaskId,
    tasks: &[(TaskId, BTreeMap<String, Vec<u8>>)],
    force: bool,
) -> Result<Vec<FolderOutcome>, HostError> {
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (task, files) in tasks {
        let folder = folder_of(root, *task);
        outcomes.push(match (folder.exists(), force) {
            (false, _) | (true, true) => FolderOutcome::Written,
            // Exports of several forks share the tasks they were forked from.
            (true, false) if *task != asked_for && has_files(&folder, files)? => {
                FolderOutcome::Unchanged
            }
            (true, false) => return Err(ArchiveError::FolderExists(folder).into()),
        });
    }
    for ((task, files), outcome) in tasks.iter().zip(&outcomes) {
        if *outcome == FolderOutcome::Written {
            replace_folder(&folder_of(root, *task), files)?;
        }
    }
    Ok(outcomes)
}

fn has_files(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<bool, HostError> {
    for (name, bytes) in files {
        let path = folder.join(name);
        match read_named_file(&path, ARCHIVE_FILE_BYTES_MAX) {
            Ok(found) if found == *bytes => {}
            Ok(_) => return Ok(false),
            Err(RegularFileError::Io(error)) if error.kind() != ErrorKind::NotFound => {
                return Err(HostError::io("read", &path, error));
            }
            Err(
                RegularFileError::Io(_)
                | RegularFileError::NotRegular(_)
                | RegularFileError::LinkedFolder(_)
                | RegularFileError::TooLarge { .. },
            ) => return Ok(false),
        }
    }
    Ok(true)
}

/// Writes the files into a hidden sibling folder, then renames it. Both are durable and private.
fn replace_folder(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), HostError> {
    let (unfinished, replaced) = (sibling(folder, "unfinished"), sibling(folder, "replaced"));
    for left_over in [&unfinished, &replaced] {
        remove(left_over)?;
    }
    create_folder(&unfinished, FileAccess::Private)
        .map_err(|error| HostError::io("make", &unfinished, error))?;
    for (name, bytes) in files {
        let path = unfinished.join(name);
        create_file(&path, FileAccess::Private)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
            .map_err(|error| HostError::io("write", &path, error))?;
    }
    sync_folder(&unfinished).map_err(|error| HostError::io("write", &unfinished, error))?;
    if folder.exists() {
        fs::rename(folder, &replaced).map_err(|error| HostError::io("replace", folder, error))?;
    }
    fs::rename(&unfinished, folder)
        .and_then(|()| sync_name(folder))
        .map_err(|error| HostError::io("write", folder, error))?;
    remove(&replaced)
}

/// A hidden sibling, which imports ignore.
fn sibling(folder: &Path, suffix: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{suffix}"))
}

fn remove(folder: &Path) -> Result<(), HostError> {
    remove_tree(folder).map_err(|error| HostError::io("remove", folder, error))
}

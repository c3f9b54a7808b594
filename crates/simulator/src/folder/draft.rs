//! The creation of a run folder.
//!
//! A run is prepared in a folder with a temporary name, up to its first checkpoint, and then
//! renamed. So a folder with its final name is always a run that can be listed and resumed. A
//! process that is killed earlier leaves a temporary folder, which [`sweep_unfinished`] removes. A
//! folder that exists and is empty is filled in place; the record is written last.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::durable_files as files;
use super::requests::{self, RequestLogLine};
use super::{
    CHART, CHECKPOINTS, LOCK, RECORD, REQUESTS, RunFolder, RunLock, SCENARIO, SimulationRecord,
};
use crate::error::SimError;

/// The beginning and the end of a temporary folder's name.
const HIDDEN: char = '.';
const UNFINISHED: &str = ".unfinished";

/// The beginning of the name of a folder that is being removed.
const SWEPT: &str = ".swept.";

/// The number of attempts to create a folder that other processes sweep at the same time. Each
/// fails only if a sweep takes the folder before it has its lock.
const CREATE_TRIES: usize = 1000;

/// The folder of a run that is being created. This process holds its lock.
#[derive(Debug)]
pub(crate) struct RunDraft {
    /// The folder under its temporary or final name.
    folder: RunFolder,
    /// The final path.
    target: PathBuf,
    lock: RunLock,
}

impl RunDraft {
    /// Creates a folder for a new run and locks it.
    pub(crate) fn create(target: &Path) -> Result<Self, SimError> {
        for _ in 0..CREATE_TRIES {
            let folder = RunFolder { path: target.to_owned() };
            let exists = target.exists();
            if exists && !is_unstarted(&folder) {
                return Err(SimError::Exists(target.to_owned()));
            }
            let folder = if exists { folder } else { Self::temporary_folder(target)? };
            // Another process may sweep the folder until this one has the lock.
            if !is_ours(&folder) && folder.path.exists() {
                return Err(SimError::Exists(folder.path));
            }
            let lock = match folder.acquire_lock() {
                Err(SimError::Io { source, .. }) if is_missing(&source) => continue,
                lock => lock?,
            };
            // The lock may be that of a folder that was swept or published in the meantime.
            if !folder.path.join(LOCK).exists() || (exists && !is_unstarted(&folder)) {
                continue;
            }
            let draft = Self { folder, target: target.to_owned(), lock };
            draft.clear()?;
            return Ok(draft);
        }
        Err(SimError::InUse)
    }

    /// Creates the temporary folder of a run, without a sync: a sweep may take the folder until it
    /// has its lock, and its name need not last.
    fn temporary_folder(target: &Path) -> Result<RunFolder, SimError> {
        let path = temporary(target)?;
        if let Some(runs) = path.parent() {
            files::create_folder(runs)?;
        }
        polity_files::create_private_folders(&path).map_err(SimError::io("make", &path))?;
        Ok(RunFolder { path })
    }

    pub(crate) fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Removes the leftovers of a process that crashed.
    fn clear(&self) -> Result<(), SimError> {
        let folder = &self.folder.path;
        let all = fs::read_dir(folder).map_err(SimError::io("read", folder))?;
        for entry in all {
            let path = entry.map_err(SimError::io("read", folder))?.path();
            if path.ends_with(LOCK) {
                continue;
            }
            polity_files::remove_tree(&path).map_err(SimError::io("remove", &path))?;
        }
        files::create_folder(&folder.join(CHECKPOINTS))
    }

    /// Writes the definitions of the run, and the requests that a fork repeats.
    pub(crate) fn fill(
        &self,
        scenario: &str,
        chart: &str,
        asked: &[RequestLogLine],
    ) -> Result<(), SimError> {
        files::write_text(&self.folder.path.join(SCENARIO), scenario)?;
        files::write_text(&self.folder.path.join(CHART), chart)?;
        requests::append_all(&self.folder.requests(), asked)
    }

    /// Makes the folder a run: writes the record and gives the folder its final name.
    pub(crate) fn publish(
        self,
        record: &SimulationRecord,
    ) -> Result<(RunFolder, RunLock), SimError> {
        if let Err(error) = self.folder.write_record(record).and_then(|()| self.rename()) {
            return Err(self.discard(error));
        }
        Ok((RunFolder { path: self.target }, self.lock))
    }

    fn rename(&self) -> Result<(), SimError> {
        if self.folder.path == self.target {
            return Ok(());
        }
        match fs::rename(&self.folder.path, &self.target) {
            Err(_) if self.target.exists() => Err(SimError::Exists(self.target.clone())),
            renamed => renamed.map_err(SimError::io("write", &self.target)),
        }?;
        files::sync_name(&self.target)
    }

    /// Removes a folder that could not be finished, and returns the error.
    pub(crate) fn discard(self, error: SimError) -> SimError {
        if self.folder.path != self.target {
            // The folder is swept later if this fails. The first error explains more.
            let _ = polity_files::remove_tree(&self.folder.path);
        }
        error
    }
}

/// Returns the temporary path of a run folder, beside the final one.
fn temporary(target: &Path) -> Result<PathBuf, SimError> {
    let name = target.file_name().ok_or_else(|| SimError::Exists(target.to_owned()))?;
    let mut hidden = std::ffi::OsString::from(HIDDEN.to_string());
    hidden.push(name);
    hidden.push(UNFINISHED);
    Ok(target.with_file_name(hidden))
}

/// True for the temporary path of a run folder.
pub fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(HIDDEN) && name.ends_with(UNFINISHED))
}

/// True if a folder is empty, or the leftover of a process that crashed before the run began.
fn is_unstarted(folder: &RunFolder) -> bool {
    holds_only(folder, &[LOCK, SCENARIO, CHART, REQUESTS, CHECKPOINTS])
}

/// True if a temporary folder has nothing but the files of a run.
fn is_ours(folder: &RunFolder) -> bool {
    holds_only(folder, &[LOCK, SCENARIO, CHART, REQUESTS, CHECKPOINTS, RECORD])
}

/// True if a folder is empty, or has a lock and otherwise only these files and temporary ones.
fn holds_only(folder: &RunFolder, names: &[&str]) -> bool {
    let entries = fs::read_dir(&folder.path)
        .and_then(|all| all.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>());
    let is_known =
        |path: &PathBuf| names.iter().any(|name| path.ends_with(name)) || files::is_temporary(path);
    entries.is_ok_and(|paths| {
        let is_begun = paths.iter().any(|path| path.ends_with(LOCK));
        paths.is_empty() || (is_begun && paths.iter().all(is_known))
    })
}

/// Removes the unfinished folders of killed processes from a folder of runs. Returns the errors.
pub fn sweep_unfinished(runs: &Path) -> Vec<SimError> {
    let entries = match fs::read_dir(runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => return vec![SimError::io("read", runs)(error)],
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let folders = paths.filter(|path| path.is_dir()).map(|path| RunFolder { path });
    let is_leftover = |folder: &RunFolder| {
        if is_unfinished(&folder.path) {
            // A killed sweep may have removed the lock already.
            is_ours(folder) || swept_path(&folder.path).is_none()
        } else {
            is_abandoned(folder)
        }
    };
    let unfinished = folders.filter(is_leftover);
    unfinished.filter_map(|folder| sweep(&folder).err()).collect()
}

/// True for a folder that was to become a run in place.
fn is_abandoned(folder: &RunFolder) -> bool {
    folder.path.join(LOCK).exists() && is_unstarted(folder)
}

fn is_missing(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Removes a temporary folder, unless a process is at work in it.
fn sweep(folder: &RunFolder) -> Result<(), SimError> {
    if folder.is_locked()? {
        return Ok(());
    }
    let _lock = match folder.acquire_lock() {
        Err(SimError::InUse) => return Ok(()),
        Err(SimError::Io { source, .. }) if is_missing(&source) => return Ok(()),
        lock => lock?,
    };
    // It is moved away first. A process that has just created the folder cannot lose files in it:
    // it finds no lock under the name, and begins again.
    let path = match swept_path(&folder.path) {
        Some(swept) => match fs::rename(&folder.path, &swept) {
            Err(error) if is_taken(&error) => return Ok(()),
            renamed => {
                renamed.map_err(SimError::io("move", &folder.path))?;
                swept
            }
        },
        None => folder.path.clone(),
    };
    match polity_files::remove_tree(&path) {
        Err(error) if is_taken(&error) => Ok(()),
        removed => removed.map_err(SimError::io("remove", &path)),
    }
}

/// True if the folder was published, or another process sweeps it.
fn is_taken(error: &std::io::Error) -> bool {
    is_missing(error) || error.kind() == ErrorKind::DirectoryNotEmpty
}

/// Returns the path of a folder while it is removed; none if it has it already.
fn swept_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str().filter(|name| !name.starts_with(SWEPT))?;
    let name = name.trim_start_matches(HIDDEN).trim_end_matches(UNFINISHED);
    Some(path.with_file_name(format!("{SWEPT}{name}{UNFINISHED}")))
}

#[cfg(test)]
#[path = "draft_tests.rs"]
mod tests;

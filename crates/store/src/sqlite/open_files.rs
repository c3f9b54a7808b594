//! The databases that this process has open.
//!
//! SQLite's locks belong to the process, and closing any descriptor of a file drops all of them. So a
//! database that is open already must not be opened and closed as a plain file.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A file, by device and inode.
type FileId = (u64, u64);

/// The number of stores by file. It is global because the locks are.
static OPEN_FILES: LazyLock<Mutex<HashMap<FileId, usize>>> = LazyLock::new(Mutex::default);

/// The registration of an open database, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenFile {
    id: FileId,
}

impl OpenFile {
    /// Registers a database, before the first connection to it is opened. None if there is no file,
    /// which a reader sees as an empty database.
    pub(super) fn register(database: &Path) -> Option<Self> {
        let id = file_id(database)?;
        *open_files().entry(id).or_default() += 1;
        Some(Self { id })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut files = open_files();
        if let Some(count) = files.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                files.remove(&self.id);
            }
        }
    }
}

/// Reads a database as a plain file, unless this process has it open. No thread registers it
/// meanwhile.
pub(super) fn unless_open<T>(database: &Path, read: impl FnOnce() -> T) -> Option<T> {
    let files = open_files();
    let is_open = file_id(database).is_some_and(|id| files.contains_key(&id));
    (!is_open).then(read)
}

fn open_files() -> MutexGuard<'static, HashMap<FileId, usize>> {
    OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn file_id(path: &Path) -> Option<FileId> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

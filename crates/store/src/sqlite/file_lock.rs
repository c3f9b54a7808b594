//! The lock of the database file: shared to use it, exclusive to replace or rebuild it.
//!
//! It is on a file beside the database, because a restore replaces the database itself.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polity_files::{open_or_create, open_regular_file};

use super::busy_wait::BUSY_SECONDS_MAX;
use super::connection::io_error;
use crate::StoreError;

/// The maximum wait for an exclusive lock: long enough for short reads, too short to look hung.
const EXCLUSIVE_SECONDS_MAX: u64 = 2;

/// The shared lock of a writer. Waits for a restore, which takes a moment.
pub(super) fn shared(database: &Path) -> Result<File, StoreError> {
    let file = open(database)?;
    wait(database, BUSY_SECONDS_MAX, || file.try_lock_shared())?;
    Ok(file)
}

/// The shared lock of a reader. Readers create nothing, so without a lock file there is no lock.
pub(super) fn shared_for_reader(database: &Path) -> Result<Option<File>, StoreError> {
    let Ok(file) = open_regular_file(&path_of(database)) else { return Ok(None) };
    wait(database, BUSY_SECONDS_MAX, || file.try_lock_shared())?;
    Ok(Some(file))
}

/// The lock to replace the database.
pub(super) fn exclusive(database: &Path) -> Result<File, StoreError> {
    let file = open(database)?;
    wait(database, EXCLUSIVE_SECONDS_MAX, || file.try_lock())?;
    Ok(file)
}

/// The lock to rebuild the database, unless another process holds one.
pub(super) fn try_exclusive(database: &Path) -> Result<Option<File>, StoreError> {
    let file = open(database)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(io_error(database, &error)),
    }
}

/// True if a process has ever written here.
pub(super) fn exists(database: &Path) -> bool {
    path_of(database).exists()
}

fn wait(
    database: &Path,
    seconds_max: u64,
    mut take: impl FnMut() -> Result<(), TryLockError>,
) -> Result<(), StoreError> {
    let deadline = Instant::now() + Duration::from_secs(seconds_max);
    loop {
        match take() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: database.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(io_error(database, &error)),
        }
    }
}

fn open(database: &Path) -> Result<File, StoreError> {
    let path = path_of(database);
    open_or_create(&path).map_err(|error| io_error(&path, &error))
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

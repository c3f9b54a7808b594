//! Who may write: many at once, or one alone who replaces the whole database.
//!
//! The lock is on a file beside the database, because the database itself is what is replaced.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use super::open::{BUSY_SECONDS_MAX, io_error};
use crate::StoreError;

/// Held by everyone who writes, for as long as they may. A restore takes a moment, and is waited
/// for.
pub(super) fn shared(database: &Path) -> Result<File, StoreError> {
    let file = open(database)?;
    let deadline = Instant::now() + Duration::from_secs(BUSY_SECONDS_MAX);
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => return Err(in_use(database)),
            Err(TryLockError::Error(error)) => return Err(io_error(database, &error)),
        }
    }
}

/// Held by the one who replaces the database.
pub(super) fn exclusive(database: &Path) -> Result<File, StoreError> {
    let file = open(database)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(in_use(database)),
        Err(TryLockError::Error(error)) => Err(io_error(database, &error)),
    }
}

fn open(database: &Path) -> Result<File, StoreError> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| io_error(Path::new(&path), &error))
}

fn in_use(database: &Path) -> StoreError {
    StoreError::InUse { path: database.to_owned() }
}

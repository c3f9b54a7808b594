//! Who may use the database: many at once, or one alone who replaces or rebuilds the whole of it.
//!
//! The lock is on a file beside the database, because the database itself is what is replaced.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::open::{BUSY_SECONDS_MAX, io_error};
use crate::StoreError;

/// How long one who wants the database alone waits for others: long enough for those who only read
/// a little, and too short to be taken for hanging.
const ALONE_SECONDS_MAX: u64 = 2;

/// Held by everyone who writes, for as long as they may. A restore takes a moment, and is waited
/// for.
pub(super) fn shared(database: &Path) -> Result<File, StoreError> {
    let file = open(database)?;
    wait(database, BUSY_SECONDS_MAX, || file.try_lock_shared())?;
    Ok(file)
}

/// Held by those who only read. They make nothing, so where no one has written yet, or where the
/// lock may not be opened, there is none to hold.
pub(super) fn shared_by_reader(database: &Path) -> Result<Option<File>, StoreError> {
    let Ok(file) = File::open(path_of(database)) else { return Ok(None) };
    wait(database, BUSY_SECONDS_MAX, || file.try_lock_shared())?;
    Ok(Some(file))
}

/// Held by the one who replaces or rebuilds the database.
pub(super) fn exclusive(database: &Path) -> Result<File, StoreError> {
    let file = open(database)?;
    wait(database, ALONE_SECONDS_MAX, || file.try_lock())?;
    Ok(file)
}

/// Whether anyone has ever written here.
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
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| io_error(&path, &error))
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

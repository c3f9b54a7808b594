//! The lock of a home's server, and the file that tells others where it listens.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polity_files::{FileAccess, open_or_create, open_regular_file, read_regular_file, write_bytes};
use serde::{Deserialize, Serialize};

use crate::error::ServeError;

const LOCK_FILE: &str = "server.lock";
const ADDRESS_FILE: &str = "server.json";

/// The largest address file.
const ADDRESS_BYTES_MAX: u64 = 64 * 1024;

/// The number of attempts to take the lock, and the time between two. Another command may look for
/// a server just then, for which it takes the lock for an instant.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_DELAY: Duration = Duration::from_millis(20);

/// The address of a running server: `data/server.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningServer {
    /// The URL at which it answers.
    pub url: String,
    /// Its process.
    pub pid: u32,
}

/// The server that serves a home, if there is one.
pub fn running_server(data: &Path) -> Option<RunningServer> {
    let lock = open_regular_file(&data.join(LOCK_FILE)).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => published_server(data),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The server that has published its address last. It may have ended without a chance to remove it.
pub fn published_server(data: &Path) -> Option<RunningServer> {
    let bytes = read_regular_file(&data.join(ADDRESS_FILE), ADDRESS_BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The lock of this server. The address file is removed with it.
#[derive(Debug)]
pub(crate) struct ServerLock {
    data: PathBuf,
    _file: File,
}

impl ServerLock {
    /// Takes the lock of a home.
    pub(crate) fn acquire(data: &Path) -> Result<Self, ServeError> {
        let path = data.join(LOCK_FILE);
        let io = |source| ServeError::Io { path: path.clone(), source };
        polity_files::create_private_folders(data).map_err(io)?;
        let file = open_or_create(&path).map_err(io)?;
        let mut locked = file.try_lock();
        for _ in 1..LOCK_ATTEMPTS {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(LOCK_DELAY);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {
                // The address of a server that was killed may belong to another program by now.
                let address = data.join(ADDRESS_FILE);
                match std::fs::remove_file(&address) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        Err(ServeError::Io { path: address, source: error })
                    }
                    Ok(()) | Err(_) => Ok(Self { data: data.to_owned(), _file: file }),
                }
            }
            Err(TryLockError::WouldBlock) => {
                let address = published_server(data);
                let url =
                    address.as_ref().map_or("at an unknown address", |one| &one.url).to_owned();
                Err(ServeError::AlreadyServed { url, pid: address.map_or(0, |one| one.pid) })
            }
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    /// Writes the address for other processes.
    pub(crate) fn publish(&self, url: &str) -> Result<(), ServeError> {
        let path = self.data.join(ADDRESS_FILE);
        let address = RunningServer { url: url.to_owned(), pid: std::process::id() };
        let io = |source| ServeError::Io { path: path.clone(), source };
        let bytes = serde_json::to_vec(&address).map_err(|error| io(error.into()))?;
        write_bytes(&path, FileAccess::Private, &bytes).map_err(io)
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // The lock decides; a file that is left does no harm.
        let _ = std::fs::remove_file(self.data.join(ADDRESS_FILE));
    }
}

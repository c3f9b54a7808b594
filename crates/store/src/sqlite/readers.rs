//! The pool of read connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::StoreAccess;
use super::connection::{self, ReadConnection};
use crate::{StoreError, StoreFuture};

/// The maximum number of idle connections; more are opened and closed as needed.
const IDLE_MAX: usize = 4;

/// Read connections to one database.
#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    access: StoreAccess,
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf, access: StoreAccess) -> Self {
        Self { path, access, idle: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads with a connection of the pool.
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => match connection::for_reading(&self.path, self.access)? {
                ReadConnection::File(connection) => connection,
                // Not kept: the file may exist the next time.
                ReadConnection::Empty(connection) => return read(&connection),
            },
        };
        let answer = read(&connection);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        answer
    }

    /// Runs a query on this thread.
    pub(super) fn query<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.with(|connection| {
            query(connection).map_err(|error| connection::explain(&self.path, &error))
        })
    }
}

/// Runs a query on a thread for blocking work; outside of a Tokio runtime, on this one.
pub(super) fn scan<'a, T: Send + 'static>(
    readers: &Arc<ReaderPool>,
    query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> StoreFuture<'a, T> {
    let Ok(tokio) = tokio::runtime::Handle::try_current() else {
        return StoreFuture::ready(readers.query(query));
    };
    let readers = Arc::clone(readers);
    let read = tokio.spawn_blocking(move || readers.query(query));
    StoreFuture::pending(async { read.await.unwrap_or(Err(StoreError::Closed)) })
}

//! The pool of read connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
    connections: Mutex<PooledConnections>,
    /// Notified when the last read of a closed pool ends, and when the only connection is returned.
    unused: Condvar,
}

#[derive(Debug, Default)]
struct PooledConnections {
    idle: Vec<Connection>,
    reads_in_progress: usize,
    is_closed: bool,
    /// True if the pool has the only connection that there can be.
    is_exclusive: bool,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf, access: StoreAccess) -> Self {
        Self { path, access, connections: Mutex::default(), unused: Condvar::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn connections(&self) -> MutexGuard<'_, PooledConnections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all connections, after the reads in progress. Later reads fail.
    ///
    /// SQLite folds the log into the database when the last connection closes, if that one may
    /// write. So the readers close before the writer, or deleted secrets would stay in the log.
    pub(super) fn close(&self) {
        let mut connections = self.connections();
        connections.is_closed = true;
        while connections.reads_in_progress > 0 {
            connections = self.unused.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        connections.idle.clear();
    }

    /// Reads with a connection of the pool.
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = {
            let mut connections = self.connections();
            while connections.is_exclusive
                && connections.reads_in_progress > 0
                && !connections.is_closed
            {
                connections = self.unused.wait(connections).unwrap_or_else(PoisonError::into_inner);
            }
            if connections.is_closed {
                return Err(StoreError::Closed);
            }
            connections.reads_in_progress += 1;
            connections.idle.pop()
        };
        let mut lent = LentConnection { pool: self, connection: None };
        match idle {
            Some(connection) => read(lent.connection.insert(connection)),
            None => match connection::for_reading(&self.path, self.access)? {
                ReadConnection::File(connection) => read(lent.connection.insert(connection)),
                ReadConnection::Exclusive(connection) => {
                    self.connections().is_exclusive = true;
                    read(lent.connection.insert(connection))
                }
                // Not kept: the file may exist the next time.
                ReadConnection::Empty(connection) => read(&connection),
            },
        }
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

/// A read in progress. Its end returns the connection to the pool, even after a panic.
struct LentConnection<'a> {
    pool: &'a ReaderPool,
    connection: Option<Connection>,
}

impl Drop for LentConnection<'_> {
    fn drop(&mut self) {
        let mut connections = self.pool.connections();
        if let Some(connection) = self.connection.take()
            && connections.idle.len() < IDLE_MAX
        {
            connections.idle.push(connection);
        }
        connections.reads_in_progress -= 1;
        let is_waited_for = connections.is_closed || connections.is_exclusive;
        if is_waited_for && connections.reads_in_progress == 0 {
            self.pool.unused.notify_all();
        }
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

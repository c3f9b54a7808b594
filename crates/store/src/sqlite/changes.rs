//! The change feed of SQLite, which has no notifications between processes: it is polled.

use std::sync::Arc;
use std::time::Duration;

use polity_model::event::JournalPosition;

use super::readers::{ReaderPool, scan};
use super::tables;
use crate::{ChangeFeed, EventHeader, StoreError, StoreFuture};

/// The polling interval. A commit is delivered within twice this time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of events of one read; the next read follows at once.
const HEADERS_MAX: u32 = 1000;

/// Polls the newest position, which is a point read, and reads headers only if it has grown.
pub(super) struct SqliteChangeFeed {
    readers: Arc<ReaderPool>,
    after: JournalPosition,
    /// True if the last read reached its limit.
    is_behind: bool,
}

impl SqliteChangeFeed {
    pub(super) fn new(readers: Arc<ReaderPool>, after: JournalPosition) -> Self {
        Self { readers, after, is_behind: false }
    }

    async fn poll(&mut self) -> Result<Vec<EventHeader>, StoreError> {
        loop {
            if !std::mem::take(&mut self.is_behind) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let newest = self.readers.query(tables::last_position)?;
            if newest <= self.after {
                continue;
            }
            let after = self.after;
            let read = move |connection: &_| tables::headers_after(connection, after, HEADERS_MAX);
            let headers = scan(&self.readers, read).await?;
            let Some(last) = headers.last() else {
                // The events were removed.
                self.after = newest;
                continue;
            };
            self.after = last.position;
            self.is_behind = headers.len() >= HEADERS_MAX as usize;
            return Ok(headers);
        }
    }
}

impl ChangeFeed for SqliteChangeFeed {
    fn next(&mut self) -> StoreFuture<'_, Vec<EventHeader>> {
        StoreFuture::pending(self.poll())
    }
}

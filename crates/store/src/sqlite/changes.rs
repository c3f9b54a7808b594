//! The change feed of SQLite, which has no notifications between processes: it is polled.
//!
//! Polling alone would wake an idle machine ten times a second. Once nothing has happened for
//! [`ACTIVE_TIME`], the feed waits for a write to the log of the database, if the system reports
//! those. A write comes before its commit, so polling goes on for a while after each.

use std::sync::Arc;
use std::time::Duration;

use polity_model::event::JournalPosition;
use tokio::time::Instant;

use super::change_signal::ChangeSignal;
use super::readers::{ReaderPool, scan};
use super::tables;
use crate::{ChangeFeed, EventHeader, StoreError, StoreFuture};

/// The polling interval. A commit is delivered within twice this time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The time after a change, or after a write to the log, in which the feed polls.
const ACTIVE_TIME: Duration = Duration::from_secs(10);

/// The polling interval of an idle feed, for writes that the system does not report.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of events of one read; the next read follows at once.
const HEADERS_MAX: u32 = 1000;

/// Polls the newest position, which is a point read, and reads headers only if it has grown.
pub(super) struct SqliteChangeFeed {
    readers: Arc<ReaderPool>,
    after: JournalPosition,
    /// True if the last read reached its limit.
    is_behind: bool,
    active_until: Option<Instant>,
    signal: Option<ChangeSignal>,
}

impl SqliteChangeFeed {
    pub(super) fn new(readers: Arc<ReaderPool>, after: JournalPosition) -> Self {
        Self { readers, after, is_behind: false, active_until: None, signal: None }
    }

    /// Waits until it is time to look again.
    async fn pause(&mut self) {
        let now = Instant::now();
        let until = *self.active_until.get_or_insert(now + ACTIVE_TIME);
        if now < until {
            tokio::time::sleep(POLL_INTERVAL).await;
            return;
        }
        let Some(signal) = &self.signal else {
            // The next look shows what happened before the signal was there.
            self.signal = ChangeSignal::watch(self.readers.path());
            if self.signal.is_none() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            return;
        };
        match tokio::time::timeout(IDLE_INTERVAL, signal.changed()).await {
            Ok(Ok(())) => self.active_until = Some(Instant::now() + ACTIVE_TIME),
            Ok(Err(_)) => {
                // Without the signal the feed polls.
                self.signal = None;
                self.active_until = Some(Instant::now() + ACTIVE_TIME);
            }
            Err(_) => {}
        }
    }

    async fn poll(&mut self) -> Result<Vec<EventHeader>, StoreError> {
        loop {
            if !std::mem::take(&mut self.is_behind) {
                self.pause().await;
            }
            let newest = self.readers.query(tables::last_position)?;
            if newest <= self.after {
                continue;
            }
            self.active_until = Some(Instant::now() + ACTIVE_TIME);
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

//! Patience with other processes: waits as long as they make progress.
//!
//! SQLite has no queue of writers. A process that finds the database locked tries again and again,
//! and the order is that of chance. So a fixed limit on the wait fails some of many processes, each
//! of which makes good progress. The limit here is on the time in which nobody makes progress.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::connection::log_of;

/// The maximum time without progress of any process.
pub(super) const BUSY_SECONDS_MAX: u64 = 30;

/// The time that SQLite itself tries again before it reports a locked database.
pub(super) const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay before another attempt, for locks that SQLite does not wait for.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// The last change of the database and of its log.
type ChangeTimes = [Option<(SystemTime, u64)>; 2];

/// A wait for other processes.
pub(super) struct BusyWait {
    files: [PathBuf; 2],
    seen: ChangeTimes,
    since: Instant,
}

impl BusyWait {
    fn new(database: &Path) -> Self {
        let files = [database.to_owned(), log_of(database)];
        Self { seen: change_times(&files), files, since: Instant::now() }
    }

    /// Runs an attempt until it does something else than find the database locked, or until nobody
    /// has made progress for too long.
    pub(super) fn retry<T, E>(
        database: &Path,
        is_busy: impl Fn(&E) -> bool,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut wait = None;
        loop {
            match attempt() {
                Err(error) if is_busy(&error) => {
                    if !wait.get_or_insert_with(|| Self::new(database)).may_continue() {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Waits for a moment. False if nobody has made progress for too long.
    fn may_continue(&mut self) -> bool {
        let now = change_times(&self.files);
        if now != self.seen {
            (self.seen, self.since) = (now, Instant::now());
        }
        std::thread::sleep(RETRY_AFTER);
        self.since.elapsed() < Duration::from_secs(BUSY_SECONDS_MAX)
    }
}

/// Every commit and every checkpoint changes one of the files.
fn change_times(files: &[PathBuf; 2]) -> ChangeTimes {
    files.each_ref().map(|file| {
        let metadata = file.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

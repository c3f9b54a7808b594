//! The log of a server, written by a thread of its own: a reader of stderr that falls behind, or a
//! pipe that nobody reads, never stops the server. Lines that do not fit are counted and left out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use serde_json::Value;

use crate::terminal::{note, tell_json};

/// The most lines that wait to be written.
const LOG_LINES_MAX: usize = 10_000;

/// The longest time that the last lines take before the process exits.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// A line of the log.
pub(super) enum LogEntry {
    /// A line of text.
    Text(String),
    /// A JSON document.
    Json(Value),
    /// Everything before is written.
    Written(SyncSender<()>),
}

/// Passes lines to the thread that writes them.
pub(super) struct LogWriter {
    lines: SyncSender<LogEntry>,
    left_out: AtomicU64,
}

impl LogWriter {
    /// Starts the thread. None if the system refuses one; then each caller writes its lines.
    pub(super) fn start() -> Option<Self> {
        let (lines, receiver) = mpsc::sync_channel(LOG_LINES_MAX);
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write(&receiver)).ok()?;
        Some(Self { lines, left_out: AtomicU64::new(0) })
    }

    /// Writes a line soon, or counts it if too many wait.
    pub(super) fn push(&self, entry: LogEntry) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let line = format!("warn: {left_out} lines of the log were left out: stderr is slow");
            if self.lines.try_send(LogEntry::Text(line)).is_err() {
                self.left_out.fetch_add(left_out, Ordering::Relaxed);
            }
        }
        match self.lines.try_send(entry) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until the lines so far are written, or for a second.
    pub(super) fn flush(&self) {
        let (written, done) = mpsc::sync_channel(1);
        if self.lines.try_send(LogEntry::Written(written)).is_ok() {
            // Without an answer in time, stderr is stuck, and the process exits all the same.
            let _ = done.recv_timeout(FLUSH_TIME);
        }
    }
}

impl LogEntry {
    /// Writes the line to stderr.
    pub(super) fn write(&self) {
        match self {
            Self::Text(line) => note!("{line}"),
            Self::Json(document) => tell_json(document),
            Self::Written(waiting) => {
                // The process may have stopped waiting.
                let _ = waiting.try_send(());
            }
        }
    }
}

fn write(lines: &Receiver<LogEntry>) {
    for entry in lines {
        entry.write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted_and_reported() {
        let (lines, receiver) = mpsc::sync_channel(2);
        let writer = LogWriter { lines, left_out: AtomicU64::new(0) };
        for number in 0..5 {
            writer.push(LogEntry::Text(number.to_string()));
        }
        let text = |entry| match entry {
            LogEntry::Text(line) => line,
            LogEntry::Json(_) | LogEntry::Written(_) => panic!("not a text"),
        };
        assert_eq!(text(receiver.recv().unwrap()), "0");
        assert_eq!(text(receiver.recv().unwrap()), "1");
        writer.push(LogEntry::Text("5".to_owned()));
        let report = text(receiver.recv().unwrap());
        assert!(report.starts_with("warn: 3 lines"), "{report}");
        assert_eq!(text(receiver.recv().unwrap()), "5");
    }
}

//! What a program last wrote. It is read always, so that the program never blocks on it, and shown
//! only when something went wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// How much is kept, in bytes.
const KEPT_BYTES_MAX: usize = 4096;

/// How many of the last lines are shown.
const SHOWN_LINES_MAX: usize = 10;

/// How long to wait for the rest once the program has ended.
const REST_WAIT: Duration = Duration::from_millis(500);

/// The end of what a program wrote.
#[derive(Debug, Clone)]
pub struct LastWords {
    kept: Arc<Mutex<Tail>>,
    ended: watch::Receiver<bool>,
}

/// The end of a text that goes on.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
}

impl Tail {
    /// The text goes on with this.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(KEPT_BYTES_MAX)..];
        self.bytes.extend(last);
        let surplus = self.bytes.len().saturating_sub(KEPT_BYTES_MAX);
        self.bytes.drain(..surplus);
    }

    /// Its last lines; empty if there are none.
    pub(crate) fn last_lines(&mut self) -> String {
        last_lines(&String::from_utf8_lossy(self.bytes.make_contiguous()))
    }
}

impl LastWords {
    /// Reads a pipe until it ends. Must be called within a Tokio runtime.
    pub(crate) fn of(mut pipe: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(Tail::default()));
        let (end, ended) = watch::channel(false);
        let words = Self { kept: Arc::clone(&kept), ended };
        tokio::spawn(async move {
            let mut chunk = [0; KEPT_BYTES_MAX];
            while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..count]);
            }
            end.send_replace(true);
        });
        words
    }

    /// The last lines, once all of them have arrived; empty if there are none.
    pub async fn heard(&self) -> String {
        let mut ended = self.ended.clone();
        // Someone may hold the pipe open for longer than that; then what is there must do.
        let _ = tokio::time::timeout(REST_WAIT, ended.wait_for(|ended| *ended)).await;
        self.so_far()
    }

    /// The last lines that have arrived; empty if there are none.
    pub fn so_far(&self) -> String {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).last_lines()
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_shown() {
        let many: Vec<_> = (1..=30).map(|number| format!("line {number}\n\n")).collect();
        let shown = last_lines(&many.concat());
        assert_eq!(shown.lines().count(), SHOWN_LINES_MAX);
        assert!(shown.starts_with("line 21\n") && shown.ends_with("line 30"), "{shown}");
        assert_eq!(last_lines("\n \n"), "");
    }
}

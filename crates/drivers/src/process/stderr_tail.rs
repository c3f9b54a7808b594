//! The last lines of a stream, for error messages. Reads all the time, so that nothing blocks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// The maximum stored tail, in bytes.
const TAIL_BYTES_MAX: usize = 4096;

const SHOWN_LINES_MAX: usize = 10;

/// The time to wait for the rest after the exit.
const REST_WAIT: Duration = Duration::from_millis(500);

/// The tail of a child's stderr.
#[derive(Debug, Clone)]
pub struct StderrTail {
    tail: Arc<Mutex<OutputTail>>,
    ended: watch::Receiver<bool>,
}

/// The tail of a text that grows.
#[derive(Debug, Default)]
pub(crate) struct OutputTail {
    bytes: VecDeque<u8>,
}

impl OutputTail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        self.bytes.extend(last);
        let surplus = self.bytes.len().saturating_sub(TAIL_BYTES_MAX);
        self.bytes.drain(..surplus);
    }

    /// The last lines; may be empty.
    pub(crate) fn last_lines(&mut self) -> String {
        last_lines(&String::from_utf8_lossy(self.bytes.make_contiguous()))
    }
}

impl StderrTail {
    /// Reads a pipe to its end. Must be called within a Tokio runtime.
    pub(crate) fn read(mut pipe: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let tail = Arc::new(Mutex::new(OutputTail::default()));
        let (end, ended) = watch::channel(false);
        let stderr_tail = Self { tail: Arc::clone(&tail), ended };
        tokio::spawn(async move {
            let mut chunk = [0; TAIL_BYTES_MAX];
            while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
                tail.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..count]);
            }
            end.send_replace(true);
        });
        stderr_tail
    }

    /// The last lines, when all have arrived; may be empty.
    pub async fn final_lines(&self) -> String {
        let mut ended = self.ended.clone();
        // An outside process may hold the pipe open for longer.
        let _ = tokio::time::timeout(REST_WAIT, ended.wait_for(|ended| *ended)).await;
        self.current_lines()
    }

    /// The last lines that have arrived; may be empty.
    pub fn current_lines(&self) -> String {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).last_lines()
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
    fn shows_only_the_last_lines() {
        let many: Vec<_> = (1..=30).map(|number| format!("line {number}\n\n")).collect();
        let shown = last_lines(&many.concat());
        assert_eq!(shown.lines().count(), SHOWN_LINES_MAX);
        assert!(shown.starts_with("line 21\n") && shown.ends_with("line 30"), "{shown}");
        assert_eq!(last_lines("\n \n"), "");
    }
}

//! Best-effort live output of a run. A slow reader loses text and never blocks the run.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The maximum pending text, in bytes. Text beyond it is dropped.
const PENDING_BYTES_MAX: usize = 1 << 20;

const DROPPED_NOTE: &str = "\n[polity: some of the output is not shown here]\n";

/// A shared buffer of text that is not yet shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveOutput {
    inner: Arc<LiveOutputInner>,
}

#[derive(Debug, Default)]
struct LiveOutputInner {
    pending: Mutex<PendingText>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct PendingText {
    text: String,
    is_dropping: bool,
}

impl LiveOutput {
    /// Appends text for the reader.
    pub(crate) fn push(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut pending = self.inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.text.len() + text.len() <= PENDING_BYTES_MAX {
            pending.text.push_str(text);
        } else if !pending.is_dropping {
            pending.is_dropping = true;
            pending.text.push_str(DROPPED_NOTE);
        }
        drop(pending);
        self.inner.changed.notify_one();
    }

    /// Waits for new text.
    pub(crate) async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    pub(crate) fn take(&self) -> String {
        let mut pending = self.inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.is_dropping = false;
        std::mem::take(&mut pending.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reader_sees_one_note_for_dropped_text() {
        let live = LiveOutput::default();
        let piece = "x".repeat(PENDING_BYTES_MAX / 2);
        for _ in 0..5 {
            live.push(&piece);
        }
        let seen = live.take();
        assert_eq!(seen.len(), 2 * piece.len() + DROPPED_NOTE.len());
        live.push("more");
        assert_eq!(live.take(), "more");
    }
}

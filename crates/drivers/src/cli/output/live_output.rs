//! Best-effort live output of a run. A slow reader loses text and never blocks the run.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The maximum pending text, in bytes. Text beyond it is dropped.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The note that replaces dropped text.
const MISSED: &str = "\n[polity: some of the output is not shown here]\n";

/// A shared buffer of text that is not yet shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveOutput {
    shared: Arc<LiveOutputInner>,
}

#[derive(Debug, Default)]
struct LiveOutputInner {
    waiting: Mutex<PendingText>,
    news: Notify,
}

#[derive(Debug, Default)]
struct PendingText {
    text: String,
    is_missed: bool,
}

impl LiveOutput {
    /// Appends text for the reader.
    pub(crate) fn show(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.text.len() + text.len() <= WAITING_BYTES_MAX {
            waiting.text.push_str(text);
        } else if !waiting.is_missed {
            waiting.is_missed = true;
            waiting.text.push_str(MISSED);
        }
        drop(waiting);
        self.shared.news.notify_one();
    }

    /// Waits for new text.
    pub(crate) async fn news(&self) {
        self.shared.news.notified().await;
    }

    /// Takes the pending text.
    pub(crate) fn take(&self) -> String {
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_missed = false;
        std::mem::take(&mut waiting.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_too_slowly_is_told_so_once() {
        let live = LiveOutput::default();
        let piece = "x".repeat(WAITING_BYTES_MAX / 2);
        for _ in 0..5 {
            live.show(&piece);
        }
        let seen = live.take();
        assert_eq!(seen.len(), 2 * piece.len() + MISSED.len());
        live.show("more");
        assert_eq!(live.take(), "more");
    }
}

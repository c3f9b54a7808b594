//! What a run says, on its way to whoever looks on. It is not fact: who looks on too slowly misses
//! some of it, and never holds the run back.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// How much waits to be looked at, in bytes. What comes while so much waits is not shown.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// What is shown in the place of what was missed.
const MISSED: &str = "\n[polity: some of the output is not shown here]\n";

/// Text on its way to whoever looks on.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    text: String,
    is_missed: bool,
}

impl Live {
    /// Shows this, as soon as someone looks.
    pub(super) fn show(&self, text: &str) {
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

    /// Waits until there is something to look at.
    pub(super) async fn news(&self) {
        self.shared.news.notified().await;
    }

    /// Takes what waits.
    pub(super) fn take(&self) -> String {
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
        let live = Live::default();
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

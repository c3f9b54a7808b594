//! The time limits of a model call: the idle time between two signs of life, and the total time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use polity_definition::LlmConfig;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::usage::{Usage, UsageEstimate, estimate_tokens};
use tokio::time::Instant;

use super::effects::LiveText;
use crate::driver::{ModelFailure, TextSink};

/// The longest time that a timer waits: longer limits are none.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 10);

/// Measures a model call.
pub(super) struct CallTimer {
    idle: Duration,
    total: Duration,
    began: Instant,
    last_sign: Mutex<Instant>,
    /// The bytes of the text so far.
    text_bytes: AtomicUsize,
}

/// A time limit that a call exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallTimeout {
    /// Nothing arrived for `llm_config.timeout_seconds`.
    Idle(Duration),
    /// The answer was not complete after `llm_config.total_timeout_seconds`.
    Total(Duration),
}

impl CallTimer {
    /// Starts a timer with the limits of a model.
    pub(super) fn start(config: &LlmConfig) -> Self {
        let seconds = |limit: u64| Duration::from_secs(limit).min(FOREVER);
        let began = Instant::now();
        Self {
            idle: seconds(config.timeout_seconds.get()),
            total: seconds(config.total_timeout_seconds.get()),
            began,
            last_sign: Mutex::new(began),
            text_bytes: AtomicUsize::new(0),
        }
    }

    /// Waits until a limit is exceeded.
    pub(super) async fn expired(&self) -> CallTimeout {
        let total_ends = self.began + self.total;
        loop {
            let idle_ends = *self.last_sign() + self.idle;
            if Instant::now() >= total_ends {
                return CallTimeout::Total(self.total);
            }
            if Instant::now() >= idle_ends {
                return CallTimeout::Idle(self.idle);
            }
            tokio::time::sleep_until(idle_ends.min(total_ends)).await;
        }
    }

    /// The usage of a call that was given up: unknown, with an estimate for budgets.
    pub(super) fn usage_so_far(&self, request_bytes: usize) -> Usage {
        let bytes = request_bytes.saturating_add(self.text_bytes.load(Ordering::Relaxed));
        let estimate = UsageEstimate { tokens: estimate_tokens(bytes), ..UsageEstimate::default() };
        Usage { estimate, ..Usage::UNKNOWN }
    }

    fn last_sign(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.last_sign.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallTimeout {
    /// The failure that names the exceeded setting. A call that delivered for its total time would
    /// do the same again, so it is not retried.
    pub(super) fn failure(self, usage: Usage) -> ModelFailure {
        let (category, message) = match self {
            Self::Idle(limit) => (
                ErrorCategory::Transient,
                format!(
                    "the model sent nothing for {} seconds, the agent's llm_config.timeout_seconds",
                    limit.as_secs()
                ),
            ),
            Self::Total(limit) => (
                ErrorCategory::Permanent,
                format!(
                    "the model's answer was not complete after {} seconds, the agent's \
                     llm_config.total_timeout_seconds",
                    limit.as_secs()
                ),
            ),
        };
        let failure = AttemptFailure { category, message };
        ModelFailure { usage, ..ModelFailure::new(failure) }
    }
}

/// Publishes partial text, and takes it and everything else that arrives as a sign of life.
pub(super) struct TimedText<'a> {
    pub(super) text: LiveText<'a>,
    pub(super) timer: &'a CallTimer,
}

impl TextSink for TimedText<'_> {
    fn text(&self, piece: &str) {
        self.progress();
        self.timer.text_bytes.fetch_add(piece.len(), Ordering::Relaxed);
        self.text.text(piece);
    }

    fn progress(&self) {
        *self.timer.last_sign() = Instant::now();
    }
}

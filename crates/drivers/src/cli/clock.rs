//! When a run has taken too long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polity_definition::CliAgent;
use tokio::time::Instant;

use super::presets::Output;

/// When a program was last heard.
#[derive(Debug)]
pub(super) struct Heard {
    begun: Instant,
    /// How long after the beginning, in milliseconds and one more; 0 if it was never heard.
    last: AtomicU64,
}

impl Heard {
    pub(super) fn new(begun: Instant) -> Self {
        Self { begun, last: AtomicU64::new(0) }
    }

    /// It was heard just now.
    pub(super) fn now(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.last.store(elapsed + 1, Ordering::Relaxed);
    }

    fn last(&self) -> Option<Instant> {
        let elapsed = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.begun + Duration::from_millis(elapsed))
    }
}

/// How long a run may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    begun: Instant,
    /// From the beginning to the end.
    total: Duration,
    /// From the beginning to the first byte on either stream. A program that gives its output as a
    /// file need not say anything; it has started when its process is there.
    start: Option<Duration>,
    /// Between two bytes, on whichever stream, and before the first.
    idle: Option<Duration>,
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    Total(Duration),
    Start(Duration),
    Idle(Duration),
}

impl Late {
    /// What happened, and what to do.
    pub(super) fn message(self, agent: &str) -> String {
        let (what, field, limit) = match self {
            Self::Total(limit) => ("did not come to its end", "timeout", limit),
            Self::Start(limit) => ("did not write anything at all", "start_timeout", limit),
            Self::Idle(limit) => ("did not write anything more", "idle_timeout", limit),
        };
        let seconds = limit.as_secs();
        format!(
            "the program of \"{agent}\" {what} within {seconds} s and was ended; if it needs \
             longer, raise {field} in the agent's file"
        )
    }
}

impl Patience {
    pub(super) fn new(begun: Instant, agent: &CliAgent, output: &Output) -> Self {
        let seconds = |limit: std::num::NonZeroU64| Duration::from_secs(limit.get());
        let start = match output {
            Output::Stdout | Output::JsonRpc => agent.start_timeout_seconds,
            Output::File(_) => None,
        };
        Self {
            begun,
            total: seconds(agent.timeout_seconds),
            start: start.map(seconds),
            idle: agent.idle_timeout_seconds.map(seconds),
        }
    }

    /// What will take too long first, and when, if the program is not heard again.
    pub(super) fn next(&self, heard: &Heard) -> (Instant, Late) {
        let last = heard.last();
        let total = (self.begun + self.total, Late::Total(self.total));
        let start = self.start.filter(|_| last.is_none());
        let start = start.map(|limit| (self.begun + limit, Late::Start(limit)));
        let since = last.unwrap_or(self.begun);
        let idle = self.idle.map(|limit| (since + limit, Late::Idle(limit)));
        [start, idle].into_iter().flatten().fold(total, |a, b| if b.0 < a.0 { b } else { a })
    }
}

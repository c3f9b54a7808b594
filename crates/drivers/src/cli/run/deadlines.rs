//! Deadlines of a run: total, start and idle timeouts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polity_definition::CliAgent;
use tokio::time::Instant;

use crate::cli::invocation::presets::OutputMode;
use crate::cli::run::AgentInfo;

#[derive(Debug)]
pub(crate) struct LastOutput {
    started_at: Instant,
    /// Milliseconds since the start, plus one; 0 before the first output.
    last: AtomicU64,
}

impl LastOutput {
    pub(crate) fn new(started_at: Instant) -> Self {
        Self { started_at, last: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self) {
        let elapsed = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.last.store(elapsed + 1, Ordering::Relaxed);
    }

    fn last(&self) -> Option<Instant> {
        let elapsed = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started_at + Duration::from_millis(elapsed))
    }
}

/// The timeouts of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunDeadlines {
    started_at: Instant,
    total: Duration,
    /// From start to the first byte on either stream. Unset for agents that answer in a file: they
    /// need not write anything.
    start: Option<Duration>,
    /// Between two bytes on either stream, and before the first.
    idle: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissedDeadline {
    Total(Duration),
    Start(Duration),
    Idle(Duration),
}

impl MissedDeadline {
    /// The message with the field to raise.
    pub(crate) fn message(self, info: &AgentInfo<'_>) -> String {
        let (what, field, limit) = match self {
            Self::Total(limit) => ("did not finish", "timeout", limit),
            Self::Start(limit) => ("did not write anything", "start_timeout", limit),
            Self::Idle(limit) => ("did not write anything new", "idle_timeout", limit),
        };
        let seconds = limit.as_secs();
        let agent = info.name;
        if let Some(script) = &info.resolved.script {
            let script = script.label();
            return format!(
                "script \"{script}\": it {what} within {seconds} s and was ended; if it needs \
                 longer, raise timeout_seconds of its node"
            );
        }
        format!(
            "the program of \"{agent}\" {what} within {seconds} s and was ended; if it needs \
             longer, raise {field} in the agent's file"
        )
    }
}

impl RunDeadlines {
    pub(crate) fn new(started_at: Instant, agent: &CliAgent, output: &OutputMode) -> Self {
        let seconds = |limit: std::num::NonZeroU64| Duration::from_secs(limit.get());
        let start = match output {
            OutputMode::Stdout | OutputMode::JsonRpc => agent.start_timeout_seconds,
            OutputMode::File(_) => None,
        };
        Self {
            started_at,
            total: seconds(agent.timeout_seconds),
            start: start.map(seconds),
            idle: agent.idle_timeout_seconds.map(seconds),
        }
    }

    /// The next deadline if no more output arrives.
    pub(crate) fn next_deadline(&self, last_output: &LastOutput) -> (Instant, MissedDeadline) {
        let last = last_output.last();
        let total = (self.started_at + self.total, MissedDeadline::Total(self.total));
        let start = self.start.filter(|_| last.is_none());
        let start = start.map(|limit| (self.started_at + limit, MissedDeadline::Start(limit)));
        let since = last.unwrap_or(self.started_at);
        let idle = self.idle.map(|limit| (since + limit, MissedDeadline::Idle(limit)));
        [start, idle].into_iter().flatten().fold(total, |a, b| if b.0 < a.0 { b } else { a })
    }
}

//! The times that commits take, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in microseconds.
const BOUNDS_MICROS: [u64; 8] = [250, 1000, 2500, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

/// A histogram of the times that commits took until they were durable.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CommitTimes {
    /// The number of commits within each bound.
    pub within: [u64; BOUNDS_MICROS.len()],
    /// The number of all commits.
    pub count: u64,
    /// The sum of all times.
    pub total: Duration,
}

impl CommitTimes {
    /// The upper bounds of the buckets, in seconds.
    pub fn bounds() -> [f64; BOUNDS_MICROS.len()] {
        BOUNDS_MICROS.map(|micros| Duration::from_micros(micros).as_secs_f64())
    }
}

/// Counts the times of commits.
#[derive(Debug, Default)]
pub(crate) struct CommitTimer {
    within: [AtomicU64; BOUNDS_MICROS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl CommitTimer {
    /// Counts a number of commits that became durable together.
    pub(crate) fn record(&self, commits: usize, took: Duration) {
        let commits = commits as u64;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for (within, bound) in self.within.iter().zip(BOUNDS_MICROS) {
            if micros <= bound {
                within.fetch_add(commits, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(commits, Ordering::Relaxed);
        self.micros.fetch_add(micros.saturating_mul(commits), Ordering::Relaxed);
    }

    pub(crate) fn times(&self) -> CommitTimes {
        CommitTimes {
            within: self.within.each_ref().map(|count| count.load(Ordering::Relaxed)),
            count: self.count.load(Ordering::Relaxed),
            total: Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_commit_in_all_buckets_that_hold_it() {
        let timer = CommitTimer::default();
        timer.record(2, Duration::from_micros(900));
        timer.record(1, Duration::from_mins(1));
        let seen = timer.times();
        assert_eq!(seen.within, [0, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!((seen.count, seen.total), (3, Duration::from_micros(60_001_800)));
    }
}

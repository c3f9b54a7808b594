//! The wait before the next attempt of a call, run or message.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A wait between two attempts, as the journal has it.
///
/// Both times come from the wall clock, which may be set back afterwards. So a wait is bounded by its
/// own length, whatever the clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The time of the failure.
    pub since: Timestamp,
    /// The time of the next attempt.
    pub until: Timestamp,
}

impl Backoff {
    /// True if the wait is over. A clock that shows a time before the failure was set back, and
    /// says nothing about the wait; the timer has bounded it.
    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        now >= self.until || now < self.since
    }

    /// The time left, at most the whole wait.
    pub(crate) fn left(self, now: Timestamp) -> Duration {
        let length = self.until.duration_since(self.since);
        let left = self.until.duration_since(now).min(length);
        left.max(SignedDuration::ZERO).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_set_back_does_not_prolong_the_wait() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let backoff = Backoff { since: at(10_000), until: at(10_030) };
        for (now, left, is_over) in [
            (10_000, 30, false),
            (10_020, 10, false),
            (10_030, 0, true),
            (20_000, 0, true),
            // Hours before the failure.
            (0, 30, true),
            (9_999, 30, true),
        ] {
            assert_eq!(backoff.left(at(now)), Duration::from_secs(left), "{now}");
            assert_eq!(backoff.is_over(at(now)), is_over, "{now}");
        }
    }
}

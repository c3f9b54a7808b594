//! The time source. Only this module reads a clock.

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Returns the current time in whole microseconds, the precision of the store.
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is where the clock is read")]
        let now = Timestamp::now();
        whole_microseconds(now)
    }
}

/// Truncates a time to the precision of the store, so that it survives a round trip.
pub fn whole_microseconds(time: Timestamp) -> Timestamp {
    // Every whole microsecond of a valid time is a valid time.
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

//! The time, as everything else is given it. This is the only place that reads a clock.

use jiff::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now, in whole microseconds: stores keep no more.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is where the clock is read")]
        let now = Timestamp::now();
        whole_microseconds(now)
    }
}

/// Cuts off what a store would not keep, so that a time is the same before and after.
pub fn whole_microseconds(time: Timestamp) -> Timestamp {
    // Every whole microsecond of a valid time is a valid time.
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

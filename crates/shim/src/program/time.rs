//! Time, in microseconds.

use crate::sys::{self, Time};

/// How long ago that was.
pub(crate) fn microseconds_since(begun: Time) -> u64 {
    let now = sys::now();
    let nanoseconds =
        (now.seconds - begun.seconds) * 1_000_000_000 + now.nanoseconds - begun.nanoseconds;
    nanoseconds.unsigned_abs() / 1000
}

/// So long a time.
pub(crate) fn time(microseconds: u64) -> Time {
    let microseconds = microseconds.cast_signed();
    Time { seconds: microseconds / 1_000_000, nanoseconds: microseconds % 1_000_000 * 1000 }
}

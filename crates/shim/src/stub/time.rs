//! Durations in microseconds.

use crate::sys::{self, KernelTimespec};

/// The time since `started_at`.
pub(crate) fn microseconds_since(started_at: KernelTimespec) -> u64 {
    let now = sys::now();
    let nanoseconds = (now.seconds - started_at.seconds) * 1_000_000_000 + now.nanoseconds
        - started_at.nanoseconds;
    nanoseconds.unsigned_abs() / 1000
}

/// A timespec for a duration.
pub(crate) fn time(microseconds: u64) -> KernelTimespec {
    let microseconds = microseconds.cast_signed();
    KernelTimespec {
        seconds: microseconds / 1_000_000,
        nanoseconds: microseconds % 1_000_000 * 1000,
    }
}

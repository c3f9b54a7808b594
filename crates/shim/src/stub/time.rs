//! Durations in microseconds.

use crate::sys::{self, KernelTimespec};

/// The time since `begun`.
pub(crate) fn microseconds_since(begun: KernelTimespec) -> u64 {
    let now = sys::now();
    let nanoseconds =
        (now.seconds - begun.seconds) * 1_000_000_000 + now.nanoseconds - begun.nanoseconds;
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

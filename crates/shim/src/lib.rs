//! The stub of the process shim: supervises one command in a few kilobytes.
//!
//! Most commands exit by themselves and leave nothing behind. Supervising them takes a handful of
//! system calls, which the stub makes in a process that is cheap to start and keep. For everything
//! else, it replaces itself with the full shim, in the same process: to end the command, to kill
//! what it left, or to measure its usage.
//!
//! The stub is called with the arguments
//!
//! ```text
//! NAME WHOLE COMMAND STATE PARENT [OPTION VALUE]... -- PROGRAM ARGS...
//! ```
//!
//! and becomes `WHOLE COMMAND STATE PARENT ...`, with STATE set to a [`HandoverState`].

#[cfg(embedded)]
mod sys;

/// The stub's modules, compiled here only for unit tests.
#[cfg(all(test, embedded))]
#[path = "stub"]
#[allow(dead_code, reason = "the tests supervise nothing")]
mod parts {
    pub(crate) mod children;
    pub(crate) mod pids_limit;
    pub(crate) mod run_record;
    pub(crate) mod spawn;
    pub(crate) mod supervise;
    pub(crate) mod text_buffer;
    pub(crate) mod time;
}
#[cfg(all(test, embedded))]
use parts::{children, pids_limit, run_record, spawn, supervise, text_buffer, time};

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The stub executable; `None` on unsupported platforms.
#[cfg(embedded)]
pub const STUB: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/stub")));

/// The stub executable; `None` on unsupported platforms.
#[cfg(not(embedded))]
pub const STUB: Option<&[u8]> = None;

/// The progress of the stub when the full shim takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverState {
    /// Nothing is done.
    New,
    /// The command runs, and the files of the run are locked.
    Started {
        /// The command's process.
        pid: i32,
        /// The time since its start.
        elapsed: Duration,
    },
}

impl HandoverState {
    /// The written form of `New`.
    pub const NEW: &str = "new";

    /// Parses the written form: `new` or `PID:MILLISECONDS`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == Self::NEW {
            return Some(Self::New);
        }
        let (pid, elapsed_ms) = text.split_once(':')?;
        let elapsed = Duration::from_millis(elapsed_ms.parse().ok()?);
        Some(Self::Started { pid: pid.parse().ok()?, elapsed })
    }
}

/// Sets the process name of the shim.
pub fn set_process_name() {
    #[cfg(embedded)]
    sys::set_name(sys::NAME);
}

/// Unblocks all signals: those that the stub blocked before the handover, and inherited ones.
pub fn unblock_signals() {
    #[cfg(embedded)]
    sys::block_only(0);
}

/// The version of the kernel's Landlock interface; `None` if it has none, or on platforms without
/// the stub.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    #[cfg(embedded)]
    return u32::try_from(sys::landlock_version()).ok().filter(|version| *version > 0);
    #[cfg(not(embedded))]
    None
}

/// The first descriptor that a service manager passes to a process.
const PASSED_DESCRIPTOR: i32 = 3;

/// Inspects the descriptor that a service manager passed to this process. Returns `None` if it is not
/// open.
///
/// The environment that announces it may be wrong, so the descriptor may belong to another part of
/// this process. It is only lent: clone it to keep it.
pub fn with_passed_descriptor<T>(inspect: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    let is_open = std::fs::symlink_metadata(format!("/dev/fd/{PASSED_DESCRIPTOR}")).is_ok();
    if !is_open {
        return None;
    }
    // SAFETY: the descriptor is open, and lent for this call only.
    let descriptor = unsafe { BorrowedFd::borrow_raw(PASSED_DESCRIPTOR) };
    Some(inspect(descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_handover_states() {
        let started = HandoverState::Started { pid: 71, elapsed: Duration::from_millis(20) };
        for (text, state) in [
            ("new", Some(HandoverState::New)),
            ("71:20", Some(started)),
            ("", None),
            ("71", None),
            ("x:20", None),
            ("71:-1", None),
        ] {
            assert_eq!(HandoverState::parse(text), state, "{text}");
        }
    }
}

//! A program that watches over another one, in a few kilobytes.
//!
//! Most programs that Polity runs end by themselves and leave nothing behind. To see that through
//! takes a handful of calls to the system, and this does it in a process that is cheap to start and
//! to keep. For everything else, when it is told to end the program, when something is left behind,
//! when there is something to measure, it becomes the whole shim, in the same process: that one has
//! the rules.
//!
//! It is called with the arguments
//!
//! ```text
//! NAME WHOLE COMMAND STATE PARENT [OPTION VALUE]... -- PROGRAM ARGS...
//! ```
//!
//! and becomes `WHOLE COMMAND STATE PARENT ...`, where STATE is then a [`State`].

#[cfg(embedded)]
mod sys;

/// The program's own parts are compiled here only to be tested; there they stand on their own.
#[cfg(all(test, embedded))]
#[path = "program"]
#[allow(dead_code, reason = "no one watches over anything here")]
mod parts {
    pub(crate) mod ceiling;
    pub(crate) mod family;
    pub(crate) mod record;
    pub(crate) mod start;
    pub(crate) mod text;
    pub(crate) mod time;
    pub(crate) mod watch;
}
#[cfg(all(test, embedded))]
use parts::{ceiling, family, record, start, text, time, watch};

use std::time::Duration;

/// The program; nothing where there is none for this kind of machine.
#[cfg(embedded)]
pub const PROGRAM: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/program")));

/// The program; nothing where there is none for this kind of machine.
#[cfg(not(embedded))]
pub const PROGRAM: Option<&[u8]> = None;

/// What was done before the whole shim takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    New,
    /// The program runs, and the files of the run are locked.
    Started {
        /// The program's process.
        pid: i32,
        /// How long it has run.
        elapsed: Duration,
    },
}

impl State {
    /// How it is written where nothing was done.
    pub const NEW: &str = "new";

    /// From its written form: `new`, or `PID:MILLISECONDS`.
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

/// Gives this process the name of the shim.
pub fn take_name() {
    #[cfg(embedded)]
    sys::set_name(sys::NAME);
}

/// Hears signals again that were held back while the whole shim took over.
pub fn hear_signals() {
    #[cfg(embedded)]
    sys::unblock(sys::HELD_BACK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read() {
        let started = State::Started { pid: 71, elapsed: Duration::from_millis(20) };
        for (text, state) in [
            ("new", Some(State::New)),
            ("71:20", Some(started)),
            ("", None),
            ("71", None),
            ("x:20", None),
            ("71:-1", None),
        ] {
            assert_eq!(State::parse(text), state, "{text}");
        }
    }
}

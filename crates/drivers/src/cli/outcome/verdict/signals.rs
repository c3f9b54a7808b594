//! Failures of processes that were ended by a signal that Polity did not send.

use polity_model::failure::ErrorCategory;
use rustix::process::Signal;

/// The offset that shells add to a signal number in exit codes.
const EXIT_SIGNAL_BASE: i32 = 128;

/// The signals that shells report as exit codes. Other codes above 128 are the program's own.
const SHELL_SIGNALS: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::ILL,
    Signal::ABORT,
    Signal::BUS,
    Signal::FPE,
    Signal::KILL,
    Signal::SEGV,
    Signal::TERM,
];

/// The signal that an exit code reports.
pub(crate) fn from_exit_code(code: i32) -> Option<i32> {
    let number = code - EXIT_SIGNAL_BASE;
    SHELL_SIGNALS.iter().any(|signal| signal.as_raw() == number).then_some(number)
}

/// The category of a failure by signal. A request to end may not recur. A killed process was most
/// often too large for the machine, and would be again.
pub(crate) fn category(number: i32) -> ErrorCategory {
    match Signal::from_named_raw(number) {
        Some(Signal::HUP | Signal::INT | Signal::TERM) => ErrorCategory::Transient,
        Some(Signal::KILL) => ErrorCategory::SystemError,
        Some(_) | None => ErrorCategory::AgentError,
    }
}

/// A description of the end by a signal. `has_limits` is true if the program's definition may set
/// `resource_limits`.
pub(crate) fn describe(number: i32, has_limits: bool) -> String {
    let why = match Signal::from_named_raw(number) {
        Some(Signal::HUP | Signal::INT | Signal::TERM) => "another process asked it to end",
        Some(Signal::KILL) if !has_limits => {
            "it was killed, most often by the system when memory runs out"
        }
        Some(Signal::KILL) => {
            "it was killed, most often by the system when memory runs out; resource_limits.memory_mb \
             ends it before that"
        }
        Some(Signal::SEGV | Signal::ABORT | Signal::BUS | Signal::ILL | Signal::FPE) => {
            "it crashed"
        }
        Some(Signal::XCPU) => "it exceeded its processor time limit",
        Some(_) | None => "Polity did not send it",
    };
    format!("it was ended by signal {number}: {why}")
}

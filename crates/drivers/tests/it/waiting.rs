//! Waiting for processes and other conditions.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The maximum wait of a test; far longer than needed.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Waits until `check` returns a value.
pub(crate) async fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    eventually(what, || look().then_some(())).await;
}

/// True if a process exists and is not a zombie.
pub(crate) fn is_alive(pid: impl Display) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Kills a process.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

//! Finds the processes of a run by a variable that they inherit.
//!
//! A shim that is killed together with Polity leaves processes that have left their session and
//! parent. A control group still names them, but many users have none. `/proc/PID/environ` shows the
//! variables that a process was started with, even if it has changed them since. Only a process that
//! was started without its parent's variables is not found.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

/// The variable that names the run, in every process of it.
const RUN_VARIABLE: &str = "POLITY_RUN";

/// The maximum number of searches. A process may fork while its siblings are killed.
const SEARCHES_MAX: u32 = 50;
const SEARCH_PAUSE: Duration = Duration::from_millis(2);

/// Adds the variable by which the processes of a run are found.
pub(crate) fn mark(variables: &mut Vec<(String, String)>, run: String) {
    variables.retain(|(name, _)| name != RUN_VARIABLE);
    variables.push((RUN_VARIABLE.to_owned(), run));
}

/// Kills all processes of a run. Blocks until they are gone.
pub(crate) fn kill_marked(run: &str) -> io::Result<()> {
    let mark = format!("{RUN_VARIABLE}={run}");
    for _ in 0..SEARCHES_MAX {
        let mut is_clear = true;
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            is_clear &= !pid.is_some_and(|pid| kill_if_marked(pid, mark.as_bytes()));
        }
        if is_clear {
            return Ok(());
        }
        std::thread::sleep(SEARCH_PAUSE);
    }
    Err(io::Error::other(format!("processes with the variable {mark} do not exit")))
}

/// Kills a process if it has the mark. Returns true if it had.
fn kill_if_marked(pid: Pid, mark: &[u8]) -> bool {
    // This process may itself be part of a run, but never of one that it cleans up after.
    if pid == rustix::process::getpid() || !is_marked(pid, mark) {
        return false;
    }
    let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return false };
    // Another process may have got the id before it was opened.
    if !is_marked(pid, mark) {
        return false;
    }
    // An unreachable process has just exited.
    let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
    true
}

/// True if a process was started with the mark. Variables of other users are not readable, and a
/// process that has exited has none.
fn is_marked(pid: Pid, mark: &[u8]) -> bool {
    let variables = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    variables.split(|byte| *byte == 0).any(|variable| variable == mark)
}

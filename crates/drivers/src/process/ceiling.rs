//! How many processes and threads of a program there may be before the system makes no more.
//!
//! A limit speaks of processes, and it is kept by looking. The ceiling is far above it: it keeps those
//! who multiply from filling the machine before anyone has looked.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// How many threads each process may have on average.
const THREADS_PER_PROCESS: u64 = 64;

/// The least that is allowed, so that few processes with many threads are no matter.
const TASKS_MIN: u64 = 1024;

/// What is added where all processes of the user are counted, since others start some as well.
const TASKS_OF_OTHERS: u64 = 4096;

/// How many processes and threads there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// The most of them.
    pub tasks: u64,
    /// The control group that counts those of the program, which the shim makes. Without one, all
    /// those of the user are counted.
    pub group: Option<PathBuf>,
}

impl Ceiling {
    /// What stands above so many processes, for a program whose control group this is.
    #[cfg(target_os = "linux")]
    pub(crate) fn above(processes: NonZeroU32, group: Option<&Path>) -> Option<Self> {
        let tasks = TASKS_MIN.max(u64::from(processes.get()) * THREADS_PER_PROCESS);
        if let Some(group) = group.and_then(super::cgroup::counting) {
            return Some(Self { tasks, group: Some(group) });
        }
        // More than the user's own, but quickly known.
        let already = tasks_of_all(&std::fs::read_to_string("/proc/loadavg").ok()?)?;
        Some(Self { tasks: already + TASKS_OF_OTHERS + tasks, group: None })
    }

    /// What stands above so many processes, which is nothing here.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn above(_: NonZeroU32, _: Option<&Path>) -> Option<Self> {
        None
    }
}

/// How many processes and threads there are in all, from `0.1 0.2 0.3 RUNNING/ALL NEWEST`.
#[cfg(target_os = "linux")]
fn tasks_of_all(load: &str) -> Option<u64> {
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_far_above_the_limit() {
        for processes in [1, 30, 5000] {
            let ceiling = Ceiling::above(processes.try_into().unwrap(), None).unwrap();
            assert!(ceiling.tasks >= u64::from(processes) * THREADS_PER_PROCESS, "{ceiling:?}");
            assert!(ceiling.tasks > TASKS_MIN + TASKS_OF_OTHERS, "{ceiling:?}");
        }
    }

    #[test]
    fn all_there_are_are_counted() {
        assert_eq!(tasks_of_all("0.51 59.98 319.52 2/345 12345\n"), Some(345));
        assert_eq!(tasks_of_all("0.51"), None);
    }
}

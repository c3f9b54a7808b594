//! The kernel's limit on the processes and threads of a run.
//!
//! The shim enforces the configured process limit by sampling. This limit is far above it and stops
//! fork bombs before the next sample.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// The average number of threads per process.
const THREADS_PER_PROCESS: u64 = 64;

/// The minimum limit, so that few processes may have many threads.
const TASKS_MIN: u64 = 1024;

/// The allowance for other processes, if all processes of the user are counted.
const OTHER_TASKS: u64 = 4096;

/// A limit on processes and threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidsLimit {
    /// The maximum number of processes and threads.
    pub tasks: u64,
    /// The control group that counts the run's processes. Without one, all of the user's count.
    pub group: Option<PathBuf>,
}

impl PidsLimit {
    /// The limit for a run with so many processes and this control group.
    #[cfg(target_os = "linux")]
    pub(crate) fn for_processes(processes: NonZeroU32, group: Option<&Path>) -> Option<Self> {
        let tasks = TASKS_MIN.max(u64::from(processes.get()) * THREADS_PER_PROCESS);
        if let Some(group) = group.and_then(super::cgroup::counting_group) {
            return Some(Self { tasks, group: Some(group) });
        }
        // A quick overestimate of the user's own.
        let running = parse_task_count(&std::fs::read_to_string("/proc/loadavg").ok()?)?;
        Some(Self { tasks: running + OTHER_TASKS + tasks, group: None })
    }

    /// Unsupported here.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn for_processes(_: NonZeroU32, _: Option<&Path>) -> Option<Self> {
        None
    }
}

/// The total number of processes and threads, from `0.1 0.2 0.3 RUNNING/ALL NEWEST`.
#[cfg(target_os = "linux")]
fn parse_task_count(load: &str) -> Option<u64> {
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn limit_is_far_above_the_process_count() {
        for processes in [1, 30, 5000] {
            let limit = PidsLimit::for_processes(processes.try_into().unwrap(), None).unwrap();
            assert!(limit.tasks >= u64::from(processes) * THREADS_PER_PROCESS, "{limit:?}");
            assert!(limit.tasks > TASKS_MIN + OTHER_TASKS, "{limit:?}");
        }
    }

    #[test]
    fn parses_the_task_count() {
        assert_eq!(parse_task_count("0.51 59.98 319.52 2/345 12345\n"), Some(345));
        assert_eq!(parse_task_count("0.51"), None);
    }
}

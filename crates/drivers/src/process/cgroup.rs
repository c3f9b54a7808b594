//! Control groups of runs, if the system supports them and permits their use.
//!
//! A control group covers cases that the shim cannot: processes that it may not signal, processes
//! that fork faster than it can kill, and those left by a shim that was killed.
//!
//! With the pids controller, the kernel also limits the number of processes and threads.

mod hierarchy;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use self::hierarchy::CgroupParents;

/// Kills all processes of a group when `1` is written to it; since Linux 5.14.
const KILL: &str = "cgroup.kill";

/// The processes of a group, one per line.
const PROCS: &str = "cgroup.procs";

/// Counts the forks that failed because of the limit.
const EVENTS: &str = "pids.events";

/// The maximum path length. A path has to fit into the run record.
const PATH_BYTES_MAX: usize = 300;

/// The number of checks, and the pause between them, while killed processes exit.
const EXIT_CHECKS_MAX: u32 = 50;
const EXIT_CHECK_PAUSE: Duration = Duration::from_millis(2);

/// The group of a run, if groups are supported. The shim creates it.
pub(crate) fn for_run(name: &str) -> Option<PathBuf> {
    let group = parents()?.killable.join(group_name(name));
    is_usable(&group).then_some(group)
}

/// True if this is the group of a run.
pub(crate) fn is_of_run(group: &Path, name: &str) -> bool {
    group.file_name().is_some_and(|own| own.to_str() == Some(&group_name(name)))
}

fn group_name(run: &str) -> String {
    format!("polity-{run}")
}

/// The group whose pids controller counts the processes of `group`. It may be the same.
pub(crate) fn counting_group(group: &Path) -> Option<PathBuf> {
    let counting = parents()?.counted.as_ref()?.join(group.file_name()?);
    is_usable(&counting).then_some(counting)
}

/// The support of control groups for runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupSupport {
    /// Runs are killed as a whole, and the kernel limits their processes.
    Complete,
    /// Runs are killed as a whole; the controller pids is missing.
    WithoutLimits,
    /// This process may create no groups.
    Missing,
}

/// Tries out the control groups of this process.
pub fn cgroup_support() -> CgroupSupport {
    match parents() {
        Some(parents) if parents.counted.is_some() => CgroupSupport::Complete,
        Some(_) => CgroupSupport::WithoutLimits,
        None => CgroupSupport::Missing,
    }
}

fn is_usable(group: &Path) -> bool {
    group.as_os_str().len() <= PATH_BYTES_MAX && group.to_str().is_some()
}

fn parents() -> Option<&'static CgroupParents> {
    static PARENTS: OnceLock<Option<CgroupParents>> = OnceLock::new();
    PARENTS.get_or_init(CgroupParents::find).as_ref()
}

pub(crate) fn kill(group: &Path) -> io::Result<()> {
    fs::write(group.join(KILL), "1")
}

/// True if a group has more than `most` processes. Reads no more of the list than needed.
pub(crate) fn has_more_than(group: &Path, most: u32) -> io::Result<bool> {
    let mut members = File::open(group.join(PROCS))?;
    let mut bytes = [0; 4096];
    let mut seen = 0;
    loop {
        let count = members.read(&mut bytes)?;
        seen += bytes.iter().take(count).filter(|byte| **byte == b'\n').count();
        if count == 0 || seen > most as usize {
            return Ok(seen > most as usize);
        }
    }
}

/// True if a fork in the group failed because of the limit.
pub(crate) fn has_reached_limit(group: &Path) -> io::Result<bool> {
    let events = fs::read_to_string(group.join(EVENTS))?;
    Ok(events.lines().any(|line| line.strip_prefix("max ").is_some_and(|count| count != "0")))
}

/// Kills all processes of a group and removes it with its counting group. It may be missing.
pub(crate) fn clear(group: &Path) -> io::Result<()> {
    remove(group, kill)?;
    match counting_group(group) {
        // Its processes were also in the other group.
        Some(counting) if counting != group => remove(&counting, |_| Ok(())),
        Some(_) | None => Ok(()),
    }
}

fn remove(group: &Path, kill: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    for _ in 0..EXIT_CHECKS_MAX {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Processes take a moment to exit.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => kill(group)?,
            Err(error) => return Err(error),
        }
        std::thread::sleep(EXIT_CHECK_PAUSE);
    }
    // A process that does not exit cannot be waited for. An empty group is harmless.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_group_is_not_of_a_run() {
        assert!(is_of_run(Path::new("/sys/fs/cgroup/polity-1-0"), "1-0"));
        for group in ["/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/polity-1-1", "/"] {
            assert!(!is_of_run(Path::new(group), "1-0"), "{group}");
        }
    }

    #[test]
    fn clears_missing_and_empty_groups() {
        let folder = tempfile::tempdir().unwrap();
        clear(&folder.path().join("gone")).unwrap();
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        clear(&empty).unwrap();
        assert!(!empty.exists());
    }

    #[test]
    fn counts_the_processes_of_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let members = "4711\n".repeat(3000);
        fs::write(folder.path().join(PROCS), members).unwrap();
        for (most, is_more) in [(0, true), (30, true), (2999, true), (3000, false)] {
            assert_eq!(has_more_than(folder.path(), most).unwrap(), is_more, "{most}");
        }
    }

    #[test]
    fn reports_a_reached_limit() {
        let folder = tempfile::tempdir().unwrap();
        for (events, is_full) in [("max 0\n", false), ("max 17\n", true), ("other 3\n", false)] {
            fs::write(folder.path().join(EVENTS), events).unwrap();
            assert_eq!(has_reached_limit(folder.path()).unwrap(), is_full, "{events}");
        }
    }
}

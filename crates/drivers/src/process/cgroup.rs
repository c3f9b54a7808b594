//! A control group for each run, where the system has them and lets us.
//!
//! The shim sees to it that nothing of a program is left. A control group helps where a shim cannot:
//! it also ends those whom the shim may not signal, it ends everyone at once, however fast they
//! multiply, and it still knows them when the shim itself was killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// What ends everyone in a group, when `1` is written to it; since Linux 5.14.
const KILL: &str = "cgroup.kill";

/// The longest path that is used. It has to fit into the record of a run.
const PATH_BYTES_MAX: usize = 300;

/// How often, and after which pauses, to look whether those who were killed are gone.
const LEAVING_LOOKS_MAX: u32 = 50;
const LEAVING_PAUSE: Duration = Duration::from_millis(2);

/// The group of a run of this name, if there are groups. The shim makes it.
pub(crate) fn of_run(name: &str) -> Option<PathBuf> {
    static BASE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let base = BASE.get_or_init(usable_base).as_ref()?;
    let group = base.join(format!("polity-{name}"));
    (group.as_os_str().len() <= PATH_BYTES_MAX && group.to_str().is_some()).then_some(group)
}

/// Ends everyone in a group.
pub(crate) fn kill(group: &Path) -> io::Result<()> {
    fs::write(group.join(KILL), "1")
}

/// Ends everyone who is left in a group, and removes it. One that is gone is as good.
pub(crate) fn clear(group: &Path) -> io::Result<()> {
    for _ in 0..LEAVING_LOOKS_MAX {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Someone is still in it, and takes a moment to leave.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => kill(group)?,
            Err(error) => return Err(error),
        }
        std::thread::sleep(LEAVING_PAUSE);
    }
    // Whoever is left can be waited for by no one. Once they are gone, an empty group does no harm.
    Ok(())
}

/// The group of this process, if others can be made in it and be ended as a whole.
fn usable_base() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let base = base(&own, &mounts)?;
    let attempt = base.join(format!("polity-attempt-{}", std::process::id()));
    fs::create_dir(&attempt).ok()?;
    let can_kill = kill(&attempt).is_ok();
    // An empty group that cannot be removed does no harm.
    let _ = fs::remove_dir(&attempt);
    can_kill.then_some(base)
}

/// Where the group of a process is, from what the system says of its groups and of what is mounted.
fn base(own: &str, mounts: &str) -> Option<PathBuf> {
    let within = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find_map(|line| {
        // The optional fields end with a dash; the kind of file system follows.
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, mount_point) = (fields.next()?, fields.next()?);
        let is_whole = after.split(' ').next() == Some("cgroup2") && root == "/";
        is_whole.then_some(mount_point)
    })?;
    Some(Path::new(mount).join(within.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_is_found() {
        let mounts = "24 30 0:22 / /proc rw - proc proc rw\n\
                      31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        for (own, mounts, found) in [
            ("0::/user.slice/a\n", mounts, Some("/sys/fs/cgroup/user.slice/a")),
            ("4:memory:/x\n0::/\n", mounts, Some("/sys/fs/cgroup/")),
            ("4:memory:/x\n", mounts, None),
            ("0::/\n", "24 30 0:22 / /proc rw - proc proc rw\n", None),
        ] {
            assert_eq!(base(own, mounts).as_deref(), found.map(Path::new), "{own}");
        }
    }

    #[test]
    fn a_group_that_is_gone_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        clear(&folder.path().join("gone")).unwrap();
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        clear(&empty).unwrap();
        assert!(!empty.exists());
    }
}

//! Finds the control groups in which groups for runs can be created.

use std::fs;
use std::path::{Path, PathBuf};

/// Delegates controllers to child groups.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

const PIDS_MAX: &str = "pids.max";

/// The parent groups for runs.
pub(super) struct CgroupParents {
    /// The parent of groups that can be killed as a whole.
    pub(super) killable: PathBuf,
    /// The parent of groups with the pids controller: the same, or one of the cgroup v1 hierarchy.
    pub(super) counted: Option<PathBuf>,
}

impl CgroupParents {
    /// Tries out the groups of this process.
    pub(super) fn find() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let killable = v2_group(&own, &mounts)?;
        let counts = |group: &Path| group.join(PIDS_MAX).exists();
        let (can_kill, is_counted) = probe(&killable, |group| {
            if !counts(group) {
                // The kernel refuses this for groups that contain processes; then it is not needed.
                let _ = fs::write(killable.join(SUBTREE_CONTROL), "+pids");
            }
            (super::kill(group).is_ok(), counts(group))
        })?;
        if !can_kill {
            return None;
        }
        let counted = if is_counted {
            Some(killable.clone())
        } else {
            v1_pids_group(&own, &mounts).filter(|parent| probe(parent, counts) == Some(true))
        };
        Some(Self { killable, counted })
    }
}

/// Creates a group in `parent`, inspects it and removes it.
fn probe<T>(parent: &Path, look: impl FnOnce(&Path) -> T) -> Option<T> {
    let attempt = parent.join(format!("polity-attempt-{}", std::process::id()));
    fs::create_dir(&attempt).ok()?;
    let seen = look(&attempt);
    // An empty group is harmless.
    let _ = fs::remove_dir(&attempt);
    Some(seen)
}

/// The cgroup v2 group of this process, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn v2_group(own: &str, mounts: &str) -> Option<PathBuf> {
    let within = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    group_path(mounts, within, |kind, _| kind == "cgroup2")
}

/// The cgroup v1 group of this process for the pids controller.
fn v1_pids_group(own: &str, mounts: &str) -> Option<PathBuf> {
    let has_pids = |list: &str| list.split(',').any(|name| name == "pids");
    let within = own.lines().find_map(|line| {
        let (controllers, within) = line.split_once(':')?.1.split_once(':')?;
        has_pids(controllers).then_some(within)
    })?;
    group_path(mounts, within, |kind, options| kind == "cgroup" && has_pids(options))
}

/// The path of a group in the first mount whose file system type and options match.
fn group_path(mounts: &str, within: &str, matches: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        // A dash ends the optional fields; the file system type follows.
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, mount_point) = (fields.next()?, fields.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        (root == "/" && matches(kind, options)).then_some(mount_point)
    })?;
    Some(Path::new(mount).join(within.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROC: &str = "24 30 0:22 / /proc rw - proc proc rw\n";

    #[test]
    fn finds_the_v2_group() {
        let mounts = format!(
            "{PROC}31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        );
        for (own, mounts, found) in [
            ("0::/user.slice/a\n", mounts.as_str(), Some("/sys/fs/cgroup/user.slice/a")),
            ("4:memory:/x\n0::/\n", &mounts, Some("/sys/fs/cgroup/")),
            ("4:memory:/x\n", &mounts, None),
            ("0::/\n", PROC, None),
        ] {
            assert_eq!(v2_group(own, mounts).as_deref(), found.map(Path::new), "{own}");
        }
    }

    #[test]
    fn finds_the_v1_pids_group() {
        let mounts = format!(
            "{PROC}40 24 0:30 / /groups/memory rw - cgroup cgroup rw,memory\n\
             41 24 0:31 / /groups/pids rw - cgroup cgroup rw,pids\n"
        );
        for (own, mounts, found) in [
            ("8:pids:/a\n4:memory:/b\n0::/\n", mounts.as_str(), Some("/groups/pids/a")),
            ("4:memory:/b\n0::/\n", &mounts, None),
            ("8:pids:/a\n", PROC, None),
        ] {
            assert_eq!(v1_pids_group(own, mounts).as_deref(), found.map(Path::new), "{own}");
        }
    }
}

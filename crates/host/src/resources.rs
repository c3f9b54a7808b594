//! The free space on a disk and the free memory of this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The bytes that this user may still write on the disk of a path.
pub fn free_disk_bytes(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The bytes of memory that this process may still use: those of the machine, or fewer if a control
/// group limits it. `None` if the system does not say.
pub fn free_memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|own| own_groups(&own).into_iter().filter_map(|group| group.free()).min());
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (one, other) => one.or(other),
    }
}

/// The available bytes in `/proc/meminfo`.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files of a control group that limit memory.
#[derive(Debug, PartialEq, Eq)]
struct MemoryGroup {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
    /// The field of `memory.stat` with the files that can be dropped from memory.
    reclaimable: &'static str,
}

impl MemoryGroup {
    fn v2(folder: PathBuf) -> Self {
        let (limit, usage) = ("memory.max", "memory.current");
        Self { folder, limit, usage, reclaimable: "inactive_file" }
    }

    fn v1(folder: PathBuf) -> Self {
        let (limit, usage) = ("memory.limit_in_bytes", "memory.usage_in_bytes");
        Self { folder, limit, usage, reclaimable: "total_inactive_file" }
    }

    /// The bytes that are free within the limit; `None` without one.
    fn free(&self) -> Option<u64> {
        let number = |file| fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok();
        let (limit, usage): (u64, u64) = (number(self.limit)?, number(self.usage)?);
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let reclaimable = stat.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            (name == self.reclaimable).then(|| value.parse().ok())?
        });
        let used = usage.saturating_sub(reclaimable.unwrap_or(0));
        Some(limit.saturating_sub(used))
    }
}

/// The groups of this process and their parents, from `/proc/self/cgroup`.
fn own_groups(own: &str) -> Vec<MemoryGroup> {
    const ROOT: &str = "/sys/fs/cgroup";
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(within)) = (fields.next(), fields.next()) else { continue };
        let is_v1 = controllers.split(',').any(|name| name == "memory");
        if !is_v1 && !controllers.is_empty() {
            continue;
        }
        let root = Path::new(ROOT).join(if is_v1 { "memory" } else { "" });
        let of: fn(PathBuf) -> MemoryGroup = if is_v1 { MemoryGroup::v1 } else { MemoryGroup::v2 };
        let within = Path::new(within.trim_start_matches('/'));
        // In a container the path may be that of the machine, and the root is the container's.
        groups.extend(within.ancestors().map(|folder| of(root.join(folder))));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_available_memory() {
        let text = "MemTotal:       16 kB\nMemAvailable:    8 kB\n";
        assert_eq!(available(text), Some(8192));
        assert_eq!(available("MemTotal: 16 kB\n"), None);
    }

    #[test]
    fn finds_own_groups_and_their_parents() {
        let found = own_groups("4:memory:/a\n3:cpu:/x\n0::/b/c\n");
        let folders: Vec<_> = found.iter().map(|group| group.folder.to_str().unwrap()).collect();
        let folders: Vec<_> = folders.iter().map(|path| path.trim_end_matches('/')).collect();
        assert_eq!(
            folders,
            [
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/b/c",
                "/sys/fs/cgroup/b",
                "/sys/fs/cgroup"
            ]
        );
    }

    #[test]
    fn limit_of_a_group_counts_without_files_that_can_be_dropped() {
        let folder = std::env::temp_dir().join(format!("polity-group-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let group = MemoryGroup::v2(folder.clone());
        assert_eq!(group.free(), None);
        fs::write(folder.join("memory.max"), "1000\n").unwrap();
        fs::write(folder.join("memory.current"), "700\n").unwrap();
        fs::write(folder.join("memory.stat"), "anon 400\ninactive_file 200\n").unwrap();
        assert_eq!(group.free(), Some(500));
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        assert_eq!(group.free(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn this_machine_has_space_and_memory() {
        assert!(free_disk_bytes(Path::new("/")).is_ok());
        #[cfg(target_os = "linux")]
        assert!(free_memory_bytes().is_some());
    }
}

//! The state of a process, and the scope of its id.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use rustix::process::Pid;

/// The boot and the PID namespace of this process. A process id has no meaning outside of them: in
/// another container it is the id of another process.
pub(crate) fn own_pid_scope() -> Option<&'static str> {
    static SCOPE: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        Some(format!("{}:{namespace}", boot.trim()))
    };
    SCOPE.get_or_init(read).as_deref()
}

/// The fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcStat {
    /// The parent; none for the init process.
    pub(crate) parent: Option<Pid>,
    /// The processor time of the process and its reaped children, in ticks.
    pub(crate) cpu_ticks: u64,
    /// The children's part of it.
    pub(crate) children_ticks: u64,
    /// The start time, in ticks since boot. Together with the pid it identifies a process.
    pub(crate) started: u64,
    /// The resident memory, in pages.
    pub(crate) memory_pages: u64,
}

impl ProcStat {
    /// Reads the fields of a process, if it exists.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(&text)
    }

    /// Parses `pid (name) state parent ...`; the name may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let (_, after_name) = text.rsplit_once(')')?;
        // The first of these is field 3.
        let fields: Vec<_> = after_name.split_ascii_whitespace().take(22).collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let children_ticks = number(16)? + number(17)?;
        Some(Self {
            parent: fields.get(1)?.parse().ok().and_then(Pid::from_raw),
            cpu_ticks: number(14)? + number(15)? + children_ticks,
            children_ticks,
            started: number(22)?,
            memory_pages: number(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_any_process_name() {
        let rest = "7 12 12 0 -1 4194304 1 2 3 4 50 60 700 800 20 0 1 0 99 1000 33 184";
        for name in ["cat", "a) b) R (x", "", "\n)"] {
            let stat = ProcStat::parse(&format!("12 ({name}) S {rest}")).unwrap();
            assert_eq!(stat.parent.map(Pid::as_raw_pid), Some(7), "{name}");
            assert_eq!((stat.cpu_ticks, stat.children_ticks), (1610, 1500), "{name}");
            assert_eq!((stat.started, stat.memory_pages), (99, 33), "{name}");
        }
        for text in ["", "12 (cat) S", "12 (cat) S 7 1 2 3"] {
            assert_eq!(ProcStat::parse(text), None, "{text}");
        }
    }
}

//! Who is below the shim, as the system tells it.

use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal};

/// What the system says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Its parent; none for the first of all.
    pub(super) parent: Option<Pid>,
    /// The processor time that it and the children it waited for have used, in ticks.
    pub(super) cpu_ticks: u64,
    /// The part of that which is the children's.
    pub(super) children_ticks: u64,
    /// When it was started. With the process id it names a process for good.
    started: u64,
    /// The memory that it has, in pages.
    pub(super) memory_pages: u64,
}

impl Stat {
    /// What the system says of this process; nothing if it is gone.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(&text)
    }

    /// From `pid (name) state parent ...`, where the name may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let (_, after_name) = text.rsplit_once(')')?;
        // The first of these is the third field of all.
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

/// The children of the shim, also those that have ended and are not reaped.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    // The shim has one thread, which bears the number of the process.
    let me = rustix::process::getpid();
    match children_of_thread(me, me) {
        Some(children) => Ok(children),
        None => Ok(all_by_parent()?
            .into_iter()
            .filter(|(_, of)| *of == me)
            .map(|(pid, _)| pid)
            .collect()),
    }
}

/// Everyone below the shim.
pub(super) fn descendants() -> io::Result<Vec<Pid>> {
    descendants_until(usize::MAX)
}

/// Everyone below the shim, or some, once more than so many were found. Those who multiply may be more
/// by the time that all were looked at.
pub(super) fn descendants_until(enough: usize) -> io::Result<Vec<Pid>> {
    let me = rustix::process::getpid();
    if children_of_thread(me, me).is_none() {
        return Ok(below(me, &all_by_parent()?));
    }
    let mut found = children()?;
    let mut next = 0;
    while let Some(parent) = found.get(next).copied()
        && found.len() <= enough
    {
        found.extend(children_of(parent));
        next += 1;
    }
    Ok(found)
}

/// The children of another process, which may have threads.
fn children_of(pid: Pid) -> Vec<Pid> {
    // One that is gone by now has no children any more.
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return Vec::new();
    };
    let threads = threads.filter_map(|thread| {
        thread.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)
    });
    threads.filter_map(|thread| children_of_thread(pid, thread)).flatten().collect()
}

/// The children of a thread; nothing if it is gone, or if the system does not tell.
fn children_of_thread(pid: Pid, thread: Pid) -> Option<Vec<Pid>> {
    let (pid, thread) = (pid.as_raw_nonzero(), thread.as_raw_nonzero());
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()?;
    let pids = text.split_ascii_whitespace();
    Some(pids.filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect())
}

fn below(ancestor: Pid, all: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut above = vec![ancestor];
    while let Some(parent) = above.pop() {
        let before = found.len();
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        above.extend_from_slice(&found[before..]);
    }
    found
}

/// Every process that is visible, with its parent.
fn all_by_parent() -> io::Result<Vec<(Pid, Pid)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // One that is gone by now has no parent to tell of.
        let parent = pid.and_then(|pid| Some((pid, Stat::of(pid)?.parent?)));
        found.extend(parent);
    }
    Ok(found)
}

/// Signals someone below the shim. Its number could be someone else's by now, so it is held fast
/// first, and signalled only if it is still below.
pub(super) fn signal_descendant(pid: Pid, signal: Signal) {
    let Some(before) = Stat::of(pid) else { return };
    let Ok(held) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    let is_same = Stat::of(pid).is_some_and(|now| now.started == before.started);
    if is_same && is_below(before.parent) {
        // Who cannot be reached has just ended.
        let _ = rustix::process::pidfd_send_signal(&held, signal);
    }
}

/// Whether a process whose parent this is stands below the shim.
fn is_below(mut parent: Option<Pid>) -> bool {
    let me = rustix::process::getpid();
    while let Some(pid) = parent {
        if pid == me {
            return true;
        }
        parent = Stat::of(pid).and_then(|stat| stat.parent);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let rest = "7 12 12 0 -1 4194304 1 2 3 4 50 60 700 800 20 0 1 0 99 1000 33 184";
        for name in ["cat", "a) b) R (x", "", "\n)"] {
            let stat = Stat::parse(&format!("12 ({name}) S {rest}")).unwrap();
            assert_eq!(stat.parent.map(Pid::as_raw_pid), Some(7), "{name}");
            assert_eq!((stat.cpu_ticks, stat.children_ticks), (1610, 1500), "{name}");
            assert_eq!((stat.started, stat.memory_pages), (99, 33), "{name}");
        }
        for text in ["", "12 (cat) S", "12 (cat) S 7 1 2 3"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }
}

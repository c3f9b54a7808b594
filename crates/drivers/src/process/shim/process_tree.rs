//! Descendants of the shim, from `/proc`.

use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::process::proc_stat::ProcStat;

/// The children of the shim, including unreaped ones.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    // The shim has one thread, whose id is the pid.
    let me = rustix::process::getpid();
    if let Some(children) = children_of_thread(me, me) {
        return Ok(children);
    }
    let all = all_by_parent()?.into_iter();
    Ok(all.filter(|(_, of)| *of == me).map(|(pid, _)| pid).collect())
}

pub(super) fn descendants() -> io::Result<Vec<Pid>> {
    descendants_until(usize::MAX)
}

/// The descendants of the shim. Stops after more than `enough`: a fork bomb may outrun the search.
pub(super) fn descendants_until(enough: usize) -> io::Result<Vec<Pid>> {
    let me = rustix::process::getpid();
    if children_of_thread(me, me).is_none() {
        return Ok(descendants_of(me, &all_by_parent()?));
    }
    let mut pids = children()?;
    let mut next = 0;
    while let Some(parent) = pids.get(next).copied()
        && pids.len() <= enough
    {
        pids.extend(children_of(parent));
        next += 1;
    }
    Ok(pids)
}

/// The children of a process with any number of threads.
fn children_of(pid: Pid) -> Vec<Pid> {
    // A process that is gone has no children.
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return Vec::new();
    };
    let threads = threads.filter_map(|thread| {
        thread.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)
    });
    threads.filter_map(|thread| children_of_thread(pid, thread)).flatten().collect()
}

/// The children of a thread; `None` if it is gone or the kernel has no such file.
fn children_of_thread(pid: Pid, thread: Pid) -> Option<Vec<Pid>> {
    let (pid, thread) = (pid.as_raw_nonzero(), thread.as_raw_nonzero());
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()?;
    let pids = text.split_ascii_whitespace();
    Some(pids.filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect())
}

fn descendants_of(ancestor: Pid, all: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut pids = Vec::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        let before = pids.len();
        pids.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        parents.extend_from_slice(&pids[before..]);
    }
    pids
}

/// All visible processes, with their parents.
fn all_by_parent() -> io::Result<Vec<(Pid, Pid)>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // A process that is gone is skipped.
        let parent = pid.and_then(|pid| Some((pid, ProcStat::of(pid)?.parent?)));
        pids.extend(parent);
    }
    Ok(pids)
}

/// Signals a descendant. The pid may have been reused, so a pidfd is opened and checked first.
pub(super) fn signal_descendant(pid: Pid, signal: Signal) {
    let Some(before) = ProcStat::of(pid) else { return };
    let Ok(held) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    let is_same = ProcStat::of(pid).is_some_and(|now| now.started == before.started);
    if is_same && is_descendant(before.parent) {
        // An unreachable process has just exited.
        let _ = rustix::process::pidfd_send_signal(&held, signal);
    }
}

/// True if a process with this parent is a descendant of the shim.
fn is_descendant(mut parent: Option<Pid>) -> bool {
    let me = rustix::process::getpid();
    while let Some(pid) = parent {
        if pid == me {
            return true;
        }
        parent = ProcStat::of(pid).and_then(|stat| stat.parent);
    }
    false
}

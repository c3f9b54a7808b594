//! Children of the stub and of the command, from `/proc`.

use core::ffi::c_char;

use crate::sys;
use crate::text_buffer::{TextBuffer, number};
use crate::time::time;

/// The pause between attempts to kill a child, in microseconds.
const KILL_PAUSE: u64 = 20_000;

/// True if the command is the only child. False if the kernel has no such file.
pub(crate) fn is_only_child(pid: isize) -> bool {
    let mut children = [0; 64];
    number(own_children(&mut children).trim_ascii_end()) == Some(pid)
}

/// True if the command's first thread has children, whose usage would be missing.
pub(crate) fn has_children(pid: isize) -> bool {
    let pid = pid.unsigned_abs() as u64;
    let path = TextBuffer::<64>::new()
        .text("/proc/")
        .number(pid)
        .text("/task/")
        .number(pid)
        .text("/children");
    let mut children = [0; 8];
    !read_start(path.as_c_str(), &mut children).is_empty()
}

/// The stub's children as the kernel writes them: pids with a space after each.
fn own_children(children: &mut [u8]) -> &[u8] {
    read_start(c"/proc/thread-self/children".as_ptr(), children)
}

/// The start time of the stub, in ticks since boot.
pub(crate) fn own_start_time() -> Option<u64> {
    let mut stat = [0; 512];
    start_time(read_start(c"/proc/self/stat".as_ptr(), &mut stat))
}

/// Parses `pid (name) state parent ...`; the name may contain anything. The state is field 3, the
/// start time field 22.
fn start_time(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(name_end + 2..)?.split(|byte| *byte == b' ');
    number(fields.nth(22 - 3)?).map(|time| time.unsigned_abs() as u64)
}

/// The start of a file; empty if it cannot be read.
fn read_start(path: *const c_char, bytes: &mut [u8]) -> &[u8] {
    // SAFETY: all callers pass a zero-terminated path.
    let file = unsafe { sys::open(path, sys::OPEN_TO_READ) };
    let count = sys::read(file, bytes);
    sys::close(file);
    usize::try_from(count).ok().and_then(|count| bytes.get(..count)).unwrap_or_default()
}

/// Kills all children that `/proc` did not list.
pub(crate) fn kill_remaining() {
    while sys::reap_any() != -sys::ECHILD {
        let mut children = [0; 64];
        let first = own_children(&mut children).split(|byte| *byte == b' ').next();
        if let Some(child) = first.and_then(number) {
            sys::kill(child, sys::KILL);
        }
        sys::wait_for_signal(sys::BLOCKED_SIGNALS, Some(time(KILL_PAUSE)));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn parses_the_start_time() {
        let rest = "7 12 12 0 -1 4194304 1 2 3 4 50 60 700 800 20 0 1 0 99 1000 33 184";
        for name in ["cat", "a) b) R (x", ""] {
            assert_eq!(start_time(format!("12 ({name}) S {rest}").as_bytes()), Some(99), "{name}");
        }
        assert_eq!(start_time(b"12 (cat) S 7"), None);
        assert!(own_start_time().is_some());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a process with children")]
    fn sees_children() {
        let mut pipeline = Command::new("sh")
            .args(["-c", "cat | cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = isize::try_from(pipeline.id()).unwrap();
        assert!(is_only_child(pid) && !is_only_child(sys::getpid()));
        let deadline = Instant::now() + Duration::from_mins(1);
        while !has_children(pid) {
            assert!(Instant::now() < deadline, "the shell has no children");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(pipeline.stdin.take());
        pipeline.wait().unwrap();
        assert!(!is_only_child(pid) && !has_children(pid));
    }
}

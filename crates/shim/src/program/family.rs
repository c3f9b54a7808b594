//! Who is below this process, and below the program, as the system tells it.

use core::ffi::c_char;

use crate::sys;
use crate::text::{Text, number};
use crate::time::time;

/// How long to wait between attempts to end someone, in microseconds.
const KILL_PAUSE: u64 = 20_000;

/// Whether the program is all that there is. Where the system does not tell, it may not be.
pub(crate) fn is_only_child(pid: isize) -> bool {
    let mut children = [0; 64];
    number(own_children(&mut children).trim_ascii_end()) == Some(pid)
}

/// Whether the program has children of its own, which no one sums up for it. Those that other threads
/// than its first have started are not seen.
pub(crate) fn has_children(pid: isize) -> bool {
    let pid = pid.unsigned_abs() as u64;
    let path =
        Text::<64>::new().text("/proc/").number(pid).text("/task/").number(pid).text("/children");
    let mut children = [0; 8];
    !read_whole(path.zero_ended(), &mut children).is_empty()
}

/// The children of this process, as the system writes them: numbers with a space behind each.
fn own_children(children: &mut [u8]) -> &[u8] {
    read_whole(c"/proc/thread-self/children".as_ptr(), children)
}

/// What a file begins with; nothing if it cannot be read.
fn read_whole(path: *const c_char, bytes: &mut [u8]) -> &[u8] {
    // SAFETY: those who call this give a path that ends with a zero byte.
    let file = unsafe { sys::open(path, sys::OPEN_TO_READ) };
    let count = sys::read(file, bytes);
    sys::close(file);
    usize::try_from(count).ok().and_then(|count| bytes.get(..count)).unwrap_or_default()
}

/// Ends whoever the system did not tell of.
pub(crate) fn kill_the_rest() {
    while sys::reap_any() != -sys::ECHILD {
        let mut children = [0; 64];
        let first = own_children(&mut children).split(|byte| *byte == b' ').next();
        if let Some(child) = first.and_then(number) {
            sys::kill(child, sys::KILL);
        }
        sys::wait_for_signal(sys::HELD_BACK, Some(time(KILL_PAUSE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_seen() {
        let me = sys::getpid();
        assert!(!is_only_child(me), "no one is their own child");
        assert!(!has_children(i32::MAX as isize), "who is not there has no children");
    }
}

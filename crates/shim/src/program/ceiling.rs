//! How many processes and threads there may be before the system makes no more, so that those who
//! multiply do not fill the machine before anyone has looked.

use core::ffi::{CStr, c_char};

use crate::sys;
use crate::text::Text;

/// The longest path of a file in a group.
const PATH_BYTES_MAX: usize = 512;

/// The most processes and threads, and what keeps them to it.
#[derive(Clone, Copy)]
pub(crate) struct Ceiling {
    /// The most of them.
    pub(crate) tasks: u64,
    /// The control group that counts them. Without one, all those of the user are counted.
    pub(crate) group: Option<*const c_char>,
}

impl Ceiling {
    /// Makes the group. Where the system does not let us, what is used is still looked at.
    pub(crate) fn set(&self) {
        let Some(group) = self.group else { return };
        // SAFETY: it is an argument, which ends with a zero byte.
        unsafe { sys::make_folder(group) };
        write(group, "/pids.max", Text::<32>::new().number(self.tasks).bytes());
    }

    /// From here on this process and its descendants are counted.
    pub(crate) fn go_under(&self) {
        match self.group {
            // Zero is whoever writes it.
            Some(group) => write(group, "/cgroup.procs", b"0"),
            None => sys::limit_tasks_of_user(self.tasks),
        }
    }

    /// Nothing is left that would be counted.
    pub(crate) fn remove(&self) {
        if let Some(group) = self.group {
            // SAFETY: it is an argument, which ends with a zero byte.
            unsafe { sys::remove_folder(group) };
        }
    }
}

fn write(group: *const c_char, file: &str, bytes: &[u8]) {
    // SAFETY: it is an argument, which ends with a zero byte.
    let group = unsafe { CStr::from_ptr(group) }.to_bytes();
    let path = Text::<PATH_BYTES_MAX>::new().raw(group).text(file);
    // SAFETY: a text ends with a zero byte.
    let file = unsafe { sys::open(path.zero_ended(), sys::OPEN_TO_WRITE) };
    sys::write_at(file, bytes, 0);
    sys::close(file);
}

//! The kernel's limit on processes and threads, which stops fork bombs before the next sample.

use core::ffi::{CStr, c_char};

use crate::sys;
use crate::text_buffer::TextBuffer;

/// The maximum path length of a file in a group.
const PATH_BYTES_MAX: usize = 512;

#[derive(Clone, Copy)]
pub(crate) struct StubPidsLimit {
    /// The maximum number of processes and threads.
    pub(crate) tasks: u64,
    /// The control group that counts them. Without one, all processes of the user count.
    pub(crate) group: Option<*const c_char>,
}

impl StubPidsLimit {
    /// Creates the group. If that fails, sampling still applies.
    pub(crate) fn create_group(&self) {
        let Some(group) = self.group else { return };
        // SAFETY: an argument ends with a zero byte.
        unsafe { sys::make_folder(group) };
        write(group, "/pids.max", TextBuffer::<32>::new().number(self.tasks).bytes());
    }

    /// Puts this process and its descendants under the limit.
    pub(crate) fn apply(&self) {
        match self.group {
            // Zero means the writing process.
            Some(group) => write(group, "/cgroup.procs", b"0"),
            None => sys::limit_tasks_of_user(self.tasks),
        }
    }

    pub(crate) fn remove(&self) {
        if let Some(group) = self.group {
            // SAFETY: an argument ends with a zero byte.
            unsafe { sys::remove_folder(group) };
        }
    }
}

fn write(group: *const c_char, file: &str, bytes: &[u8]) {
    // SAFETY: an argument ends with a zero byte.
    let group = unsafe { CStr::from_ptr(group) }.to_bytes();
    let path = TextBuffer::<PATH_BYTES_MAX>::new().raw(group).text(file);
    // SAFETY: a `TextBuffer` ends with a zero byte.
    let file = unsafe { sys::open(path.as_c_str(), sys::OPEN_TO_WRITE) };
    sys::write_at(file, bytes, 0);
    sys::close(file);
}

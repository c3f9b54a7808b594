//! Starts the program, in a process that shares the memory of this one until it becomes the program.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use crate::sys;
use crate::watch::EXIT_NOT_STARTED;

const CLONE_VM: usize = 0x100;
const CLONE_VFORK: usize = 0x4000;

const STACK_BYTES: usize = 16 << 10;

/// The stack of the process that becomes the program.
#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: there is one thread, and the process that uses it does so while this one rests.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));

/// What the process that becomes the program needs to know.
struct Start {
    path: *const c_char,
    args: *const *const c_char,
    variables: *const *const c_char,
    mask: u64,
    is_lost: bool,
}

/// Starts the program in a group of its own. Where that fails, the whole shim tries again and
/// tells why.
///
/// # Safety
/// Both lists must be those that the system gave, or the end of one.
pub(crate) unsafe fn start(
    args: *const *const c_char,
    variables: *const *const c_char,
    mask: u64,
) -> Option<isize> {
    // SAFETY: the program is the first of its arguments.
    let path = unsafe { *args };
    // SAFETY: it ends with a zero byte.
    if !unsafe { CStr::from_ptr(path) }.to_bytes().contains(&b'/') {
        return None;
    }
    let mut start = Start { path, args, variables, mask, is_lost: false };
    // SAFETY: the stack ends there, and is used by no one else.
    let pid = unsafe {
        let stack = STACK.0.get().cast::<u8>().add(STACK_BYTES).cast::<c_void>();
        let data = ptr::from_mut(&mut start).cast::<c_void>();
        let flags = CLONE_VM | CLONE_VFORK | sys::CHLD as usize;
        sys::start(flags, stack, become_program, data)
    };
    if pid < 0 {
        return None;
    }
    // SAFETY: it was written by the other process, if at all, before this one went on.
    if unsafe { ptr::from_ref(&start.is_lost).read_volatile() } {
        sys::reap(pid);
        return None;
    }
    Some(pid)
}

extern "C" fn become_program(data: *mut c_void) -> ! {
    // SAFETY: it was given to this process by the one that rests meanwhile.
    let start = unsafe { &mut *data.cast::<Start>() };
    sys::own_group();
    // Without anyone to watch over it, it is not to go on.
    sys::tell_when_parent_ends(sys::KILL);
    sys::block_only(start.mask);
    // SAFETY: path and lists are those of the system.
    unsafe { sys::become_program(start.path, start.args, start.variables) };
    // SAFETY: it is there for as long as the other one rests.
    unsafe { ptr::from_mut(&mut start.is_lost).write_volatile(true) };
    sys::exit(EXIT_NOT_STARTED)
}

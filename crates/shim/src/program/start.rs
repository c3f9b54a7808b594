//! Starts the program, in a process that shares the memory of this one until it becomes the program.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use crate::ceiling::Ceiling;
use crate::sys;
use crate::watch::EXIT_NOT_STARTED;

const CLONE_VM: usize = 0x100;
const CLONE_VFORK: usize = 0x4000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

const STACK_BYTES: usize = 16 << 10;

/// The stack of the process that becomes the program.
#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: there is one thread, and the process that uses it does so while this one rests.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));

/// How the system wants to be told of a process to start.
#[repr(C)]
struct Description {
    flags: u64,
    pidfd: u64,
    child_thread: u64,
    parent_thread: u64,
    exit_signal: u64,
    stack: u64,
    stack_bytes: u64,
    local_storage: u64,
    chosen_ids: u64,
    chosen_ids_count: u64,
    cgroup: u64,
}

/// What the process that becomes the program needs to know.
struct Start {
    path: *const c_char,
    args: *const *const c_char,
    variables: *const *const c_char,
    mask: u64,
    ceiling: Option<Ceiling>,
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
    cgroup: Option<*const c_char>,
    ceiling: Option<Ceiling>,
) -> Option<isize> {
    // SAFETY: the program is the first of its arguments.
    let path = unsafe { *args };
    // SAFETY: it ends with a zero byte.
    if !unsafe { CStr::from_ptr(path) }.to_bytes().contains(&b'/') {
        return None;
    }
    if let Some(ceiling) = &ceiling {
        ceiling.set();
    }
    let mut start = Start { path, args, variables, mask, ceiling, is_lost: false };
    let data = ptr::from_mut(&mut start).cast::<c_void>();
    let pid = cgroup.and_then(|cgroup| start_in(cgroup, data)).or_else(|| start_anywhere(data))?;
    // SAFETY: it was written by the other process, if at all, before this one went on.
    if unsafe { ptr::from_ref(&start.is_lost).read_volatile() } {
        sys::reap(pid);
        return None;
    }
    Some(pid)
}

/// Starts it in a control group of its own, which it and its descendants cannot leave unseen. Where
/// the system does not know how, or does not let us, it is started without.
fn start_in(cgroup: *const c_char, data: *mut c_void) -> Option<isize> {
    // SAFETY: it is an argument, which ends with a zero byte.
    let group = unsafe {
        sys::make_folder(cgroup);
        sys::open(cgroup, sys::OPEN_TO_START)
    };
    let description = Description {
        flags: (CLONE_VM | CLONE_VFORK) as u64 | CLONE_INTO_CGROUP,
        pidfd: 0,
        child_thread: 0,
        parent_thread: 0,
        exit_signal: sys::CHLD as u64,
        stack: STACK.0.get() as u64,
        stack_bytes: STACK_BYTES as u64,
        local_storage: 0,
        chosen_ids: 0,
        chosen_ids_count: 0,
        cgroup: u64::try_from(group).ok()?,
    };
    let (first, second) = (ptr::from_ref(&description) as usize, size_of::<Description>());
    // SAFETY: the stack is used by no one else.
    let pid = unsafe { sys::start(sys::CLONE3, first, second, become_program, data) };
    sys::close(group);
    (pid >= 0).then_some(pid)
}

fn start_anywhere(data: *mut c_void) -> Option<isize> {
    let flags = CLONE_VM | CLONE_VFORK | sys::CHLD as usize;
    let stack = STACK.0.get() as usize + STACK_BYTES;
    // SAFETY: the stack ends there, and is used by no one else.
    let pid = unsafe { sys::start(sys::CLONE, flags, stack, become_program, data) };
    (pid >= 0).then_some(pid)
}

extern "C" fn become_program(data: *mut c_void) -> ! {
    // SAFETY: it was given to this process by the one that rests meanwhile.
    let start = unsafe { &mut *data.cast::<Start>() };
    sys::own_group();
    if let Some(ceiling) = &start.ceiling {
        ceiling.go_under();
    }
    // Without anyone to watch over it, it is not to go on.
    sys::tell_when_parent_ends(sys::KILL);
    sys::block_only(start.mask);
    // SAFETY: path and lists are those of the system.
    unsafe { sys::become_program(start.path, start.args, start.variables) };
    // SAFETY: it is there for as long as the other one rests.
    unsafe { ptr::from_mut(&mut start.is_lost).write_volatile(true) };
    sys::exit(EXIT_NOT_STARTED)
}

//! Starts the command, in a process that shares this one's memory until exec.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use crate::pids_limit::StubPidsLimit;
use crate::supervise::EXIT_NOT_STARTED;
use crate::sys;

const CLONE_VM: usize = 0x100;
const CLONE_VFORK: usize = 0x4000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

const STACK_BYTES: usize = 16 << 10;

/// The stack of the child until exec.
#[repr(align(16))]
struct ChildStack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: there is one thread, and the child uses it while this process is suspended.
unsafe impl Sync for ChildStack {}

static STACK: ChildStack = ChildStack(UnsafeCell::new([0; STACK_BYTES]));

/// The kernel's `clone_args`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
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

/// The data that the child needs until exec.
struct SpawnRequest {
    path: *const c_char,
    args: *const *const c_char,
    variables: *const *const c_char,
    pids_limit: Option<StubPidsLimit>,
    has_failed: bool,
}

/// Starts the command in a process group of its own. On failure, the full shim tries again and
/// reports the error.
///
/// # Safety
/// Both lists must come from the kernel, or be the end of such a list.
pub(crate) unsafe fn start(
    args: *const *const c_char,
    variables: *const *const c_char,
    cgroup: Option<*const c_char>,
    pids_limit: Option<StubPidsLimit>,
) -> Option<isize> {
    // SAFETY: the command is the first of its arguments.
    let path = unsafe { *args };
    // SAFETY: an argument ends with a zero byte.
    if !unsafe { CStr::from_ptr(path) }.to_bytes().contains(&b'/') {
        return None;
    }
    if let Some(pids_limit) = &pids_limit {
        pids_limit.create_group();
    }
    let mut start = SpawnRequest { path, args, variables, pids_limit, has_failed: false };
    let data = ptr::from_mut(&mut start).cast::<c_void>();
    let pid = cgroup.and_then(|cgroup| start_in(cgroup, data)).or_else(|| start_anywhere(data))?;
    // SAFETY: the child wrote it, if at all, before this process was resumed.
    if unsafe { ptr::from_ref(&start.has_failed).read_volatile() } {
        sys::reap(pid);
        return None;
    }
    Some(pid)
}

/// Starts the command in its control group, which its descendants cannot leave unnoticed. Returns
/// `None` if the kernel does not support or permit it.
fn start_in(cgroup: *const c_char, data: *mut c_void) -> Option<isize> {
    // SAFETY: an argument ends with a zero byte.
    let group = unsafe {
        sys::make_folder(cgroup);
        sys::open(cgroup, sys::OPEN_PATH)
    };
    let description = CloneArgs {
        flags: (CLONE_VM | CLONE_VFORK) as u64 | CLONE_INTO_CGROUP,
        exit_signal: sys::CHLD as u64,
        stack: STACK.0.get() as u64,
        stack_bytes: STACK_BYTES as u64,
        cgroup: u64::try_from(group).ok()?,
        ..CloneArgs::default()
    };
    let (first, second) = (ptr::from_ref(&description) as usize, size_of::<CloneArgs>());
    // SAFETY: nothing else uses the stack.
    let pid = unsafe { sys::clone_process(sys::CLONE3, first, second, become_program, data) };
    sys::close(group);
    (pid >= 0).then_some(pid)
}

fn start_anywhere(data: *mut c_void) -> Option<isize> {
    let flags = CLONE_VM | CLONE_VFORK | sys::CHLD as usize;
    let stack = STACK.0.get() as usize + STACK_BYTES;
    // SAFETY: the stack ends there, and nothing else uses it.
    let pid = unsafe { sys::clone_process(sys::CLONE, flags, stack, become_program, data) };
    (pid >= 0).then_some(pid)
}

extern "C" fn become_program(data: *mut c_void) -> ! {
    // SAFETY: the suspended parent passed it and keeps it alive.
    let start = unsafe { &mut *data.cast::<SpawnRequest>() };
    sys::make_process_group();
    if let Some(pids_limit) = &start.pids_limit {
        pids_limit.apply();
    }
    // Without a supervisor, the command must not continue.
    sys::set_parent_death_signal(sys::KILL);
    sys::restore_all_defaults();
    // SAFETY: path and lists come from the kernel.
    unsafe { sys::exec(start.path, start.args, start.variables) };
    // SAFETY: the parent is still suspended and keeps it alive.
    unsafe { ptr::from_mut(&mut start.has_failed).write_volatile(true) };
    sys::exit(EXIT_NOT_STARTED)
}

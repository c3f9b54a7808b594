//! The system calls that the stub needs, for Linux on `x86_64`. Each returns the kernel's result:
//! negative values are error numbers.
#![allow(dead_code, reason = "the library and the program need different ones")]

use core::arch::asm;
use core::ffi::{c_char, c_void};
use core::ptr;

/// A null pointer.
const NULL: usize = 0;

/// The signals that the stub blocks and waits for.
pub(crate) const BLOCKED_SIGNALS: u64 = bit(HUP) | bit(INT) | bit(USR1) | bit(TERM) | bit(CHLD);

pub(crate) const HUP: i32 = 1;
pub(crate) const INT: i32 = 2;
pub(crate) const KILL: i32 = 9;
pub(crate) const USR1: i32 = 10;
pub(crate) const TERM: i32 = 15;
pub(crate) const CHLD: i32 = 17;

pub(crate) const ECHILD: isize = 10;

pub(crate) const OPEN_TO_READ: usize = 0;
pub(crate) const OPEN_TO_WRITE: usize = 1;
pub(crate) const OPEN_PATH: usize = 0o1000_0000;
pub(crate) const OPEN_CREATE: usize = 0o100;
pub(crate) const OPEN_NONBLOCKING: usize = 0o4000;
const OPEN_CLOSE_ON_EXEC: usize = 0o200_0000;

pub(crate) const LOCK_SHARED: usize = 1;
pub(crate) const LOCK_EXCLUSIVE: usize = 2;
const LOCK_OR_FAIL: usize = 4;

const SIGNAL_SET_BYTES: usize = 8;

/// The highest signal number.
const SIGNAL_MAX: i32 = 64;
const MODE_OF_FILES: usize = 0o600;

/// The signal's bit in a signal set.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The kernel's `timespec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelTimespec {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

/// The kernel's `rusage`: the usage of a process and its reaped children.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelRusage {
    pub(crate) user_seconds: i64,
    pub(crate) user_microseconds: i64,
    pub(crate) system_seconds: i64,
    pub(crate) system_microseconds: i64,
    pub(crate) memory_max_kilobytes: i64,
    unused_memory: [i64; 6],
    pub(crate) blocks_read: i64,
    pub(crate) blocks_written: i64,
    unused: [i64; 5],
}

/// The kernel writes the whole struct, so its size must be right.
const _: () = assert!(
    size_of::<KernelRusage>() == 144 && core::mem::offset_of!(KernelRusage, blocks_read) == 88
);

/// Makes a system call.
///
/// # Safety
/// The arguments must fit the call, and addresses must be valid for it.
unsafe fn call(number: usize, args: [usize; 5]) -> isize {
    let answer;
    // SAFETY: the caller vouches for the arguments; the registers follow the system call
    // convention.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[expect(clippy::cast_sign_loss, reason = "the system reads it as a signed number again")]
const fn word(number: i32) -> usize {
    number as isize as usize
}

pub(crate) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: takes a number.
        unsafe { call(231, [word(code), 0, 0, 0, 0]) };
    }
}

pub(crate) fn getpid() -> isize {
    // SAFETY: takes nothing.
    unsafe { call(39, [0; 5]) }
}

pub(crate) fn getppid() -> isize {
    // SAFETY: takes nothing.
    unsafe { call(110, [0; 5]) }
}

/// Opens a file that is closed on exec.
///
/// # Safety
/// `path` must end with a zero byte.
pub(crate) unsafe fn open(path: *const c_char, flags: usize) -> isize {
    // SAFETY: the caller vouches for the path.
    unsafe { call(2, [path as usize, flags | OPEN_CLOSE_ON_EXEC, MODE_OF_FILES, 0, 0]) }
}

pub(crate) fn close(file: isize) {
    // SAFETY: takes a number, which need not be open.
    unsafe { call(3, [file.cast_unsigned(), 0, 0, 0, 0]) };
}

/// Replaces the open file `target` with `file`, which stays open across exec under that number.
pub(crate) fn duplicate(file: isize, target: isize) {
    // SAFETY: takes numbers.
    unsafe { call(33, [file.cast_unsigned(), target.cast_unsigned(), 0, 0, 0]) };
}

/// Keeps a file open across exec.
pub(crate) fn keep_open(file: isize) {
    // SAFETY: takes numbers.
    unsafe { call(72, [file.cast_unsigned(), 2, 0, 0, 0]) };
}

pub(crate) fn read(file: isize, bytes: &mut [u8]) -> isize {
    // SAFETY: the bytes may be written.
    unsafe { call(0, [file.cast_unsigned(), bytes.as_mut_ptr() as usize, bytes.len(), 0, 0]) }
}

pub(crate) fn write_at(file: isize, bytes: &[u8], offset: usize) -> isize {
    // SAFETY: the bytes may be read.
    unsafe { call(18, [file.cast_unsigned(), bytes.as_ptr() as usize, bytes.len(), offset, 0]) }
}

pub(crate) fn lock(file: isize, how: usize) -> isize {
    // SAFETY: takes numbers.
    unsafe { call(73, [file.cast_unsigned(), how | LOCK_OR_FAIL, 0, 0, 0]) }
}

pub(crate) fn kill(pid: isize, signal: i32) -> isize {
    // SAFETY: takes numbers.
    unsafe { call(62, [pid.cast_unsigned(), word(signal), 0, 0, 0]) }
}

/// Blocks these signals and unblocks all others.
pub(crate) fn block_only(set: u64) {
    const REPLACE: usize = 2;
    // SAFETY: the set has the size that is given.
    unsafe { call(14, [REPLACE, ptr::from_ref(&set) as usize, NULL, SIGNAL_SET_BYTES, 0]) };
}

/// Restores the default action of a signal.
pub(crate) fn restore_default(signal: i32) {
    // The kernel's `sigaction`: handler, flags, restorer and mask. Zero is the default action.
    let action = [0_u64; 4];
    // SAFETY: the action has the kernel's size, and the set in it the size that is given.
    unsafe { call(13, [word(signal), action.as_ptr() as usize, NULL, SIGNAL_SET_BYTES, 0]) };
}

/// Restores the default actions of all signals and unblocks them. A program inherits both otherwise.
pub(crate) fn restore_all_defaults() {
    // The kernel refuses this for the two signals that nothing can catch.
    (1..=SIGNAL_MAX).for_each(restore_default);
    block_only(0);
}

/// Waits for one of these blocked signals; forever without a limit.
pub(crate) fn wait_for_signal(set: u64, limit: Option<KernelTimespec>) -> isize {
    let limit = limit.as_ref().map_or(NULL, |limit| ptr::from_ref(limit) as usize);
    // SAFETY: set and limit outlive the call.
    unsafe { call(128, [ptr::from_ref(&set) as usize, NULL, limit, SIGNAL_SET_BYTES, 0]) }
}

/// Calls `prctl` with the number of an option.
fn prctl(what: usize, value: usize) {
    // SAFETY: the options used here take numbers, or a text that outlives the call.
    unsafe { call(157, [what, value, 0, 0, 0]) };
}

/// Requests a signal when the parent exits.
pub(crate) fn set_parent_death_signal(signal: i32) {
    prctl(1, word(signal));
}

/// Makes this process the subreaper of its descendants.
pub(crate) fn adopt_orphans() {
    prctl(36, 1);
}

/// The process name of the shim. It does not contain "polity", so that killing Polity by name
/// spares the shims that clean up after it.
pub(crate) const NAME: &core::ffi::CStr = c"agent-shim";

pub(crate) fn set_name(name: &'static core::ffi::CStr) {
    prctl(15, name.as_ptr() as usize);
}

pub(crate) fn make_process_group() {
    // SAFETY: takes numbers.
    unsafe { call(109, [0; 5]) };
}

/// The monotonic time.
pub(crate) fn now() -> KernelTimespec {
    let mut time = KernelTimespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the time may be written.
    unsafe { call(228, [1, ptr::from_mut(&mut time) as usize, 0, 0, 0]) };
    time
}

/// True if a child has exited. Does not reap it.
pub(crate) fn has_ended(pid: isize) -> bool {
    const BY_PID: usize = 1;
    const NO_HANG: usize = 1;
    const EXITED: usize = 4;
    const NO_WAIT: usize = 0x0100_0000;
    // The first three words are signal, error and code; the fourth is the pid.
    let mut info = [0_i32; 32];
    let how = NO_HANG | EXITED | NO_WAIT;
    // SAFETY: the information has 128 bytes.
    let answer =
        unsafe { call(247, [BY_PID, pid.cast_unsigned(), info.as_mut_ptr() as usize, how, NULL]) };
    answer == 0 && info[0] == CHLD
}

/// Reaps a child, waiting for its exit if needed.
pub(crate) fn reap(pid: isize) -> (i32, KernelRusage) {
    let mut status = 0_i32;
    let mut usage = KernelRusage::default();
    let (status_address, usage_address) =
        (ptr::from_mut(&mut status) as usize, ptr::from_mut(&mut usage) as usize);
    // SAFETY: both may be written.
    unsafe { call(61, [pid.cast_unsigned(), status_address, 0, usage_address, 0]) };
    (status, usage)
}

/// Reaps any exited child; returns an error if there is no child at all.
pub(crate) fn reap_any() -> isize {
    const ANY: usize = usize::MAX;
    const NO_HANG: usize = 1;
    // SAFETY: takes numbers, and no addresses.
    unsafe { call(61, [ANY, NULL, NO_HANG, NULL, 0]) }
}

/// Replaces this process with a program. Returns only on error.
///
/// # Safety
/// The path must end with a zero byte, and the lists with a null pointer.
pub(crate) unsafe fn exec(
    path: *const c_char,
    args: *const *const c_char,
    variables: *const *const c_char,
) -> isize {
    // SAFETY: the caller vouches for them.
    unsafe { call(59, [path as usize, args as usize, variables as usize, 0, 0]) }
}

/// Replaces this process with an open program file. Returns only on error.
///
/// # Safety
/// The lists must end with a null pointer.
pub(crate) unsafe fn exec_file(
    file: isize,
    args: *const *const c_char,
    variables: *const *const c_char,
) -> isize {
    const NO_PATH: usize = 0x1000;
    let (file, path) = (file.cast_unsigned(), c"".as_ptr() as usize);
    // SAFETY: the caller vouches for the lists.
    unsafe { call(322, [file, path, args as usize, variables as usize, NO_PATH]) }
}

/// The system calls that start a process.
pub(crate) const CLONE: usize = 56;
pub(crate) const CLONE3: usize = 435;

/// Creates a folder that everyone may read.
///
/// # Safety
/// `path` must end with a zero byte.
pub(crate) unsafe fn make_folder(path: *const c_char) -> isize {
    // SAFETY: the caller vouches for the path.
    unsafe { call(83, [path as usize, 0o755, 0, 0, 0]) }
}

/// Removes an empty folder.
///
/// # Safety
/// `path` must end with a zero byte.
pub(crate) unsafe fn remove_folder(path: *const c_char) -> isize {
    // SAFETY: the caller vouches for the path.
    unsafe { call(84, [path as usize, 0, 0, 0, 0]) }
}

/// Limits the processes and threads of this process's user.
pub(crate) fn limit_tasks_of_user(most: u64) {
    const TASKS_OF_USER: usize = 6;
    let limits = [most, most];
    // SAFETY: there are two limits, soft and hard.
    unsafe { call(160, [TASKS_OF_USER, limits.as_ptr() as usize, 0, 0, 0]) };
}

/// Starts a process that shares this one's memory and calls `entry` with `data` on its own stack.
/// This process is suspended until the other calls exec or exits. `number` is [`CLONE`], with flags
/// and the upper end of a stack, or [`CLONE3`], with its arguments and their size.
///
/// # Safety
/// The stack must be aligned memory that nothing else uses, and `entry` must not return.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn clone_process(
    number: usize,
    first: usize,
    second: usize,
    entry: extern "C" fn(*mut c_void) -> !,
    data: *mut c_void,
) -> isize {
    core::arch::naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        // The kernel preserves r8 and r9.
        "mov r9, r8",
        "mov r8, rcx",
        "xor edx, edx",
        "xor r10d, r10d",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, r9",
        "call r8",
        "ud2",
        "2:",
        "ret",
    )
}

/// The newest version of Landlock's interface that the kernel offers, or an error.
pub(crate) fn landlock_version() -> isize {
    const CREATE_RULESET: usize = 444;
    const GET_VERSION: usize = 1;
    // SAFETY: with this flag the kernel reads no memory.
    unsafe { call(CREATE_RULESET, [NULL, 0, GET_VERSION, 0, 0]) }
}

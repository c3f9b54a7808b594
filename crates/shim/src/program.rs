//! The program itself: no standard library, no allocation, nothing to set up.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]

#[path = "program/ceiling.rs"]
mod ceiling;
#[path = "program/family.rs"]
mod family;
#[path = "program/memory.rs"]
mod memory;
#[path = "program/record.rs"]
mod record;
#[path = "program/start.rs"]
mod start;
#[path = "sys.rs"]
mod sys;
#[path = "program/text.rs"]
mod text;
#[path = "program/time.rs"]
mod time;
#[path = "program/watch.rs"]
mod watch;

use core::ffi::c_char;

/// Where the system begins. It leaves the number of arguments on the stack, then the arguments, then
/// the variables.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _start() -> ! {
    core::arch::naked_asm!(
        "xor ebp, ebp",
        "mov rdi, rsp",
        "and rsp, -16",
        "call {begin}",
        "ud2",
        begin = sym begin,
    )
}

extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: this is how the system lays out the stack.
    let (count, args, variables) = unsafe {
        let count = *stack;
        let args = stack.add(1).cast::<*const c_char>();
        (count, args.cast_mut(), args.add(count + 1))
    };
    sys::exit(watch::watch(count, args, variables))
}

/// The core library was compiled to unwind, and names this. Nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(watch::EXIT_NOT_STARTED)
}

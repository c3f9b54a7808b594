//! The stub executable: no standard library, no allocation, no setup.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]

#[path = "stub/pids_limit.rs"]
mod pids_limit;
#[path = "stub/children.rs"]
mod children;
#[path = "stub/memory.rs"]
mod memory;
#[path = "stub/run_record.rs"]
mod run_record;
#[path = "stub/spawn.rs"]
mod spawn;
#[path = "sys.rs"]
mod sys;
#[path = "stub/text_buffer.rs"]
mod text_buffer;
#[path = "stub/time.rs"]
mod time;
#[path = "stub/supervise.rs"]
mod supervise;

use core::ffi::c_char;

/// The entry point. The kernel leaves argument count, arguments and variables on the stack.
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
    // SAFETY: the kernel lays out the stack like this.
    let (count, args, variables) = unsafe {
        let count = *stack;
        let args = stack.add(1).cast::<*const c_char>();
        (count, args.cast_mut(), args.add(count + 1))
    };
    sys::exit(supervise::run(count, args, variables))
}

/// Referenced by the core library, which was compiled to unwind. Nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(supervise::EXIT_NOT_STARTED)
}

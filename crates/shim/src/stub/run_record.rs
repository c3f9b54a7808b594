//! The run record and the slot file, which stay locked while anything of the run is left.

use core::ffi::{CStr, c_char};

use crate::children::own_start_time;
use crate::sys::{self, KernelRusage};
use crate::text_buffer::TextBuffer;

/// The layout of a record, as in `run_record.rs` of the drivers.
const ENTRY_BYTES: usize = 512;
const ENTRIES: usize = 4;
const ENTRY_ENDED: usize = 2;

const KILOBYTES_PER_MB: u64 = 1024;
const BLOCKS_PER_MB: u64 = 2048;

#[derive(Clone, Copy)]
pub(crate) enum ChildExit {
    Code(i32),
    Signal(i32),
}

pub(crate) struct LockedFiles {
    pub(crate) record: Option<isize>,
    pub(crate) slot: Option<isize>,
}

impl LockedFiles {
    pub(crate) fn open(
        record: Option<*const c_char>,
        slot: Option<*const c_char>,
        cgroup: Option<*const c_char>,
        pid_scope: Option<*const c_char>,
    ) -> Result<Self, ()> {
        let create = sys::OPEN_TO_WRITE | sys::OPEN_CREATE;
        let record = record.map(|path| open_and_lock(path, create, sys::LOCK_EXCLUSIVE));
        let record = record.transpose()?;
        if let Some(record) = record {
            begin_record(record, cgroup, pid_scope)?;
        }
        let slot = slot.map(|path| open_and_lock(path, sys::OPEN_TO_READ, sys::LOCK_SHARED));
        Ok(Self { record, slot: slot.transpose()? })
    }
}

fn open_and_lock(path: *const c_char, flags: usize, lock: usize) -> Result<isize, ()> {
    // SAFETY: an argument ends with a zero byte.
    let file = unsafe { sys::open(path, flags) };
    if file >= 0 && sys::lock(file, lock) == 0 { Ok(file) } else { Err(()) }
}

/// Creates the record with all entries, so that a full disk cannot prevent the last one.
fn begin_record(
    record: isize,
    cgroup: Option<*const c_char>,
    pid_scope: Option<*const c_char>,
) -> Result<(), ()> {
    let mut entries = [b' '; ENTRIES * ENTRY_BYTES];
    let mut started_at = TextBuffer::<ENTRY_BYTES>::new()
        .text("{\"shim\":")
        .number(sys::getpid().unsigned_abs() as u64);
    if let Some(started) = own_start_time() {
        started_at = started_at.text(",\"started\":").number(started);
    }
    for (name, value) in [(",\"scope\":", pid_scope), (",\"cgroup\":", cgroup)] {
        if let Some(value) = value {
            // SAFETY: an argument ends with a zero byte.
            let value = unsafe { CStr::from_ptr(value) }.to_bytes();
            started_at = started_at.text(name).quoted(value);
        }
    }
    let started_at = started_at.text("}");
    entries[..started_at.bytes().len()].copy_from_slice(started_at.bytes());
    let written = sys::write_at(record, &entries, 0);
    if written == entries.len().cast_signed() { Ok(()) } else { Err(()) }
}

/// Writes the end entry: exit and usage.
pub(crate) fn end_record(record: isize, exit: ChildExit, usage: &KernelRusage, microseconds: u64) {
    let (kind, code) = match exit {
        ChildExit::Code(code) => ("code", code),
        ChildExit::Signal(signal) => ("signal", signal),
    };
    let seconds = (usage.user_seconds + usage.system_seconds).unsigned_abs();
    let cpu =
        seconds * 1_000_000 + (usage.user_microseconds + usage.system_microseconds).unsigned_abs();
    let per_mille = (cpu * 1000).checked_div(microseconds).unwrap_or(0);
    let memory_mb = usage.memory_max_kilobytes.unsigned_abs().div_ceil(KILOBYTES_PER_MB);
    let ended = TextBuffer::<ENTRY_BYTES>::new()
        .text("{\"how\":{\"by_itself\":{\"")
        .text(kind)
        .text("\":")
        .number(code.unsigned_abs().into())
        .text("}},\"duration_ms\":")
        .number(microseconds / 1000)
        .text(",\"usage\":{\"cpu_percent\":")
        .number(per_mille / 10)
        .text(".")
        .number(per_mille % 10)
        .text(",\"cpu_time_ms\":")
        .number(cpu / 1000)
        .text(",\"memory_mb\":0,\"peak_memory_mb\":")
        .number(memory_mb)
        .text(",\"disk_read_mb\":")
        .number(usage.blocks_read.unsigned_abs() / BLOCKS_PER_MB)
        .text(",\"disk_write_mb\":")
        .number(usage.blocks_written.unsigned_abs() / BLOCKS_PER_MB)
        .text("}}");
    sys::write_at(record, ended.bytes(), ENTRY_ENDED * ENTRY_BYTES);
}

//! The record of a run, and the other file that is locked for as long as something of it is left.

use core::ffi::{CStr, c_char};

use crate::sys::{self, Usage};
use crate::text::Text;

/// The entries of a record, as in `record.rs` of the one who reads it.
const ENTRY_BYTES: usize = 512;
const ENTRIES: usize = 4;
const ENTRY_ENDED: usize = 2;

const KILOBYTES_PER_MB: u64 = 1024;
const BLOCKS_PER_MB: u64 = 2048;

/// How the program ended.
#[derive(Clone, Copy)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal, with this number.
    Signal(i32),
}

/// The files of a run, which are locked for as long as something of it is left.
pub(crate) struct Files {
    pub(crate) record: Option<isize>,
    pub(crate) place: Option<isize>,
}

impl Files {
    pub(crate) fn open(
        record: Option<*const c_char>,
        place: Option<*const c_char>,
        cgroup: Option<*const c_char>,
    ) -> Result<Self, ()> {
        let record = match record {
            Some(path) => {
                let record =
                    open_and_lock(path, sys::OPEN_TO_WRITE | sys::OPEN_CREATE, sys::LOCK_ALONE)?;
                begin_record(record, cgroup)?;
                Some(record)
            }
            None => None,
        };
        let place = match place {
            Some(path) => Some(open_and_lock(path, sys::OPEN_TO_READ, sys::LOCK_SHARED)?),
            None => None,
        };
        Ok(Self { record, place })
    }
}

fn open_and_lock(path: *const c_char, flags: usize, lock: usize) -> Result<isize, ()> {
    // SAFETY: it is an argument, which ends with a zero byte.
    let file = unsafe { sys::open(path, flags) };
    if file >= 0 && sys::lock(file, lock) == 0 { Ok(file) } else { Err(()) }
}

/// Room for all entries is taken at once, so that a disk that fills up meanwhile does not keep the
/// last from being written.
fn begin_record(record: isize, cgroup: Option<*const c_char>) -> Result<(), ()> {
    let mut entries = [b' '; ENTRIES * ENTRY_BYTES];
    let mut begun =
        Text::<ENTRY_BYTES>::new().text("{\"shim\":").number(sys::getpid().unsigned_abs() as u64);
    if let Some(cgroup) = cgroup {
        // SAFETY: it is an argument, which ends with a zero byte.
        let cgroup = unsafe { CStr::from_ptr(cgroup) }.to_bytes();
        begun = begun.text(",\"cgroup\":").quoted(cgroup);
    }
    let begun = begun.text("}");
    entries[..begun.bytes().len()].copy_from_slice(begun.bytes());
    let written = sys::write_at(record, &entries, 0);
    if written == entries.len().cast_signed() { Ok(()) } else { Err(()) }
}

/// Writes down how the program ended, and what it used.
pub(crate) fn end_record(record: isize, exit: Exit, usage: &Usage, microseconds: u64) {
    let (kind, code) = match exit {
        Exit::Code(code) => ("code", code),
        Exit::Signal(signal) => ("signal", signal),
    };
    let seconds = (usage.user_seconds + usage.system_seconds).unsigned_abs();
    let cpu =
        seconds * 1_000_000 + (usage.user_microseconds + usage.system_microseconds).unsigned_abs();
    let per_mille = (cpu * 1000).checked_div(microseconds).unwrap_or(0);
    let memory_mb = usage.memory_max_kilobytes.unsigned_abs().div_ceil(KILOBYTES_PER_MB);
    let ended = Text::<ENTRY_BYTES>::new()
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

//! The record of a run: a small file that outlives both shim and Polity and tells whether a run is
//! complete.
//!
//! It has four entries at fixed offsets, each written with a single call. The shim writes the
//! start, usage and end entries; the end entry comes last, when the process tree has ended. Polity
//! writes the output entry when all output is stored. A run is complete only with both. The shim
//! holds a lock on the file while it lives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use polity_model::run::{OutputFiles, ProcessExit, ResourceUsage};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::regular_file::open_regular_file_for_update;
#[cfg(target_os = "linux")]
use crate::regular_file::open_regular_file_for_writing;

/// The size of an entry, in bytes.
const ENTRY_BYTES: usize = 512;

const ENTRIES: usize = 4;

/// The entries, in file order.
#[derive(Debug, Clone, Copy)]
enum RecordEntry {
    Start,
    Usage,
    End,
    Output,
}

impl RecordEntry {
    fn offset(self) -> u64 {
        let index = match self {
            Self::Start => 0,
            Self::Usage => 1,
            Self::End => 2,
            Self::Output => 3,
        };
        index * ENTRY_BYTES as u64
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StartEntry {
    shim: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cgroup: Option<PathBuf>,
}

/// The end of a run whose process tree has ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndEntry {
    /// The kind of exit.
    #[serde(rename = "how")]
    pub exit: RunExit,
    /// The duration of the run.
    pub duration_ms: u64,
    /// The total resource usage.
    pub usage: ResourceUsage,
}

/// The kind of exit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunExit {
    NotStarted {
        /// The errno.
        os_error: i32,
    },
    /// The command exited by itself.
    #[serde(rename = "by_itself")]
    Exited(ProcessExit),
    /// The shim ended the run because it was told to or because Polity died.
    #[serde(rename = "told")]
    Stopped(ProcessExit),
    /// The shim ended the run because of a resource limit.
    #[serde(rename = "exceeded")]
    OverLimit(ResourceLimit, ProcessExit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResourceLimit {
    Memory,
    Cpu,
    Processes,
}

/// Writes a record, in the shim.
#[cfg(target_os = "linux")]
pub(super) struct RecordWriter {
    file: File,
}

#[cfg(target_os = "linux")]
impl RecordWriter {
    /// Creates and locks a record.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Allocates all entries at once, so that a full disk cannot prevent the last one.
        file.write_all_at(&[b' '; ENTRIES * ENTRY_BYTES], 0)?;
        let writer = Self { file };
        let shim = rustix::process::getpid().as_raw_pid();
        writer.write(RecordEntry::Start, &StartEntry { shim, cgroup: None })?;
        Ok(writer)
    }

    /// Continues a record that the stub created and locked in this same process.
    pub(super) fn resume(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open_regular_file_for_writing(path)? })
    }

    pub(super) fn write_usage(&self, usage: &ResourceUsage) -> io::Result<()> {
        self.write(RecordEntry::Usage, usage)
    }

    pub(super) fn write_end(&self, ended: &EndEntry) -> io::Result<()> {
        self.write(RecordEntry::End, ended)
    }

    fn write<T: Serialize>(&self, entry: RecordEntry, value: &T) -> io::Result<()> {
        write(&self.file, entry, value)
    }
}

fn write<T: Serialize>(file: &File, entry: RecordEntry, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    if text.len() >= ENTRY_BYTES {
        return Err(io::Error::other("an entry of the record is too long"));
    }
    text.resize(ENTRY_BYTES - 1, b' ');
    text.push(b'\n');
    file.write_all_at(&text, entry.offset())
}

/// Reads a record.
#[derive(Debug)]
pub(crate) struct ShimRecord {
    file: File,
}

impl ShimRecord {
    /// The record at this path, if there is one.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        match open_regular_file_for_update(path).map_err(io::Error::from) {
            Ok(file) => Ok(Some(Self { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The pid of the shim.
    pub(crate) fn process_id(&self) -> Option<u32> {
        let start: StartEntry = self.read(RecordEntry::Start)?;
        u32::try_from(start.shim).ok()
    }

    pub(crate) fn usage(&self) -> Option<ResourceUsage> {
        self.read(RecordEntry::Usage)
    }

    /// The end entry, if the run has ended.
    pub(crate) fn ended(&self) -> Option<EndEntry> {
        self.read(RecordEntry::End)
    }

    /// The output entry, if all output is stored.
    pub(crate) fn output(&self) -> Option<OutputFiles> {
        self.read(RecordEntry::Output)
    }

    pub(crate) fn write_output(&self, output: &OutputFiles) -> io::Result<()> {
        write(&self.file, RecordEntry::Output, output)
    }

    /// Ends the remaining processes of the run and waits for their exit.
    pub(crate) fn end_remaining(&self) -> io::Result<()> {
        let start: Option<StartEntry> = self.read(RecordEntry::Start);
        self.end_shim(start.as_ref())?;
        // Processes left by a shim that was killed.
        #[cfg(target_os = "linux")]
        if let Some(group) = start.and_then(|start| start.cgroup) {
            super::cgroup::clear(&group)?;
        }
        Ok(())
    }

    fn end_shim(&self, start: Option<&StartEntry>) -> io::Result<()> {
        if self.is_free()? {
            return Ok(());
        }
        if let Some(pid) = start.and_then(|start| Pid::from_raw(start.shim))
            && let Ok(shim) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            // The lock is still held, so the pidfd refers to its holder and not to a later process.
            && !self.is_free()?
        {
            // An unreachable process has just exited.
            let _ = rustix::process::pidfd_send_signal(&shim, Signal::TERM);
        }
        rustix::fs::flock(&self.file, FlockOperation::LockExclusive)?;
        rustix::fs::flock(&self.file, FlockOperation::Unlock)?;
        Ok(())
    }

    /// True if no shim holds the record.
    pub(crate) fn is_free(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                rustix::fs::flock(&self.file, FlockOperation::Unlock)?;
                Ok(true)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// An entry, if it is complete.
    fn read<T: DeserializeOwned>(&self, entry: RecordEntry) -> Option<T> {
        let mut text = [0; ENTRY_BYTES];
        self.file.read_exact_at(&mut text, entry.offset()).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_keep_their_written_form() {
        let (code, signal) = (ProcessExit::Code(3), ProcessExit::Signal(9));
        for (exit, text) in [
            (RunExit::NotStarted { os_error: 2 }, r#"{"not_started":{"os_error":2}}"#),
            (RunExit::Exited(code), r#"{"by_itself":{"code":3}}"#),
            (RunExit::Stopped(signal), r#"{"told":{"signal":9}}"#),
            (RunExit::OverLimit(ResourceLimit::Cpu, code), r#"{"exceeded":["cpu",{"code":3}]}"#),
        ] {
            assert_eq!(serde_json::to_string(&exit).unwrap(), text);
        }
    }
}

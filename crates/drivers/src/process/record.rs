//! The record of a run: a small file that the shim writes and that outlives both the shim and
//! Polity, so that it is never in doubt whether a run had come to its end.
//!
//! It has entries at fixed places: who runs, what is used just now, how it ended, and what was read
//! of its output. Each is written with a single call. How it ended is written once nothing of the
//! program is left; what was read, by Polity, once all of it is kept. Only with both is the whole
//! run known. The shim holds a lock on the file for as long as it lives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use polity_model::run::{Exit, KeptOutput, ResourceUsage};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How much room each entry has, in bytes.
const ENTRY_BYTES: usize = 512;

/// How many entries there are.
const ENTRIES: usize = 4;

/// The entries by their places in the file.
#[derive(Debug, Clone, Copy)]
enum Entry {
    Begun,
    Usage,
    Ended,
    Output,
}

impl Entry {
    fn offset(self) -> u64 {
        let index = match self {
            Self::Begun => 0,
            Self::Usage => 1,
            Self::Ended => 2,
            Self::Output => 3,
        };
        index * ENTRY_BYTES as u64
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begun {
    shim: i32,
    /// The control group of the program, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cgroup: Option<PathBuf>,
}

/// How a run ended, once nothing of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// How it went.
    pub how: How,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What it used in all.
    pub usage: ResourceUsage,
}

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// The program could not be started; the number says why.
    NotStarted {
        /// The system's number of the error.
        os_error: i32,
    },
    /// The program ended by itself.
    ByItself(Exit),
    /// The shim ended it, because it was told to or because Polity was gone.
    Told(Exit),
    /// The shim ended it, because it used too much.
    Exceeded(Limit, Exit),
}

/// A limit of what a run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Memory.
    Memory,
    /// Processor time.
    Cpu,
    /// Processes.
    Processes,
}

/// The record as its writer holds it.
#[cfg(target_os = "linux")]
pub(super) struct RecordWriter {
    file: File,
}

#[cfg(target_os = "linux")]
impl RecordWriter {
    /// Begins a record, and locks it.
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Room for all entries is taken at once, so that a disk that fills up meanwhile does not
        // keep the last from being written.
        file.write_all_at(&[b' '; ENTRIES * ENTRY_BYTES], 0)?;
        let writer = Self { file };
        let shim = rustix::process::getpid().as_raw_pid();
        writer.write(Entry::Begun, &Begun { shim, cgroup: None })?;
        Ok(writer)
    }

    /// Goes on with a record that this process has begun and locked before it became the whole shim.
    pub(super) fn go_on(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().write(true).open(path)? })
    }

    /// Notes what is used just now.
    pub(super) fn usage(&self, usage: &ResourceUsage) -> io::Result<()> {
        self.write(Entry::Usage, usage)
    }

    /// Notes how it ended.
    pub(super) fn end(&self, ended: &Ended) -> io::Result<()> {
        self.write(Entry::Ended, ended)
    }

    fn write<T: Serialize>(&self, entry: Entry, value: &T) -> io::Result<()> {
        write(&self.file, entry, value)
    }
}

fn write<T: Serialize>(file: &File, entry: Entry, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    if text.len() >= ENTRY_BYTES {
        return Err(io::Error::other("an entry of the record is too long"));
    }
    text.resize(ENTRY_BYTES - 1, b' ');
    text.push(b'\n');
    file.write_all_at(&text, entry.offset())
}

/// A record as others read it.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
}

impl Record {
    /// The record at this path, if it was begun.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::options().read(true).write(true).open(path) {
            Ok(file) => Ok(Some(Self { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The shim, if it was begun.
    pub(crate) fn process_id(&self) -> Option<u32> {
        let begun: Begun = self.read(Entry::Begun)?;
        u32::try_from(begun.shim).ok()
    }

    /// What was used when it was last looked at.
    pub(crate) fn usage(&self) -> Option<ResourceUsage> {
        self.read(Entry::Usage)
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.read(Entry::Ended)
    }

    /// What was read of its output, if all of it was.
    pub(crate) fn output(&self) -> Option<KeptOutput> {
        self.read(Entry::Output)
    }

    /// Notes what was read of its output.
    pub(crate) fn note_output(&self, output: &KeptOutput) -> io::Result<()> {
        write(&self.file, Entry::Output, output)
    }

    /// Ends what is left of the run, and waits until it is gone.
    pub(crate) fn end_what_is_left(&self) -> io::Result<()> {
        let begun: Option<Begun> = self.read(Entry::Begun);
        self.end_shim(begun.as_ref())?;
        // Whom a shim leaves that was killed.
        #[cfg(target_os = "linux")]
        if let Some(group) = begun.and_then(|begun| begun.cgroup) {
            super::cgroup::clear(&group)?;
        }
        Ok(())
    }

    fn end_shim(&self, begun: Option<&Begun>) -> io::Result<()> {
        if self.is_free()? {
            return Ok(());
        }
        if let Some(pid) = begun.and_then(|begun| Pid::from_raw(begun.shim))
            && let Ok(shim) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            // The lock is still held, so the one who holds it was alive when it was opened, and is
            // no one else.
            && !self.is_free()?
        {
            // Who cannot be reached has just ended.
            let _ = rustix::process::pidfd_send_signal(&shim, Signal::TERM);
        }
        rustix::fs::flock(&self.file, FlockOperation::LockExclusive)?;
        rustix::fs::flock(&self.file, FlockOperation::Unlock)?;
        Ok(())
    }

    /// Whether no shim holds the record any more.
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

    /// An entry, if it is whole.
    fn read<T: DeserializeOwned>(&self, entry: Entry) -> Option<T> {
        let mut text = [0; ENTRY_BYTES];
        self.file.read_exact_at(&mut text, entry.offset()).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

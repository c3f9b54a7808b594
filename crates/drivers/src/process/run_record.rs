//! The record of a run: a small file that outlives both shim and Polity and tells whether a run is
//! complete.
//!
//! It has four entries at fixed offsets, each written with a single call. The shim writes the
//! start, usage and end entries; the end entry comes last, when the process tree has ended. Polity
//! writes the output entry when all output is stored. A run is complete only with both. The shim
//! holds a lock on the file while it lives.

mod service;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use polity_files::open_regular_file_for_update;
#[cfg(target_os = "linux")]
use polity_files::open_regular_file_for_writing;
use polity_model::run::{OutputFiles, ProcessExit, ResourceUsage};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use self::service::{ServiceRecord, end_abandoned_services};
#[cfg(target_os = "linux")]
use super::proc_stat::{ProcStat, own_pid_scope};

/// The folder of records, in the data folder. Private files of runs are there, too.
pub(crate) const RUNS: &str = "runs";

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
    /// The boot and PID namespace in which the id is valid. Earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// The start time of the shim, in ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cgroup: Option<PathBuf>,
}

impl StartEntry {
    /// The process id of the shim, if this process can be sure whose it is.
    #[cfg(target_os = "linux")]
    fn valid_pid(&self) -> Option<Pid> {
        let pid = Pid::from_raw(self.shim)?;
        let is_same_scope = self.scope.is_some() && self.scope.as_deref() == own_pid_scope();
        let started = ProcStat::of(pid).map(|stat| stat.started);
        (is_same_scope && started.is_some() && started == self.started).then_some(pid)
    }

    #[cfg(not(target_os = "linux"))]
    fn valid_pid(&self) -> Option<Pid> {
        None
    }
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
        let pid = rustix::process::getpid();
        let scope = own_pid_scope().map(str::to_owned);
        let started = ProcStat::of(pid).map(|stat| stat.started);
        let start = StartEntry { shim: pid.as_raw_pid(), scope, started, cgroup: None };
        writer.write(RecordEntry::Start, &start)?;
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
    /// The name of the run, which its processes have in a variable.
    run: String,
}

impl ShimRecord {
    /// The record at this path, if there is one.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        match open_regular_file_for_update(path).map_err(io::Error::from) {
            Ok(file) => Ok(Some(Self { file, run: run_name(path) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if a shim has locked the record and begun to supervise.
    fn has_begun(&self) -> bool {
        self.read::<StartEntry>(RecordEntry::Start).is_some()
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
        {
            let group = start.and_then(|start| start.cgroup);
            // A program may have changed the record, so only a group of this run is cleared.
            if let Some(group) = group.filter(|group| super::cgroup::is_of_run(group, &self.run)) {
                super::cgroup::clear(&group)?;
            }
            super::run_marker::kill_marked(&self.run)?;
        }
        Ok(())
    }

    fn end_shim(&self, start: Option<&StartEntry>) -> io::Result<()> {
        if self.is_free()? {
            return Ok(());
        }
        if let Some(pid) = start.and_then(StartEntry::valid_pid)
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

/// The name of the run with this record.
pub(crate) fn run_name(record: &Path) -> String {
    record.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until someone waits for the lock of a file.
    #[cfg(target_os = "linux")]
    fn wait_for_waiter(path: &Path) {
        use std::os::unix::fs::MetadataExt;
        let inode = format!(":{} ", path.metadata().unwrap().ino());
        let is_awaited = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode))
        };
        let began = std::time::Instant::now();
        while !is_awaited() {
            assert!(began.elapsed().as_secs() < 60, "nobody waits for the lock");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// A process id of another container or boot belongs to another process here.
    #[cfg(target_os = "linux")]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a process that may be hit")]
    fn process_of_another_pid_namespace_is_not_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0-0.json");
        let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&bystander);
        let started = ProcStat::of(pid).unwrap().started;
        let scope = own_pid_scope().unwrap();
        let (boot, namespace) = scope.rsplit_once(':').unwrap();
        for (scope, started) in [
            (Some(format!("{boot}:1")), Some(started)),
            (Some(format!("00000000-0000-0000-0000-000000000000:{namespace}")), Some(started)),
            (Some(scope.to_owned()), Some(started + 1)),
            (Some(scope.to_owned()), None),
            (None, None),
        ] {
            let start = StartEntry { shim: pid.as_raw_pid(), scope, started, cgroup: None };
            assert_eq!(start.valid_pid(), None, "{start:?}");
            let record = RecordWriter::create(&path).unwrap();
            record.write(RecordEntry::Start, &start).unwrap();
            let reader = ShimRecord::open(&path).unwrap().unwrap();
            let ending = std::thread::spawn(move || reader.end_remaining());
            wait_for_waiter(&path);
            // The shim in the other container notices the end of its owner by itself.
            drop(record);
            ending.join().unwrap().unwrap();
            assert_eq!(bystander.try_wait().unwrap(), None, "{start:?}");
        }
        let start = StartEntry {
            shim: pid.as_raw_pid(),
            scope: Some(scope.to_owned()),
            started: Some(started),
            cgroup: None,
        };
        assert_eq!(start.valid_pid(), Some(pid));
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }

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

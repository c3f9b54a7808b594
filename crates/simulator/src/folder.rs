//! The folder of a run.
//!
//! ```text
//! run.json          the record of the run
//! scenario.json     the scenario at the start of the run
//! chart.json        the chart at the start of the run
//! checkpoints/      turn_000042.json, or turn_000042.sim for a large population
//! later/            superseded checkpoints, while their turns are computed again
//! requests.jsonl    requests from outside, with their answers
//! owner.lock        locked by the process that runs the simulation
//! ```

pub(crate) mod draft;
pub(crate) mod durable_files;
pub mod requests;
pub mod version;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::draft::{is_unfinished, sweep_unfinished};
use self::durable_files as files;
use self::requests::{AnswerWatch, RequestAnswer, RequestLog};
use self::version::RunVersion;
use crate::error::SimError;
use crate::lifecycle::LifecycleAction;
use crate::run::RunSummary;

const RECORD: &str = "run.json";
const SCENARIO: &str = "scenario.json";
const CHART: &str = "chart.json";
const CHECKPOINTS: &str = "checkpoints";
const SUPERSEDED: &str = "later";
const REQUESTS: &str = "requests.jsonl";
const LOCK: &str = "owner.lock";

/// The number of attempts to take the lock, and the time between them.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// A process runs it, or has crashed.
    Running,
    /// It was stopped and can be resumed.
    Stopped,
    /// All turns are done.
    Ended,
}

impl RunStatus {
    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
        }
    }
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulationRecord {
    /// The run's id.
    pub run_id: String,
    /// The name of its scenario.
    pub scenario: String,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// The origin of a fork.
    pub forked_from: Option<ForkOrigin>,
    /// True if one invalid request rejects all requests of its turn.
    pub strict: bool,
    /// The total number of turns.
    pub turns: u64,
    /// The status.
    pub status: RunStatus,
    /// The summary at the last stop or end.
    pub summary: Option<RunSummary>,
    /// The version of the run; none for a run from before versions were recorded.
    #[serde(default)]
    pub version: Option<RunVersion>,
    /// The digest of the request that started the run, if it may be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The origin of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The other run.
    pub run_id: String,
    /// The last shared turn.
    pub turn: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointFormat {
    /// Readable JSON.
    Json,
    /// Binary, for large populations.
    Compact,
}

impl CheckpointFormat {
    const ALL: [Self; 2] = [Self::Json, Self::Compact];

    fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Compact => "sim",
        }
    }
}

/// The exclusive right to run a simulation, while held.
#[derive(Debug)]
pub struct RunLock {
    _lock: File,
}

impl RunFolder {
    /// Opens the folder of a run; returns `None` if it holds no run.
    pub fn open(path: &Path) -> Option<Self> {
        path.join(RECORD).is_file().then(|| Self { path: path.to_owned() })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock, unless another process holds it.
    pub fn acquire_lock(&self) -> Result<RunLock, SimError> {
        let path = self.path.join(LOCK);
        let lock = files::open_or_create(&path)?;
        for try_again in (0..LOCK_TRIES).rev() {
            match lock.try_lock() {
                Ok(()) => return Ok(RunLock { _lock: lock }),
                // The holder may be a short check with `is_locked`.
                Err(TryLockError::WouldBlock) if try_again > 0 => std::thread::sleep(LOCK_WAIT),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(SimError::io("lock", &path)(error)),
            }
        }
        Err(SimError::InUse)
    }

    /// True if a process runs the simulation. Tries a shared lock, so that concurrent checks do not
    /// see each other.
    pub fn is_locked(&self) -> Result<bool, SimError> {
        let path = self.path.join(LOCK);
        let lock = match polity_files::open_regular_file(&path).map_err(std::io::Error::from) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            lock => lock.map_err(SimError::io("read", &path))?,
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(SimError::io("lock", &path)(error)),
        }
    }

    /// Reads the record.
    pub fn record(&self) -> Result<SimulationRecord, SimError> {
        let path = self.path.join(RECORD);
        let text = files::read_text(&path)?;
        serde_json::from_str(&text).map_err(|error| SimError::damaged(&path, error.to_string()))
    }

    /// Fails if this program cannot continue the run.
    pub(crate) fn check_version(&self) -> Result<(), SimError> {
        RunVersion::check(self.record()?.version.as_ref(), &self.path)
    }

    pub(crate) fn write_record(&self, record: &SimulationRecord) -> Result<(), SimError> {
        let path = self.path.join(RECORD);
        let text = serde_json::to_string_pretty(record)
            .map_err(|error| SimError::damaged(&path, error.to_string()))?;
        files::write_text(&path, &text)
    }

    /// Returns the path and text of the scenario at the start of the run.
    pub fn scenario(&self) -> Result<(PathBuf, String), SimError> {
        let path = self.path.join(SCENARIO);
        files::read_text(&path).map(|text| (path, text))
    }

    /// Returns the path and text of the chart at the start of the run.
    pub fn chart(&self) -> Result<(PathBuf, String), SimError> {
        let path = self.path.join(CHART);
        files::read_text(&path).map(|text| (path, text))
    }

    /// Returns the turns with checkpoints, in order.
    pub fn checkpoints(&self) -> Result<Vec<u64>, SimError> {
        self.turns_in(CHECKPOINTS)
    }

    /// Returns the turns with superseded checkpoints.
    pub(crate) fn superseded_turns(&self) -> Result<Vec<u64>, SimError> {
        self.turns_in(SUPERSEDED)
    }

    fn turns_in(&self, folder: &str) -> Result<Vec<u64>, SimError> {
        let files = self.files_in(folder)?;
        let mut turns: Vec<u64> = files.iter().filter_map(|path| turn_of(path)).collect();
        turns.sort_unstable();
        turns.dedup();
        Ok(turns)
    }

    fn files_in(&self, folder: &str) -> Result<Vec<PathBuf>, SimError> {
        let folder = self.path.join(folder);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound && folder.ends_with(SUPERSEDED) => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(SimError::io("read", &folder))?,
        };
        let path = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.path());
        entries.map(path).collect::<std::io::Result<_>>().map_err(SimError::io("read", &folder))
    }

    /// Sets aside the checkpoints of later turns, which will be computed again, and removes
    /// temporary files of a crashed process. They stay until new ones replace them.
    pub(crate) fn set_aside_after(&self, turn: u64) -> Result<(), SimError> {
        for path in self.files_in(CHECKPOINTS)? {
            if files::is_temporary(&path) {
                fs::remove_file(&path).map_err(SimError::io("remove", &path))?;
            } else if turn_of(&path).is_some_and(|its| its > turn) {
                files::create_folder(&self.path.join(SUPERSEDED))?;
                self.move_to(SUPERSEDED, &path)?;
            }
        }
        self.sync_moves()
    }

    /// Restores superseded checkpoints. They are still valid unless requests from outside came in
    /// since.
    pub(crate) fn restore_superseded(&self) -> Result<(), SimError> {
        self.files_in(SUPERSEDED)?.iter().try_for_each(|path| self.move_to(CHECKPOINTS, path))?;
        self.sync_moves()
    }

    /// Makes the moves of checkpoints durable.
    fn sync_moves(&self) -> Result<(), SimError> {
        [SUPERSEDED, CHECKPOINTS]
            .map(|folder| self.path.join(folder))
            .iter()
            .filter(|folder| folder.exists())
            .try_for_each(|folder| files::sync_folder(folder))
    }

    fn move_to(&self, folder: &str, path: &Path) -> Result<(), SimError> {
        let Some(name) = path.file_name() else { return Ok(()) };
        fs::rename(path, self.path.join(folder).join(name)).map_err(SimError::io("move", path))
    }

    /// Removes superseded checkpoints.
    pub(crate) fn remove_superseded(&self) -> Result<(), SimError> {
        let path = self.path.join(SUPERSEDED);
        polity_files::remove_tree(&path).map_err(SimError::io("remove", &path))
    }

    /// Finds the checkpoint of a turn, or the newest before it, or the newest of all. Fails for a
    /// turn that the run has not reached.
    pub(crate) fn checkpoint(
        &self,
        turn: Option<u64>,
    ) -> Result<(u64, PathBuf, CheckpointFormat), SimError> {
        let mut known = self.checkpoints()?;
        if known.last().is_none_or(|newest| turn.is_some_and(|turn| turn > *newest)) {
            // Superseded checkpoints are valid until they are removed.
            known.extend(self.superseded_turns()?);
            known.sort_unstable();
            known.dedup();
        }
        let newest = known.last().copied();
        let reached = turn.is_none_or(|turn| newest.is_some_and(|newest| turn <= newest));
        let wanted = turn.or(newest).unwrap_or_default();
        let found = known.iter().rev().find(|known| **known <= wanted).filter(|_| reached);
        let Some(found) = found.copied() else {
            return Err(SimError::NoCheckpoint { turn: wanted, known });
        };
        let path = [CHECKPOINTS, SUPERSEDED]
            .into_iter()
            .flat_map(|folder| {
                CheckpointFormat::ALL.map(|form| (found, self.file(folder, found, form), form))
            })
            .find(|(_, path, _)| path.exists());
        path.ok_or(SimError::NoCheckpoint { turn: found, known })
    }

    pub(crate) fn checkpoint_path(&self, turn: u64, form: CheckpointFormat) -> PathBuf {
        self.file(CHECKPOINTS, turn, form)
    }

    /// Returns the possible files of a checkpoint.
    pub(crate) fn checkpoint_paths(&self, turn: u64) -> [PathBuf; 2] {
        CheckpointFormat::ALL.map(|form| self.file(CHECKPOINTS, turn, form))
    }

    /// Returns the possible files of a superseded checkpoint.
    pub(crate) fn superseded_paths(&self, turn: u64) -> [PathBuf; 2] {
        CheckpointFormat::ALL.map(|form| self.file(SUPERSEDED, turn, form))
    }

    fn file(&self, folder: &str, turn: u64, form: CheckpointFormat) -> PathBuf {
        self.path.join(folder).join(format!("turn_{turn:06}.{}", form.extension()))
    }

    pub(crate) fn requests(&self) -> PathBuf {
        self.path.join(REQUESTS)
    }

    /// Submits a request to the process that runs the simulation, now or later. Fails if the run
    /// has ended. A run that ends first never answers: also check the [record](Self::record), and
    /// [withdraw](Self::withdraw) the request.
    pub fn submit_request(
        &self,
        request_id: &str,
        action: LifecycleAction,
    ) -> Result<AnswerWatch, SimError> {
        if self.record()?.status == RunStatus::Ended {
            return Err(SimError::Ended(self.path.clone()));
        }
        requests::submit(&self.requests(), request_id, action)
    }

    /// Watches for the answer to a request.
    pub fn watch_request(&self, request_id: &str) -> AnswerWatch {
        AnswerWatch::from_start(&self.requests(), request_id)
    }

    /// Returns the answer to a request, if there is one.
    pub fn find_answer(&self, request_id: &str) -> Result<Option<RequestAnswer>, SimError> {
        self.watch_request(request_id).poll()
    }

    /// Returns the requests that are pending after a turn.
    pub(crate) fn pending_requests(&self, turn: u64) -> Result<Vec<LifecycleAction>, SimError> {
        Ok(RequestLog::peek(&self.requests(), turn)?.waiting(turn + 1))
    }

    /// Returns the requests answered after a turn, by turn.
    pub(crate) fn answered(
        &self,
        turn: u64,
    ) -> Result<BTreeMap<u64, Vec<LifecycleAction>>, SimError> {
        Ok(RequestLog::open(&self.requests(), turn)?.answered())
    }

    /// Withdraws a request, unless the run has answered it. Returns the answer of the run.
    pub fn withdraw(
        &self,
        request_id: &str,
        reason: &str,
    ) -> Result<Option<RequestAnswer>, SimError> {
        requests::withdraw(&self.requests(), request_id, reason)
    }
}

/// Returns the turn of a checkpoint file.
fn turn_of(path: &Path) -> Option<u64> {
    let extension = path.extension()?;
    let is_one = CheckpointFormat::ALL.iter().any(|form| extension == form.extension());
    is_one.then_some(())?;
    path.file_stem()?.to_str()?.strip_prefix("turn_")?.parse().ok()
}

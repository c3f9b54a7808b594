//! The folder of a run: what it was begun with, how far it has come, what was asked of it.
//!
//! ```text
//! run.json          what the run is, and how it stands
//! scenario.json     the scenario as the run began with it
//! chart.json        the chart as the run began with it
//! checkpoints/      turn_000042.json, or turn_000042.sim for a large population
//! later/            checkpoints of turns that are being done again, until they are
//! requests.jsonl    requests from outside, and what became of them
//! owner.lock        held by the process that runs it
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::SimError;
use crate::files;
use crate::lifecycle::LifecycleAction;
use crate::requests::{self, Answer, AnswerWatch, RequestLog};
use crate::run::Summary;

const RECORD: &str = "run.json";
const SCENARIO: &str = "scenario.json";
const CHART: &str = "chart.json";
const CHECKPOINTS: &str = "checkpoints";
const LATER: &str = "later";
const REQUESTS: &str = "requests.jsonl";
const LOCK: &str = "owner.lock";

/// How often, and how long apart, the lock is tried before someone else counts as its owner.
const OWN_TRIES: u32 = 10;
const OWN_WAIT: Duration = Duration::from_millis(20);

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// A process runs it, or did until it died.
    Running,
    /// It was stopped on request, and can be resumed.
    Stopped,
    /// All its turns are over.
    Ended,
}

impl RunStatus {
    /// The status as files name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
        }
    }
}

/// What a run is, and how it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run's id.
    pub run_id: String,
    /// The name of its scenario.
    pub scenario: String,
    /// When it was begun, by the clock of the machine.
    pub created_at: Timestamp,
    /// The run and the turn that it was forked from.
    pub forked_from: Option<Fork>,
    /// Whether one request that cannot be done takes all others of its turn with it.
    pub strict: bool,
    /// How many turns it is to have.
    pub turns: u64,
    /// How it stands.
    pub status: RunStatus,
    /// What came of it so far, when it was last stopped or ended.
    pub summary: Option<Summary>,
}

/// Where a run was forked from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The other run.
    pub run_id: String,
    /// The turn after which they part.
    pub turn: u64,
}

/// How a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people and programs.
    Json,
    /// For large populations.
    Compact,
}

impl Form {
    const ALL: [Self; 2] = [Self::Json, Self::Compact];

    fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Compact => "sim",
        }
    }
}

/// The right to run a simulation, for as long as this is held.
#[derive(Debug)]
pub struct Owner {
    _lock: File,
}

impl RunFolder {
    /// Makes the folder of a new run, and takes it. What marks it as a run comes last, so that one
    /// that could not be finished is not taken for a run.
    pub fn create(
        path: &Path,
        record: &RunRecord,
        scenario: &str,
        chart: &str,
    ) -> Result<(Self, Owner), SimError> {
        let folder = Self { path: path.to_owned() };
        if path.exists() && !folder.was_never_run() {
            return Err(SimError::Exists(path.to_owned()));
        }
        files::make_folder(&path.join(CHECKPOINTS))?;
        let owner = folder.own()?;
        // Someone else may have been faster.
        if !folder.was_never_run() {
            return Err(SimError::Exists(path.to_owned()));
        }
        files::write_text(&path.join(SCENARIO), scenario)?;
        files::write_text(&path.join(CHART), chart)?;
        folder.write_record(record)?;
        Ok((folder, owner))
    }

    /// Whether it is empty, or what a process left that died before there was a run.
    fn was_never_run(&self) -> bool {
        let is_begun = self.path.join(LOCK).exists();
        let is_empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut all| all.next().is_none());
        let is_ours = |entry: std::io::Result<fs::DirEntry>| {
            let Ok(path) = entry.map(|entry| entry.path()) else { return false };
            let written = [LOCK, SCENARIO, CHART].iter().any(|name| path.ends_with(name));
            (is_begun && (written || files::is_aside(&path)))
                || (path.ends_with(CHECKPOINTS) && is_empty(&path))
        };
        fs::read_dir(&self.path).is_ok_and(|mut all| all.all(is_ours))
    }

    /// The folder of a run that is there; none if it is not one.
    pub fn open(path: &Path) -> Option<Self> {
        path.join(RECORD).is_file().then(|| Self { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the right to run it, unless another process has it.
    pub fn own(&self) -> Result<Owner, SimError> {
        let path = self.path.join(LOCK);
        let lock = File::create(&path).map_err(SimError::io("write", &path))?;
        for try_again in (0..OWN_TRIES).rev() {
            match lock.try_lock() {
                Ok(()) => return Ok(Owner { _lock: lock }),
                // Someone may only be asking whether there is an owner.
                Err(TryLockError::WouldBlock) if try_again > 0 => std::thread::sleep(OWN_WAIT),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(SimError::io("lock", &path)(error)),
            }
        }
        Err(SimError::InUse)
    }

    /// Whether a process runs it. A shared lock is tried, so that two who ask at the same moment
    /// do not take each other for the owner.
    pub fn is_owned(&self) -> Result<bool, SimError> {
        let path = self.path.join(LOCK);
        let lock = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            lock => lock.map_err(SimError::io("read", &path))?,
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(SimError::io("lock", &path)(error)),
        }
    }

    /// What the run is, and how it stands.
    pub fn record(&self) -> Result<RunRecord, SimError> {
        let path = self.path.join(RECORD);
        let text = files::read_text(&path)?;
        serde_json::from_str(&text).map_err(|error| SimError::damaged(&path, error.to_string()))
    }

    pub(crate) fn write_record(&self, record: &RunRecord) -> Result<(), SimError> {
        let path = self.path.join(RECORD);
        let text = serde_json::to_string_pretty(record)
            .map_err(|error| SimError::damaged(&path, error.to_string()))?;
        files::write_text(&path, &text)
    }

    /// The scenario as the run began with it: the file's path and its text.
    pub fn scenario(&self) -> Result<(PathBuf, String), SimError> {
        let path = self.path.join(SCENARIO);
        files::read_text(&path).map(|text| (path, text))
    }

    /// The chart as the run began with it: the file's path and its text.
    pub fn chart(&self) -> Result<(PathBuf, String), SimError> {
        let path = self.path.join(CHART);
        files::read_text(&path).map(|text| (path, text))
    }

    /// The turns of which there are checkpoints, in order.
    pub fn checkpoints(&self) -> Result<Vec<u64>, SimError> {
        self.turns_in(CHECKPOINTS)
    }

    /// The turns that are being done again, and of which there are checkpoints from before.
    pub(crate) fn later(&self) -> Result<Vec<u64>, SimError> {
        self.turns_in(LATER)
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
            Err(error) if error.kind() == ErrorKind::NotFound && folder.ends_with(LATER) => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(SimError::io("read", &folder))?,
        };
        let path = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.path());
        entries.map(path).collect::<std::io::Result<_>>().map_err(SimError::io("read", &folder))
    }

    /// Puts the checkpoints of later turns aside, which are done again, and removes what a process
    /// that died did not finish. They stay until there are new ones in their place.
    pub(crate) fn set_aside_after(&self, turn: u64) -> Result<(), SimError> {
        for path in self.files_in(CHECKPOINTS)? {
            if files::is_aside(&path) {
                fs::remove_file(&path).map_err(SimError::io("remove", &path))?;
            } else if turn_of(&path).is_some_and(|its| its > turn) {
                files::make_folder(&self.path.join(LATER))?;
                self.move_to(LATER, &path)?;
            }
        }
        Ok(())
    }

    /// Brings back the checkpoints that were put aside. Unless something was asked from outside
    /// since, they are what would come of doing the turns again.
    pub(crate) fn bring_back(&self) -> Result<(), SimError> {
        self.files_in(LATER)?.iter().try_for_each(|path| self.move_to(CHECKPOINTS, path))
    }

    fn move_to(&self, folder: &str, path: &Path) -> Result<(), SimError> {
        let Some(name) = path.file_name() else { return Ok(()) };
        fs::rename(path, self.path.join(folder).join(name)).map_err(SimError::io("move", path))
    }

    /// Removes what was put aside.
    pub(crate) fn forget_later(&self) -> Result<(), SimError> {
        let path = self.path.join(LATER);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(SimError::io("remove", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The checkpoint of a turn, or of the newest before it, or the newest of all, and its turn. A
    /// turn that the run has not come to has none.
    pub(crate) fn checkpoint(&self, turn: Option<u64>) -> Result<(u64, PathBuf, Form), SimError> {
        let mut known = self.checkpoints()?;
        if known.last().is_none_or(|newest| turn.is_some_and(|turn| turn > *newest)) {
            // Turns that are done again have checkpoints from before, as long as these are right.
            known.extend(self.later()?);
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
        let path = [CHECKPOINTS, LATER]
            .into_iter()
            .flat_map(|folder| Form::ALL.map(|form| (found, self.file(folder, found, form), form)))
            .find(|(_, path, _)| path.exists());
        path.ok_or(SimError::NoCheckpoint { turn: found, known })
    }

    pub(crate) fn checkpoint_path(&self, turn: u64, form: Form) -> PathBuf {
        self.file(CHECKPOINTS, turn, form)
    }

    /// The files that the checkpoint of a turn may be in.
    pub(crate) fn checkpoint_paths(&self, turn: u64) -> [PathBuf; 2] {
        Form::ALL.map(|form| self.file(CHECKPOINTS, turn, form))
    }

    /// The files that the checkpoint of a turn may be in that was put aside.
    pub(crate) fn later_paths(&self, turn: u64) -> [PathBuf; 2] {
        Form::ALL.map(|form| self.file(LATER, turn, form))
    }

    fn file(&self, folder: &str, turn: u64, form: Form) -> PathBuf {
        self.path.join(folder).join(format!("turn_{turn:06}.{}", form.extension()))
    }

    /// Whether a file is a checkpoint, by its name.
    pub fn is_checkpoint(path: &Path) -> bool {
        turn_of(path).is_some()
    }

    pub(crate) fn requests(&self) -> PathBuf {
        self.path.join(REQUESTS)
    }

    /// Asks the process that runs it, or will, for a change of the population. One that has ended is
    /// asked for nothing. Where it ends before it has looked at the request, there is never an answer:
    /// whoever waits for one looks at the [record](Self::record) too, and [withdraws](Self::withdraw) it.
    pub fn ask(&self, request_id: &str, action: LifecycleAction) -> Result<AnswerWatch, SimError> {
        if self.record()?.status == RunStatus::Ended {
            return Err(SimError::Ended(self.path.clone()));
        }
        requests::ask(&self.requests(), request_id, action)
    }

    /// What became of such a request, if it was looked at.
    pub fn answer(&self, request_id: &str) -> Result<Option<Answer>, SimError> {
        AnswerWatch::from_start(&self.requests(), request_id).look()
    }

    /// The requests that wait to be looked at after a turn.
    pub(crate) fn waiting(&self, turn: u64) -> Result<Vec<LifecycleAction>, SimError> {
        let waiting = RequestLog::peek(&self.requests(), turn)?.take(turn + 1)?;
        Ok(waiting.into_iter().filter_map(|request| request.action.ok()).collect())
    }

    /// What was asked after a turn and looked at, by the turn in which it was.
    pub(crate) fn answered(
        &self,
        turn: u64,
    ) -> Result<BTreeMap<u64, Vec<LifecycleAction>>, SimError> {
        Ok(RequestLog::open(&self.requests(), turn)?.answered())
    }

    /// Takes back a request that no one looks at any more.
    pub fn withdraw(&self, request_id: &str, reason: &str) -> Result<(), SimError> {
        requests::withdraw(&self.requests(), request_id, reason)
    }
}

/// The turn that a file is the checkpoint of, if it is one.
fn turn_of(path: &Path) -> Option<u64> {
    let extension = path.extension()?;
    let is_one = Form::ALL.iter().any(|form| extension == form.extension());
    is_one.then_some(())?;
    path.file_stem()?.to_str()?.strip_prefix("turn_")?.parse().ok()
}

//! Recording of a task's calls in a cassette, and replay from one.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polity_definition::{Home, NameLookup};
use polity_drivers::SecretSet;
use polity_drivers::cassette::{
    Cassette, CassetteError, CassettePlayer, CassetteRecorder, CassetteSize, CassetteVerdict,
    PlaybackProgramDriver, PlaybackRemoteDriver, RecordingProgramDriver, RecordingRemoteDriver,
    ReviewQuestion,
};
use polity_engine::commands::AnswerReview;
use polity_engine::driver::{ProgramDriver, RunOverrides};
use polity_engine::runtime::{active_root, task_to_adopt};
use polity_files::{FileAccess, read_named_file, temporary_path, write_bytes, write_temporary};
use polity_model::machine::task::TaskStatus;
use polity_model::review::Review;
use polity_model::task::Task;
use polity_store::{MemorySlotPools, TaskRow};
use serde_json::{Map, Value, json};

use crate::context::HostContext;
use crate::drivers::DriverSet;
use crate::error::HostError;
use crate::host::Host;
use crate::queries::HomeQueries;

/// The maximum size of a cassette. It is read whole.
const CASSETTE_BYTES_MAX: u64 = 512 << 20;

/// The author of a replayed answer. The recorded one would differ between machines.
const REPLAYED_BY: &str = "cassette";

/// A cassette that cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RecordingError {
    /// The file to record to holds a run of another agent.
    #[error(
        "the cassette {} holds a run of agent \"{recorded}\", which recording agent \"{agent}\" \
         would replace",
        file.display()
    )]
    WouldReplace { file: PathBuf, recorded: String, agent: String },
    /// A resumed task has no cassette with its first part.
    #[error("there is no cassette {} with the task's beginning", .0.display())]
    NoBeginning(PathBuf),
    /// The cassette was recorded with another agent.
    #[error(
        "the cassette {} was recorded with agent \"{recorded}\", and this is agent \"{agent}\"",
        file.display()
    )]
    OtherAgent { file: PathBuf, recorded: String, agent: String },
    /// The cassette was recorded with another input.
    #[error("the cassette {} was recorded with another input: {input}", file.display())]
    OtherInput { file: PathBuf, input: String },
    /// The file does not exist.
    #[error("there is no cassette {}", .0.display())]
    NotFound(PathBuf),
    /// The path is a folder.
    #[error("{} is a folder, and a cassette is a file", .0.display())]
    IsFolder(PathBuf),
    /// The content of the file cannot be used.
    #[error("cannot use {}: {error}", file.display())]
    Unusable { file: PathBuf, error: CassetteError },
    /// The path to record to exists and is no regular file.
    #[error("cannot use {}: {}", .0.display(), CassetteError::NotACassette)]
    NotAFile(PathBuf),
    /// The file to record to exists and cannot be used. Nothing was changed.
    #[error(transparent)]
    ExistingFile(Box<RecordingError>),
    /// The folder to record in does not exist.
    #[error("cannot record in {}: there is no folder {}", file.display(), folder.display())]
    NoFolder { file: PathBuf, folder: PathBuf },
    /// The cassette cannot be serialized.
    #[error("cannot write {}: {error}", file.display())]
    NotSerializable { file: PathBuf, error: String },
    /// The file could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl RecordingError {
    fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}

/// A request to record or replay, with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingRequest {
    /// The cassette.
    pub file: PathBuf,
    /// Record or replay.
    pub mode: RecordingMode,
}

/// The use of a cassette.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingMode {
    /// Calls are performed and written to the cassette.
    Record,
    /// Calls are answered from the cassette.
    Replay,
}

/// The part of a task that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingScope {
    /// The task from its creation.
    WholeTask,
    /// The remainder of a task that was resumed or forked.
    Remainder,
}

/// The run that a cassette is opened for.
#[derive(Clone, Copy)]
pub struct RecordingSubject<'a> {
    /// The agent or workflow.
    pub agent: &'a str,
    /// The input of the task.
    pub input: &'a str,
    /// The overrides of the agent's definition.
    pub overrides: &'a RunOverrides,
}

/// The task to adopt so that `row` continues. Call sites in a cassette are relative to the top task,
/// so with a cassette it is the top task.
pub async fn resumable_task(
    request: Option<&RecordingRequest>,
    queries: &HomeQueries,
    row: TaskRow,
) -> Result<TaskRow, HostError> {
    let store = &**queries.store();
    Ok(match request {
        None => task_to_adopt(store, row).await?,
        Some(_) => active_root(store, row).await?,
    })
}

/// A cassette file that was checked before the task is created.
pub struct CassetteFile {
    file: PathBuf,
    mode: RecordingMode,
    /// The content; none if the file is to be written anew.
    cassette: Option<Cassette>,
    scope: RecordingScope,
    /// The parameters of the task, for a cassette that is written anew.
    parameters: Map<String, Value>,
}

impl CassetteFile {
    /// Reads and checks the file of a request.
    pub fn open(
        request: RecordingRequest,
        agent: &str,
        scope: RecordingScope,
    ) -> Result<Self, RecordingError> {
        let RecordingRequest { file, mode } = request;
        let existing = match mode {
            RecordingMode::Record => {
                check_writable(&file)?;
                read_existing(&file)?
            }
            RecordingMode::Replay => Some(read(&file)?),
        };
        if let (RecordingMode::Record, Some(other)) =
            (mode, existing.as_ref().filter(|existing| existing.agent() != agent))
        {
            let recorded = other.agent().to_owned();
            return Err(RecordingError::WouldReplace { file, recorded, agent: agent.to_owned() });
        }
        let cassette = match (mode, scope, existing) {
            (RecordingMode::Record, RecordingScope::WholeTask, _) => None,
            (RecordingMode::Record, RecordingScope::Remainder, None) => {
                return Err(RecordingError::NoBeginning(file));
            }
            (RecordingMode::Replay, _, existing)
            | (RecordingMode::Record, RecordingScope::Remainder, existing) => existing,
        };
        if let Some(cassette) = &cassette
            && cassette.agent() != agent
        {
            let recorded = cassette.agent().to_owned();
            return Err(RecordingError::OtherAgent { file, recorded, agent: agent.to_owned() });
        }
        Ok(Self { file, mode, cassette, scope, parameters: Map::new() })
    }

    /// The input that a replay repeats.
    pub fn input(&self) -> Option<&str> {
        match self.mode {
            RecordingMode::Replay => self.cassette.as_ref().map(Cassette::input),
            RecordingMode::Record => None,
        }
    }

    /// The parameters that a replay repeats.
    pub fn parameters(&self) -> Option<&Map<String, Value>> {
        match self.mode {
            RecordingMode::Replay => self.cassette.as_ref().map(Cassette::parameters),
            RecordingMode::Record => None,
        }
    }

    /// Records these parameters of the task.
    #[must_use]
    pub fn with_parameters(self, parameters: Map<String, Value>) -> Self {
        Self { parameters, ..self }
    }

    /// Wraps the real drivers in a recorder, or replaces them by a player.
    fn into_drivers(
        self,
        context: &HostContext,
        home: &Home,
        run: RecordingSubject<'_>,
    ) -> Result<(DriverSet, Recording), HostError> {
        let Self { file, mode, cassette, scope, parameters } = self;
        let secrets = secrets(context, home, run.overrides);
        let programs = context.programs(home)?;
        let (input, parameters) = masked_input(home, &*programs, &secrets, run, parameters);
        let input = &input;
        let new = || Cassette::new(run.agent, input).with_parameters(parameters);
        let cassette = cassette.unwrap_or_else(new);
        match mode {
            RecordingMode::Replay => {
                let player = Arc::new(CassettePlayer::new(cassette, secrets));
                let drivers = DriverSet {
                    models: player.clone(),
                    tools: player.clone(),
                    programs: Arc::new(PlaybackProgramDriver::new(player.clone(), programs)),
                    remotes: Arc::new(PlaybackRemoteDriver::new(player.clone())),
                    slots: Arc::new(MemorySlotPools::unlimited()),
                    servers: None,
                    notifies: false,
                };
                Ok((drivers, Recording::Replay { player, scope }))
            }
            RecordingMode::Record => {
                if ![run.input, input].contains(&cassette.input()) {
                    let input = cassette.input().to_owned();
                    return Err(RecordingError::OtherInput { file, input }.into());
                }
                let live = DriverSet::live(context, home)?;
                let recorder = CassetteRecorder::new(live.models, live.tools, secrets, cassette);
                let recorder = Arc::new(recorder);
                let drivers = DriverSet {
                    models: recorder.clone(),
                    tools: recorder.clone(),
                    programs: Arc::new(RecordingProgramDriver::new(recorder.clone(), programs)),
                    remotes: Arc::new(RecordingRemoteDriver::new(recorder.clone(), live.remotes)),
                    slots: live.slots,
                    servers: live.servers,
                    notifies: live.notifies,
                };
                Ok((drivers, Recording::Record { file, recorder }))
            }
        }
    }
}

/// The recording or replay of a task that runs.
pub enum Recording {
    /// Neither.
    Off,
    /// Calls are recorded.
    Record {
        /// The file to write.
        file: PathBuf,
        /// The recorder.
        recorder: Arc<CassetteRecorder>,
    },
    /// Calls are replayed.
    Replay {
        /// The player.
        player: Arc<CassettePlayer>,
        /// The part of the cassette that the run should use.
        scope: RecordingScope,
    },
}

/// The result of [`Recording::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingOutcome {
    /// Nothing to report.
    None,
    /// A cancelled or unfinished run was not recorded, so that it does not replace a good one.
    Discarded {
        /// The file, which was not touched.
        file: PathBuf,
    },
    /// The cassette was written.
    Written {
        /// The file.
        file: PathBuf,
        /// The number of recorded calls.
        size: CassetteSize,
    },
    /// A finished replay did not use these answers of the cassette.
    Unused(Vec<String>),
}

impl Recording {
    /// The drivers for a run, with its recording.
    pub fn open(
        file: Option<CassetteFile>,
        context: &HostContext,
        home: &Home,
        run: RecordingSubject<'_>,
    ) -> Result<(DriverSet, Self), HostError> {
        match file {
            Some(file) => file.into_drivers(context, home, run),
            None => Ok((DriverSet::live(context, home)?, Self::Off)),
        }
    }

    /// Records a person's answer to a review.
    pub fn record_answer(&self, review: &Review, answer: &AnswerReview) {
        if let Self::Record { recorder, .. } = self {
            let AnswerReview { verdict, message, state_updates, .. } = answer.clone();
            let answer = CassetteVerdict { verdict, message, state_updates };
            recorder.record_review(question_of(review), answer);
        }
    }

    /// Answers the review that a replayed task waits for, if the cassette has the answer. Returns
    /// true if the task can go on.
    pub async fn replay_answer(&self, host: &Host, task: &Task) -> Result<bool, HostError> {
        let Self::Replay { player, scope: RecordingScope::WholeTask } = self else {
            return Ok(false);
        };
        if task.status != TaskStatus::AwaitingHuman {
            return Ok(false);
        }
        let queries = host.queries();
        let reviews = match queries.find_review(task.id).await {
            Ok(review) => vec![review],
            Err(HostError::SeveralReviews { reviews, .. }) => {
                let mut found = Vec::with_capacity(reviews.len());
                for (id, _) in reviews {
                    found.push(queries.find_review(id).await?);
                }
                found
            }
            Err(HostError::NoReview(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut answers = reviews.iter().map(|review| {
            let answer = player.review_answer(question_of(review))?;
            Some((review.task_id, review.checkpoint_id, answer))
        });
        let Some((id, checkpoint_id, answer)) = answers.find_map(|answer| answer) else {
            return Ok(false);
        };
        let CassetteVerdict { verdict, message, state_updates } = answer;
        let by = REPLAYED_BY.to_owned();
        let answer = AnswerReview { checkpoint_id, verdict, message, by, state_updates };
        host.runtime().answer(id, answer).await?;
        Ok(true)
    }

    /// Writes the cassette of a task that has ended or waits for a review.
    pub fn finish(&self, task: &Task) -> Result<RecordingOutcome, HostError> {
        match (self, task.status) {
            (Self::Off, _) => Ok(RecordingOutcome::None),
            (
                Self::Record { file, .. },
                TaskStatus::Cancelled | TaskStatus::Pending | TaskStatus::Running,
            ) => Ok(RecordingOutcome::Discarded { file: file.clone() }),
            (
                Self::Record { file, recorder },
                TaskStatus::Completed | TaskStatus::Failed | TaskStatus::AwaitingHuman,
            ) => {
                let cassette = recorder.cassette();
                write(file, &cassette)?;
                Ok(RecordingOutcome::Written { file: file.clone(), size: cassette.size() })
            }
            (Self::Replay { player, scope: RecordingScope::WholeTask }, status)
                if status.is_final() =>
            {
                Ok(RecordingOutcome::Unused(player.unused_answers()))
            }
            (Self::Replay { .. }, _) => Ok(RecordingOutcome::None),
        }
    }
}

fn question_of(review: &Review) -> ReviewQuestion<'_> {
    ReviewQuestion { place: &review.place, question: &review.question }
}

/// The values that must not reach a cassette: the keys and variables of the home's agents and servers.
fn secrets(context: &HostContext, home: &Home, overrides: &RunOverrides) -> SecretSet {
    let agents = home.agents.values().map(|agent| &**agent);
    let servers = home.mcp_servers.values().map(|server| &**server);
    SecretSet::collect(agents, servers, overrides, context.environment())
}

/// The input and the parameters of a task without secrets. For a CLI agent, values that look like
/// secrets are masked too.
fn masked_input(
    home: &Home,
    programs: &dyn ProgramDriver,
    secrets: &SecretSet,
    run: RecordingSubject<'_>,
    parameters: Map<String, Value>,
) -> (String, Map<String, Value>) {
    let input = secrets.redact(run.input);
    let NameLookup::Agent(agent) = home.find(run.agent) else { return (input, parameters) };
    if agent.program().is_none() {
        return (input, parameters);
    }
    let masked = programs.mask_secrets(&agent, run.overrides, json!([input, parameters]));
    serde_json::from_value(masked).unwrap_or_default()
}

fn read(file: &Path) -> Result<Cassette, RecordingError> {
    if file.is_dir() {
        return Err(RecordingError::IsFolder(file.to_owned()));
    }
    let bytes = read_named_file(file, CASSETTE_BYTES_MAX).map_err(io::Error::from);
    let bytes = bytes.map_err(|error| match error.kind() {
        ErrorKind::NotFound => RecordingError::NotFound(file.to_owned()),
        _ => RecordingError::io("read", file, error),
    })?;
    let unusable = |error| RecordingError::Unusable { file: file.to_owned(), error };
    let text = String::from_utf8(bytes).map_err(|_| unusable(CassetteError::NotACassette))?;
    Cassette::parse(&text).map_err(unusable)
}

/// The cassette that a recording would replace, if there is one. Any other file stays untouched.
fn read_existing(file: &Path) -> Result<Option<Cassette>, RecordingError> {
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RecordingError::io("look at", file, error)),
        Ok(metadata) if metadata.is_dir() => Err(RecordingError::IsFolder(file.to_owned())),
        Ok(metadata) if !metadata.is_file() => Err(RecordingError::NotAFile(file.to_owned())),
        Ok(_) => {
            read(file).map(Some).map_err(|error| RecordingError::ExistingFile(Box::new(error)))
        }
    }
}

/// Checks that the file can be written, before any call is made.
fn check_writable(file: &Path) -> Result<(), RecordingError> {
    let target = target(file);
    let folder = folder(&target);
    if !folder.is_dir() {
        let (file, folder) = (file.to_owned(), folder.to_owned());
        return Err(RecordingError::NoFolder { file, folder });
    }
    if file.file_name().is_none() {
        return Err(RecordingError::IsFolder(file.to_owned()));
    }
    let temporary = temporary_path(&target);
    write_temporary(&target, FileAccess::Private, |_| Ok(()), |error| error)
        .map_err(|error| RecordingError::io("write", &temporary, error))?;
    fs::remove_file(&temporary).map_err(|error| RecordingError::io("remove", &temporary, error))
}

/// Writes the cassette atomically. It is private: it holds a conversation.
fn write(file: &Path, cassette: &Cassette) -> Result<(), RecordingError> {
    let text = cassette.to_text().map_err(|error| RecordingError::NotSerializable {
        file: file.to_owned(),
        error: error.to_string(),
    })?;
    write_bytes(&target(file), FileAccess::Private, text.as_bytes())
        .map_err(|error| RecordingError::io("write", file, error))
}

/// The file behind a symbolic link.
fn target(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

//! Errors of this crate. Each says what happened and where; a front end adds codes and hints.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use polity_definition::DefinitionProblem;
use polity_engine::runtime::EngineError;
use polity_model::ids::TaskId;
use polity_simulator::error::SimError;
use polity_store::StoreError;

use crate::account_name::AccountName;
use crate::archive::ArchiveError;
use crate::definitions::DefinitionError;
use crate::home_trust::TrustFault;
use crate::recording::RecordingError;

/// An operation on a home that failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum HostError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine failed or refused a command.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A simulation failed.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// An archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A cassette cannot be used.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A definition is unknown or of another kind.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// An id stands for no record, or for several.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// The home folder does not exist.
    #[error("there is no home folder {}", path.display())]
    MissingHome { path: PathBuf },
    /// Another user may have written the home that was found.
    #[error("the home that was found is not safe to use: {}: {fault}", path.display())]
    UntrustedHome { path: PathBuf, fault: TrustFault },
    /// The data folder, or something in it, belongs to another user.
    #[error("{} belongs to another user ({user}), who may have written anything into it", path.display())]
    ForeignData { path: PathBuf, user: AccountName },
    /// The data folder is a link to a folder that is open to other users.
    #[error("the data folder {} is a link to a folder that other users may enter", path.display())]
    OpenDataLink { path: PathBuf },
    /// No home was named, none was found upwards, and the user has no home directory.
    #[error("there is no home folder here, and no user's home directory to fall back to")]
    NoUserFolder,
    /// Definition files have problems.
    #[error("{message}")]
    InvalidDefinitions { message: String, problems: Vec<DefinitionProblem> },
    /// The definitions that a simulation run pinned are not valid.
    #[error("the chart or scenario stored with the run is no longer valid")]
    InvalidRun { folder: PathBuf, problems: Vec<DefinitionProblem> },
    /// A path names a folder without a run record.
    #[error("{path} is not the folder of a run")]
    NotARunFolder { path: String },
    /// A schedule of this name exists.
    #[error("there is a schedule \"{0}\" already")]
    ScheduleExists(polity_model::name::Name),
    /// A task that was there is gone from the store.
    #[error("task {0} is no longer in the store")]
    TaskRemoved(TaskId),
    /// The journal of a task does not begin with its creation.
    #[error("the journal of task {0} has no beginning")]
    EmptyJournal(TaskId),
    /// The events of a task contradict each other.
    #[error("task {task}: {reason}")]
    BrokenTask { task: TaskId, reason: String },
    /// A definition that a task pinned is not in the store.
    #[error("the definition of {name} that task {task} pinned is missing")]
    LostDefinition { task: TaskId, name: String },
    /// A task changed on every attempt to read it consistently.
    #[error("task {0} changes faster than it can be read")]
    ChangingTask(TaskId),
    /// A task has no open review.
    #[error("task {0} has no open review")]
    NoReview(TaskId),
    /// Several parts of a task have an open review.
    #[error("several sub-agents of task {task} wait for a decision")]
    SeveralReviews { task: TaskId, reviews: Vec<(TaskId, String)> },
    /// The owner of a task did not carry out a cancellation in time.
    #[error(
        "the process that runs task {task} was asked to end it and has not done so within \
         {seconds} seconds"
    )]
    OwnerUnresponsive { task: TaskId, seconds: u64 },
}

impl HostError {
    /// An I/O error on a path.
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    /// Definition files with problems.
    pub fn invalid(message: impl Into<String>, problems: Vec<DefinitionProblem>) -> Self {
        Self::InvalidDefinitions { message: message.into(), problems }
    }
}

/// A kind of record that has an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A task.
    Task,
    /// An execution.
    Execution,
    /// A run of a simulation.
    Run,
    /// A session of a sub-agent.
    Session,
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task => "task",
            Self::Execution => "execution",
            Self::Run => "run",
            Self::Session => "session",
        })
    }
}

/// A lookup by id prefix that did not find exactly one record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LookupError {
    /// `last` was asked for, and there are none.
    #[error("there are no {0}s yet")]
    NoneYet(RecordKind),
    /// The id is empty.
    #[error("the id is empty")]
    EmptyId(RecordKind),
    /// No id begins so.
    #[error("there is no {kind} {id}")]
    NotFound { kind: RecordKind, id: String },
    /// Several ids begin so.
    #[error("several {kind}s begin with \"{prefix}\"")]
    Ambiguous { kind: RecordKind, prefix: String },
}

impl LookupError {
    /// The kind of record that was looked for.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::NoneYet(kind)
            | Self::EmptyId(kind)
            | Self::NotFound { kind, .. }
            | Self::Ambiguous { kind, .. } => *kind,
        }
    }
}

//! Errors of simulations.

use std::io;
use std::path::{Path, PathBuf};

use crate::folder::version::RunVersion;
use crate::kernel::{KernelError, RatesError};

/// Returns a formatted message as an error, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// The reason why a run cannot start, continue or be read.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The folder of a new run already exists.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// A file has invalid content.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A checkpoint is damaged, or does not fit its run.
    #[error("{}: the checkpoint cannot be used: {reason}; {}", path.display(), instead(*.earlier))]
    DamagedCheckpoint {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// The turn of the newest earlier checkpoint that is intact.
        earlier: Option<u64>,
    },
    /// The run has a format that this program does not continue.
    #[error("the run in {} {}", path.display(), other_format(.found.as_ref()))]
    OtherFormat {
        /// The folder of the run.
        path: PathBuf,
        /// The version of the run, if recorded.
        found: Option<RunVersion>,
    },
    /// The run has no checkpoint of that turn.
    #[error("the run has no checkpoint of turn {turn}{}", why_none(*.turn, .known))]
    NoCheckpoint {
        /// The requested turn.
        turn: u64,
        /// The turns with checkpoints.
        known: Vec<u64>,
    },
    /// Another process runs the simulation.
    #[error("another process runs this simulation")]
    InUse,
    /// The run has ended.
    #[error("the run in {} has ended and accepts no requests", .0.display())]
    Ended(PathBuf),
    /// The population is too large.
    #[error("{agents} agents exceed max_agents, which is {max_agents}")]
    TooManyAgents {
        /// The number of agents.
        agents: u64,
        /// The maximum number of agents.
        max_agents: u64,
    },
    /// The run has too many turns for its tick counter.
    #[error("{turns} turns exceed the maximum of this scenario, which is {max_turns}")]
    TooManyTurns {
        /// The number of turns.
        turns: u64,
        /// The maximum number of turns.
        max_turns: u64,
    },
    /// The run is already past its last turn.
    #[error("the run has {turns} turns, but continues from the end of turn {turn}")]
    TooFewTurns {
        /// The requested number of turns.
        turns: u64,
        /// The turn from which it continues.
        turn: u64,
    },
    /// The agents of a run do not fit a scenario.
    #[error("the agents do not fit the scenario: {0}")]
    Scenario(String),
    /// The rates of the scenario are invalid.
    #[error(transparent)]
    Rates(#[from] RatesError),
    /// An agent cannot be added.
    #[error("an agent cannot be added: {0}")]
    Agent(#[from] KernelError),
    /// The threads could not be started.
    #[error("the threads of the simulation could not be started: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl SimError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }
}

/// Names the turn to continue from instead of a damaged checkpoint.
fn instead(earlier: Option<u64>) -> String {
    match earlier {
        Some(turn) => format!("continue from the end of turn {turn} instead"),
        None => "no earlier checkpoint is intact".to_owned(),
    }
}

/// Explains the format of a run that cannot be continued.
fn other_format(found: Option<&RunVersion>) -> String {
    let found = match found {
        Some(RunVersion { polity, format }) => {
            format!("has format {format}, written by Polity {polity}")
        }
        None => "has an older format".to_owned(),
    };
    let RunVersion { polity, format } = RunVersion::current();
    format!("{found}, and Polity {polity} continues runs of format {format} only")
}

/// Explains a missing checkpoint: it was not kept, or the run has not reached the turn.
fn why_none(turn: u64, known: &[u64]) -> String {
    match known.last() {
        Some(newest) if *newest < turn => {
            format!(": the newest is of turn {newest}")
        }
        Some(_) | None => format!("; there are checkpoints of {}", list(known)),
    }
}

/// Lists the turns of checkpoints, shortened if there are many.
fn list(turns: &[u64]) -> String {
    match turns {
        [] => "none".to_owned(),
        [one] => format!("turn {one}"),
        [first, .., last] if turns.len() > 8 => {
            format!("{} turns from {first} to {last}", turns.len())
        }
        all => {
            let all: Vec<String> = all.iter().map(u64::to_string).collect();
            format!("the turns {}", all.join(", "))
        }
    }
}

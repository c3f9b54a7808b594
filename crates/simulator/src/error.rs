//! What can keep a simulation from going on.

use std::io;
use std::path::{Path, PathBuf};

use crate::kernel::{KernelError, RatesError};

/// Why a run cannot go on, or be read.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The folder of a new run is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no checkpoint of that turn.
    #[error("the run has no checkpoint of turn {turn}{}", why_none(*.turn, .known))]
    NoCheckpoint {
        /// The turn that was asked for.
        turn: u64,
        /// The turns there are.
        known: Vec<u64>,
    },
    /// Another process runs it.
    #[error("another process runs this simulation")]
    InUse,
    /// The run has ended.
    #[error("the run in {} has ended, nothing can be asked of it", .0.display())]
    Ended(PathBuf),
    /// The population is larger than it may be.
    #[error("{agents} agents are more than max_agents allows, which is {max_agents}")]
    TooManyAgents {
        /// How many there would be.
        agents: u64,
        /// How many there may be.
        max_agents: u64,
    },
    /// The run has more turns than its ticks can be counted for.
    #[error("{turns} turns are more than a run of this scenario can have, which is {most}")]
    TooManyTurns {
        /// How many there would be.
        turns: u64,
        /// How many there may be.
        most: u64,
    },
    /// The run has come farther than it is to go.
    #[error("the run is to have {turns} turns, and it goes on from the end of turn {turn}")]
    TooFewTurns {
        /// How many turns it is to have.
        turns: u64,
        /// The turn that it goes on from.
        turn: u64,
    },
    /// The agents of a run do not fit a scenario.
    #[error("the agents do not fit the scenario: {0}")]
    Scenario(String),
    /// The rates of the scenario cannot be.
    #[error(transparent)]
    Rates(#[from] RatesError),
    /// An agent cannot be let in.
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

/// Why there is no checkpoint: those of some turns are not kept, and others are yet to come.
fn why_none(turn: u64, known: &[u64]) -> String {
    match known.last() {
        Some(newest) if *newest < turn => {
            format!(", because it has not come that far: the newest is of turn {newest}")
        }
        Some(_) | None => format!("; there are checkpoints of {}", list(known)),
    }
}

/// The turns of checkpoints, shortened where there are many.
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

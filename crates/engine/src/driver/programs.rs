//! Running a program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_model::digest::Digest;
use polity_model::failure::AttemptFailure;
use polity_model::ids::ExecutionId;
use polity_model::run::{ResourceUsage, RunReport};
use polity_model::usage::Usage;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{BoxFuture, NotReady};

/// One run of a program for a task.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// The agent, which is a command-line program.
    pub agent: &'a AgentDefinition,
    /// Where in the whole this is run, as a [`CallSite`](super::CallSite) has it.
    pub session: &'a str,
    /// The execution that the run is an attempt of.
    pub execution_id: ExecutionId,
    /// Which attempt this is, from 0.
    pub attempt: u32,
    /// What the program is given.
    pub input: &'a str,
    /// Named values that came with the task.
    pub parameters: &'a Map<String, Value>,
    /// What the task says otherwise than the agent's file.
    pub overrides: &'a RunOverrides,
    /// The place that the run takes up. What is started holds on to it, so that it is free again
    /// exactly when nothing of the run is left.
    pub place: &'a PlaceTaken,
    /// Becomes true when the run is to end.
    pub stop: &'a watch::Receiver<bool>,
    /// Who hears of the run while it goes on.
    pub progress: &'a dyn RunProgress,
}

/// A run whose owner died.
#[derive(Clone, Copy)]
pub struct LostRun<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// Where in the whole it was run, as a [`CallSite`](super::CallSite) has it.
    pub session: &'a str,
    /// The execution that the run was an attempt of.
    pub execution_id: ExecutionId,
    /// Which attempt it was, from 0.
    pub attempt: u32,
    /// What the program was given.
    pub input: &'a str,
    /// Named values that came with the task.
    pub parameters: &'a Map<String, Value>,
    /// What the task says otherwise than the agent's file.
    pub overrides: &'a RunOverrides,
}

/// What a task says otherwise than the agent's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOverrides {
    /// Where the program runs.
    pub working_directory: Option<String>,
    /// More variables, which may hold secrets.
    pub envs: BTreeMap<String, String>,
}

/// What tells one request from another.
#[derive(Clone, Copy)]
pub struct RunIdentity<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// What the program is given.
    pub input: &'a str,
    /// Named values that come with it.
    pub parameters: &'a Map<String, Value>,
    /// What the task says otherwise than the agent's file.
    pub overrides: &'a RunOverrides,
}

/// Hears of a run while it goes on. What it is told has no secrets in it, and is not fact.
pub trait RunProgress: Send + Sync {
    /// The process was started.
    fn started(&self, process_id: u32);
    /// It wrote something.
    fn output(&self, piece: &str);
    /// What it uses just now.
    fn usage(&self, usage: ResourceUsage);
}

/// What came of a run. The whole tree of processes has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// How it went.
    pub end: RunEnd,
    /// What it came to.
    pub report: RunReport,
    /// What the program says it used of a model.
    pub usage: Usage,
}

/// How a run went.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// The program answered.
    Answered(String),
    /// It failed. The message says what to do.
    Failed(AttemptFailure),
    /// It took longer than it may: in all, to start, or without a word.
    TimedOut(String),
    /// It was told to end.
    Stopped,
}

/// A place among those who may run at once. It is free again when all who hold on to it are gone.
#[derive(Debug, Clone)]
pub struct PlaceTaken {
    /// The file whose lock is the place.
    pub lock: Arc<File>,
}

/// Runs programs.
pub trait Programs: Send + Sync {
    /// Whether the program could be run, as far as can be told without running it. It is asked
    /// before a task is created, so that what is missing is said at once.
    fn ready(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> Result<(), NotReady>;

    /// What runs must not share: those with the same key take up places of the same pool.
    fn pool(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String;

    /// Takes one of so many places of a pool, if one is free in any process of this home.
    fn take_place(&self, pool: &str, places: u32) -> Result<Option<PlaceTaken>, NotReady>;

    /// Where a run would take place, wherever whoever takes it up later happens to be.
    fn folder(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String;

    /// What all requests have in common that are the same: agent, input, parameters, folder and
    /// variables. Nothing of them can be read from it. None where it cannot be told.
    fn request(&self, _request: &RunIdentity<'_>) -> Option<Digest> {
        None
    }

    /// The values without what is known or looks to be secret, also by the names that they have.
    fn masked(&self, agent: &AgentDefinition, overrides: &RunOverrides, values: Value) -> Value;

    /// Runs the program once. Dropping the future ends what was started.
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome>;

    /// What came of a run whose owner died, if the run itself had come to its end by then. What is
    /// left of it is ended first.
    fn found<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>>;

    /// What became of an execution with so many attempts is in the journal; what was kept only to
    /// find it after a crash may go.
    fn forget(&self, _execution_id: ExecutionId, _attempts: u32) {}

    /// The executions of which something is left on the disk that is needed only while they run, or
    /// a folder in which they ran. Blocks.
    fn left_behind(&self) -> BTreeSet<ExecutionId> {
        BTreeSet::new()
    }

    /// Ends what is left of the first attempts of an execution whose owner is gone. What was written
    /// down about them stays, since someone may go on with it. Blocks.
    fn end(&self, _execution_id: ExecutionId, _attempts: u32) {}

    /// Removes what is left of an execution that is over, whose owner is gone, and with it the folder
    /// in which it ran, unless that is kept. Blocks.
    fn sweep(&self, _execution_id: ExecutionId, _keeps_workspace: bool) {}

    /// Removes the folder in which an execution ran, because the task is removed. Blocks.
    fn discard(&self, _execution_id: ExecutionId) -> Result<(), NotReady> {
        Ok(())
    }
}

//! Runs of CLI agents.

use std::collections::{BTreeMap, BTreeSet};

use polity_definition::{AgentDefinition, ScriptSource};
use polity_model::digest::Digest;
use polity_model::failure::AttemptFailure;
use polity_model::ids::ExecutionId;
use polity_model::run::{ResourceUsage, RunReport};
use polity_model::usage::Usage;
use polity_store::Slot;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{BoxFuture, NotReady};

/// A run of a CLI agent.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    /// The agent, which is a command-line program.
    pub agent: &'a AgentDefinition,
    /// The session of its [`CallSite`](super::CallSite).
    pub session: &'a str,
    /// The execution that the run is an attempt of.
    pub execution_id: ExecutionId,
    /// The attempt, from 0.
    pub attempt: u32,
    /// The input.
    pub input: &'a str,
    /// Named values that came with the task.
    pub parameters: &'a Map<String, Value>,
    /// The overrides of the agent's definition.
    pub overrides: &'a RunOverrides,
    /// The pinned script, if the agent runs a script of a workflow.
    pub script: Option<&'a ScriptSource>,
    /// The slot of the run. The started process holds it too, so that it is free exactly when
    /// nothing of the run is left.
    pub slot: &'a Slot,
    /// Becomes true when the run is to end.
    pub stop: &'a watch::Receiver<bool>,
    /// The receiver of progress.
    pub progress: &'a dyn RunProgress,
}

/// A run whose owner died.
#[derive(Clone, Copy)]
pub struct LostRun<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// The session of its [`CallSite`](super::CallSite).
    pub session: &'a str,
    /// The execution that the run was an attempt of.
    pub execution_id: ExecutionId,
    /// The attempt, from 0.
    pub attempt: u32,
    /// The input.
    pub input: &'a str,
    /// Named values that came with the task.
    pub parameters: &'a Map<String, Value>,
    /// The overrides of the agent's definition.
    pub overrides: &'a RunOverrides,
}

/// Overrides of an agent's definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOverrides {
    /// The working directory.
    pub working_directory: Option<String>,
    /// More variables, which may hold secrets.
    pub envs: BTreeMap<String, String>,
}

/// The parts of a request that deduplication compares.
#[derive(Clone, Copy)]
pub struct RunIdentity<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// The input.
    pub input: &'a str,
    /// Named values that come with it.
    pub parameters: &'a Map<String, Value>,
    /// The overrides of the agent's definition.
    pub overrides: &'a RunOverrides,
}

/// Receives the progress of a run, without secrets. Progress is not a fact.
pub trait RunProgress: Send + Sync {
    /// The process was started.
    fn started(&self, process_id: u32);
    /// Output of the process.
    fn output(&self, piece: &str);
    /// The current resource usage.
    fn usage(&self, usage: ResourceUsage);
}

/// The outcome of a run whose process tree has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The end.
    pub end: RunEnd,
    /// The report.
    pub report: RunReport,
    /// The model usage that the agent reports.
    pub usage: Usage,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// The program answered.
    Answered(String),
    /// The program answered, and the answer was cut at its size limit.
    Truncated {
        /// The beginning of the answer.
        answer: String,
        /// The limit.
        message: String,
    },
    /// It failed. The message says what to do.
    Failed(AttemptFailure),
    /// It exceeded its total, startup or idle time limit.
    TimedOut(String),
    /// It was stopped on request.
    Stopped,
}

/// Checks and resolves a run before it starts.
pub trait ProgramPreparation: Send + Sync {
    /// Checks that the program could run, without running it. Called before a task is created.
    fn ready(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> Result<(), NotReady>;

    /// The slot pool of a run. Runs with the same pool share its slots.
    fn slot_pool(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String;

    /// The absolute working directory.
    fn working_directory(&self, agent: &AgentDefinition, overrides: &RunOverrides) -> String;

    /// Replaces secrets in values, known ones and those that look or are named like secrets.
    fn mask_secrets(
        &self,
        agent: &AgentDefinition,
        overrides: &RunOverrides,
        values: Value,
    ) -> Value;
}

/// Recognises duplicate requests.
pub trait RunDedup: Send + Sync {
    /// The deduplication key of a request: a digest of agent, input, parameters, folder and
    /// variables. None if requests are not deduplicated.
    fn dedup_key(&self, _request: &RunIdentity<'_>) -> Option<Digest> {
        None
    }
}

/// Runs programs.
pub trait ProgramRunner: Send + Sync {
    /// Runs the program once. Dropping the future kills the process tree.
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome>;

    /// Returns the outcome of a run whose owner died, if the run itself had ended. Kills what is
    /// left of it.
    fn recover<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>>;

    /// Stops all runs, because this process is about to exit, and waits until their process trees
    /// have ended. The futures of stopped and later runs never complete, so that the journal shows
    /// those runs as interrupted.
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Removes the recovery files of an execution whose outcome is in the journal.
    fn forget(&self, _execution_id: ExecutionId, _attempts: u32) {}
}

/// Cleans up after processes that died, and after removed tasks. Every method blocks.
pub trait RunCleanup: Send + Sync {
    /// The executions that left files or a workspace on the disk.
    fn leftover_executions(&self) -> BTreeSet<ExecutionId> {
        BTreeSet::new()
    }

    /// Kills what is left of the first attempts of an execution whose owner is dead. Its files stay:
    /// another process may resume it.
    fn kill_leftovers(&self, _execution_id: ExecutionId, _attempts: u32) {}

    /// Removes the files of an execution that is over and whose owner is dead, and its workspace
    /// unless that is kept.
    fn remove_leftovers(&self, _execution_id: ExecutionId, _keeps_workspace: bool) {}

    /// Ends what is left of services of dead processes: MCP servers and notification commands.
    fn end_leftover_services(&self) {}

    /// Removes the workspace of an execution whose task is removed.
    fn remove_workspace(&self, _execution_id: ExecutionId) -> Result<(), NotReady> {
        Ok(())
    }
}

/// The driver of CLI agents.
pub trait ProgramDriver: ProgramPreparation + RunDedup + ProgramRunner + RunCleanup {}

impl<D: ProgramPreparation + RunDedup + ProgramRunner + RunCleanup + ?Sized> ProgramDriver for D {}

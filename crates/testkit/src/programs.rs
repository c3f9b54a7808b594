//! A fake driver for CLI agents.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, ProgramPreparation, ProgramRunner, RunCleanup, RunDedup, RunEnd,
    RunIdentity, RunOutcome, RunOverrides, RunRequest,
};
use polity_model::digest::Digest;
use polity_model::ids::ExecutionId;
use polity_model::run::{ProcessExit, RunReport};
use polity_model::usage::Usage;
use serde_json::{Value, json};

/// The text that counts as a secret in inputs.
pub const SECRET: &str = "s3cret";

/// A driver whose runs take a while and end as scripted, in order. Without a script, a run answers
/// with its input.
#[derive(Default)]
pub struct FakeCliAgents {
    takes: Duration,
    state: Mutex<FakeCliState>,
}

#[derive(Default)]
struct FakeCliState {
    ends: VecDeque<RunEnd>,
    found: Option<RunOutcome>,
    /// The input of each run.
    inputs: Vec<String>,
    at_once: usize,
    max_concurrent: usize,
    forgotten: Vec<(ExecutionId, u32)>,
    left_behind: BTreeSet<ExecutionId>,
    swept: Vec<(ExecutionId, bool)>,
    ended: Vec<(ExecutionId, u32)>,
    usage: Usage,
}

impl FakeCliAgents {
    /// A driver whose runs take this long and end like this.
    pub fn new(takes: Duration, ends: impl IntoIterator<Item = RunEnd>) -> Self {
        let state = FakeCliState { ends: ends.into_iter().collect(), ..FakeCliState::default() };
        Self { takes, state: Mutex::new(state) }
    }

    /// Sets the usage that each run reports.
    pub fn using(&self, usage: Usage) {
        self.state.lock().unwrap().usage = usage;
    }

    /// Sets the outcome recovered for a run whose owner died.
    pub fn find(&self, end: RunEnd) {
        self.state.lock().unwrap().found = Some(outcome(end));
    }

    /// The inputs of the runs, in order.
    pub fn inputs(&self) -> Vec<String> {
        self.state.lock().unwrap().inputs.clone()
    }

    /// The executions whose files were released, with their attempts.
    pub fn forgotten(&self) -> Vec<(ExecutionId, u32)> {
        self.state.lock().unwrap().forgotten.clone()
    }

    /// Pretends that files of these executions are left.
    pub fn leave_behind(&self, executions: impl IntoIterator<Item = ExecutionId>) {
        self.state.lock().unwrap().left_behind.extend(executions);
    }

    /// The executions whose files were removed, and true if their workspaces were kept.
    pub fn swept(&self) -> Vec<(ExecutionId, bool)> {
        self.state.lock().unwrap().swept.clone()
    }

    /// The executions whose earlier attempts were ended, with their number.
    pub fn ended(&self) -> Vec<(ExecutionId, u32)> {
        self.state.lock().unwrap().ended.clone()
    }

    /// The largest number of concurrent runs.
    pub fn max_concurrent(&self) -> usize {
        self.state.lock().unwrap().max_concurrent
    }
}

fn outcome(end: RunEnd) -> RunOutcome {
    let (process_id, exit) = (Some(7), Some(ProcessExit::Code(0)));
    let report = RunReport { process_id, exit, ..RunReport::default() };
    RunOutcome { end, report, usage: Usage::default() }
}

impl ProgramPreparation for FakeCliAgents {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Ok(())
    }

    fn slot_pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        agent.name.to_string()
    }

    fn working_directory(&self, _: &AgentDefinition, overrides: &RunOverrides) -> String {
        overrides.working_directory.clone().unwrap_or_else(|| "/work".to_owned())
    }

    fn mask_secrets(&self, _: &AgentDefinition, _: &RunOverrides, values: Value) -> Value {
        serde_json::from_str(&values.to_string().replace(SECRET, "***")).unwrap()
    }
}

impl RunDedup for FakeCliAgents {
    fn dedup_key(&self, identity: &RunIdentity<'_>) -> Option<Digest> {
        let RunIdentity { agent, input, parameters, overrides } = identity;
        let (folder, envs) = (&overrides.working_directory, &overrides.envs);
        let all = json!([agent.name, input, parameters, folder, envs]);
        Some(Digest::of(all.to_string().as_bytes()))
    }
}

impl ProgramRunner for FakeCliAgents {
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let end = {
                let mut state = self.state.lock().unwrap();
                state.inputs.push(request.input.to_owned());
                state.at_once += 1;
                state.max_concurrent = state.max_concurrent.max(state.at_once);
                state.ends.pop_front()
            };
            request.progress.started(7);
            let mut stop = request.stop.clone();
            let was_stopped = tokio::select! {
                () = tokio::time::sleep(self.takes) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            self.state.lock().unwrap().at_once -= 1;
            if was_stopped {
                return outcome(RunEnd::Stopped);
            }
            let end = end.unwrap_or_else(|| RunEnd::Answered(request.input.to_owned()));
            let usage = self.state.lock().unwrap().usage;
            RunOutcome { usage, ..outcome(end) }
        })
    }

    fn recover<'a>(&'a self, _: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async { self.state.lock().unwrap().found.take() })
    }

    fn forget(&self, execution_id: ExecutionId, attempts: u32) {
        self.state.lock().unwrap().forgotten.push((execution_id, attempts));
    }
}

impl RunCleanup for FakeCliAgents {
    fn leftover_executions(&self) -> BTreeSet<ExecutionId> {
        self.state.lock().unwrap().left_behind.clone()
    }

    fn kill_leftovers(&self, execution_id: ExecutionId, attempts: u32) {
        self.state.lock().unwrap().ended.push((execution_id, attempts));
    }

    fn remove_leftovers(&self, execution_id: ExecutionId, keeps_workspace: bool) {
        self.state.lock().unwrap().swept.push((execution_id, keeps_workspace));
    }
}

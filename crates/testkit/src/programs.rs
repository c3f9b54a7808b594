//! Programs that do as they are told.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, PlaceTaken, Programs, RunEnd, RunIdentity, RunOutcome,
    RunOverrides, RunRequest,
};
use polity_model::digest::Digest;
use polity_model::ids::ExecutionId;
use polity_model::run::{ProcessExit, RunReport};
use polity_model::usage::Usage;
use serde_json::{Value, json};

/// What stands for a secret in texts that these programs are given.
pub const SECRET: &str = "s3cret";

/// Runs programs that take a while and then end as they are told, the first first. Once nothing is
/// left to be told they answer with their input.
#[derive(Default)]
pub struct ActingPrograms {
    takes: Duration,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    ends: VecDeque<RunEnd>,
    found: Option<RunOutcome>,
    /// What each run was given.
    inputs: Vec<String>,
    at_once: usize,
    at_once_most: usize,
    places: HashMap<String, Vec<Weak<File>>>,
    forgotten: Vec<(ExecutionId, u32)>,
    left_behind: BTreeSet<ExecutionId>,
    swept: Vec<(ExecutionId, bool)>,
    ended: Vec<(ExecutionId, u32)>,
    usage: Usage,
}

impl ActingPrograms {
    /// Programs that take so long, and end so.
    pub fn new(takes: Duration, ends: impl IntoIterator<Item = RunEnd>) -> Self {
        let told = Told { ends: ends.into_iter().collect(), ..Told::default() };
        Self { takes, told: Mutex::new(told) }
    }

    /// What each run says it used of a model.
    pub fn using(&self, usage: Usage) {
        self.told.lock().unwrap().usage = usage;
    }

    /// What is found of a run whose owner is gone.
    pub fn find(&self, end: RunEnd) {
        self.told.lock().unwrap().found = Some(outcome(end));
    }

    /// What each run was given, in order.
    pub fn inputs(&self) -> Vec<String> {
        self.told.lock().unwrap().inputs.clone()
    }

    /// The executions whose files are needed no more, with how many attempts they had.
    pub fn forgotten(&self) -> Vec<(ExecutionId, u32)> {
        self.told.lock().unwrap().forgotten.clone()
    }

    /// Something is left of these executions.
    pub fn leave_behind(&self, executions: impl IntoIterator<Item = ExecutionId>) {
        self.told.lock().unwrap().left_behind.extend(executions);
    }

    /// The executions of which what was left was removed, and whether their workspaces are kept.
    pub fn swept(&self) -> Vec<(ExecutionId, bool)> {
        self.told.lock().unwrap().swept.clone()
    }

    /// The executions whose first attempts were ended, and how many.
    pub fn ended(&self) -> Vec<(ExecutionId, u32)> {
        self.told.lock().unwrap().ended.clone()
    }

    /// The most that ever ran at once.
    pub fn at_once_most(&self) -> usize {
        self.told.lock().unwrap().at_once_most
    }
}

fn outcome(end: RunEnd) -> RunOutcome {
    let (process_id, exit) = (Some(7), Some(ProcessExit::Code(0)));
    let report = RunReport { process_id, exit, ..RunReport::default() };
    RunOutcome { end, report, usage: Usage::default() }
}

impl Programs for ActingPrograms {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Ok(())
    }

    fn pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        agent.name.to_string()
    }

    fn take_place(&self, pool: &str, places: u32) -> Result<Option<PlaceTaken>, NotReady> {
        let mut told = self.told.lock().unwrap();
        let taken = told.places.entry(pool.to_owned()).or_default();
        taken.retain(|place| place.strong_count() > 0);
        if taken.len() >= places as usize {
            return Ok(None);
        }
        let lock = Arc::new(File::open("/dev/null").unwrap());
        taken.push(Arc::downgrade(&lock));
        Ok(Some(PlaceTaken { lock }))
    }

    fn folder(&self, _: &AgentDefinition, overrides: &RunOverrides) -> String {
        overrides.working_directory.clone().unwrap_or_else(|| "/work".to_owned())
    }

    fn request(&self, identity: &RunIdentity<'_>) -> Option<Digest> {
        let RunIdentity { agent, input, parameters, overrides } = identity;
        let (folder, envs) = (&overrides.working_directory, &overrides.envs);
        let all = json!([agent.name, input, parameters, folder, envs]);
        Some(Digest::of(all.to_string().as_bytes()))
    }

    fn masked(&self, _: &AgentDefinition, _: &RunOverrides, values: Value) -> Value {
        serde_json::from_str(&values.to_string().replace(SECRET, "***")).unwrap()
    }

    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let end = {
                let mut told = self.told.lock().unwrap();
                told.inputs.push(request.input.to_owned());
                told.at_once += 1;
                told.at_once_most = told.at_once_most.max(told.at_once);
                told.ends.pop_front()
            };
            request.progress.started(7);
            let mut stop = request.stop.clone();
            let was_stopped = tokio::select! {
                () = tokio::time::sleep(self.takes) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            self.told.lock().unwrap().at_once -= 1;
            if was_stopped {
                return outcome(RunEnd::Stopped);
            }
            let end = end.unwrap_or_else(|| RunEnd::Answered(request.input.to_owned()));
            let usage = self.told.lock().unwrap().usage;
            RunOutcome { usage, ..outcome(end) }
        })
    }

    fn found<'a>(&'a self, _: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async { self.told.lock().unwrap().found.take() })
    }

    fn left_behind(&self) -> BTreeSet<ExecutionId> {
        self.told.lock().unwrap().left_behind.clone()
    }

    fn end(&self, execution_id: ExecutionId, attempts: u32) {
        self.told.lock().unwrap().ended.push((execution_id, attempts));
    }

    fn sweep(&self, execution_id: ExecutionId, keeps_workspace: bool) {
        self.told.lock().unwrap().swept.push((execution_id, keeps_workspace));
    }

    fn forget(&self, execution_id: ExecutionId, attempts: u32) {
        self.told.lock().unwrap().forgotten.push((execution_id, attempts));
    }
}

//! A fixture for runs in a temporary folder.

use std::fmt::Write as _;
use std::fs;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use polity_simulator::error::SimError;
use polity_simulator::folder::version::RunVersion;
use polity_simulator::folder::{RunFolder, RunStatus, SimulationRecord};
use polity_simulator::lifecycle::{LifecycleAction, LifecycleOperation};
use polity_simulator::run::{
    ForkBase, RunControl, RunSetup, RunSummary, SimulationProgress, SimulationRun,
};
use polity_simulator::scenario::{EventFile, Scenario, ScenarioFile};
use polity_simulator::simulation::Simulation;
use polity_statechart::Chart;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A temporary folder with a chart and a scenario.
pub(crate) struct SimulationFixture {
    folder: TempDir,
    chart: Arc<Chart>,
    pub(crate) file: ScenarioFile,
}

fn example(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/11-society");
    fs::read_to_string(root.join(path)).unwrap()
}

impl SimulationFixture {
    /// Creates the fixture of the society example.
    pub(crate) fn society() -> Self {
        Self::new(&example("charts/social.yaml"), &example("scenarios/society.yaml"))
    }

    pub(crate) fn new(chart: &str, scenario: &str) -> Self {
        let chart = Arc::new(Chart::from_text(chart).unwrap());
        let file = serde_saphyr::from_str(scenario).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), chart, file }
    }

    /// Schedules requests by turn.
    pub(crate) fn with_events(mut self, events: &[(u64, LifecycleAction)]) -> Self {
        let event = |(turn, request): &(u64, LifecycleAction)| EventFile {
            turn: NonZeroU64::new(*turn),
            operation: Some(request.operation),
            target_agent_name: Some(request.target_agent_name.clone()),
            initiating_agent: None,
            initial_state: request.initial_state.clone(),
            auto_resume_turns: request.auto_resume_turns,
        };
        self.file.lifecycle = Some(events.iter().map(event).collect());
        self
    }

    pub(crate) fn scenario(&self) -> Arc<Scenario> {
        Arc::new(Scenario::new(&self.file, Arc::clone(&self.chart)).unwrap())
    }

    pub(crate) fn path(&self, run: &str) -> PathBuf {
        self.folder.path().join(run)
    }

    pub(crate) fn open(&self, run: &str) -> RunFolder {
        RunFolder::open(&self.path(run)).unwrap()
    }

    fn record(&self, run: &str) -> SimulationRecord {
        SimulationRecord {
            run_id: run.to_owned(),
            scenario: self.scenario().name.clone(),
            created_at: Timestamp::UNIX_EPOCH,
            forked_from: None,
            strict: false,
            turns: self.scenario().turns,
            status: RunStatus::Running,
            summary: None,
            version: Some(RunVersion::current()),
            request: None,
        }
    }

    fn text(&self) -> String {
        serde_json::to_string(&self.file).unwrap()
    }

    fn beginning<'a>(&self, text: &'a str, threads: usize) -> RunSetup<'a> {
        RunSetup {
            scenario: self.scenario(),
            scenario_text: text,
            chart_text: "{}",
            threads: NonZeroUsize::new(threads),
        }
    }

    pub(crate) fn begin(&self, run: &str, threads: usize) -> SimulationRun {
        let text = self.text();
        SimulationRun::start(&self.path(run), self.record(run), &self.beginning(&text, threads))
            .unwrap()
    }

    pub(crate) fn begin_strict(&self, run: &str) -> SimulationRun {
        let record = SimulationRecord { strict: true, ..self.record(run) };
        SimulationRun::start(&self.path(run), record, &self.beginning(&self.text(), 1)).unwrap()
    }

    /// Runs to the last turn.
    pub(crate) fn run(&self, run: &str, threads: usize) -> RunSummary {
        self.begin(run, threads).run(to_end).unwrap()
    }

    /// Runs to the end of a turn.
    pub(crate) fn run_until(&self, run: &str, turn: u64) -> RunSummary {
        self.begin(run, 1).run(stop_after(turn)).unwrap()
    }

    pub(crate) fn resume(&self, run: &str, from: Option<u64>) -> RunSummary {
        self.reopen(run, from, None).unwrap().run(to_end).unwrap()
    }

    /// Opens a run to resume it from a turn, with another number of turns.
    pub(crate) fn reopen(
        &self,
        run: &str,
        from: Option<u64>,
        turns: Option<u64>,
    ) -> Result<SimulationRun, SimError> {
        SimulationRun::resume(self.open(run), from, turns, &self.scenario(), None)
    }

    /// Restores the population after a turn.
    pub(crate) fn restore(&self, run: &str, turn: Option<u64>) -> Result<Simulation, SimError> {
        Simulation::restore(&self.open(run), turn, &self.scenario(), None)
    }

    pub(crate) fn fork(&self, run: &str, at: u64, new: &str) -> RunSummary {
        self.fork_with(run, at, new, &[])
    }

    /// Runs a fork with these world values reset to those of the scenario.
    pub(crate) fn fork_with(&self, run: &str, at: u64, new: &str, values: &[&str]) -> RunSummary {
        self.try_fork(run, at, new, values).unwrap().run(to_end).unwrap()
    }

    pub(crate) fn try_fork(
        &self,
        run: &str,
        at: u64,
        new: &str,
        values: &[&str],
    ) -> Result<SimulationRun, SimError> {
        let other = self.open(run);
        let (_, text) = other.scenario().unwrap();
        let file = serde_json::from_str(&text).unwrap();
        let scenario = Arc::new(Scenario::new(&file, Arc::clone(&self.chart)).unwrap());
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        let past = ForkBase { folder: &other, scenario: &scenario, turn: at, values: &values };
        let text = self.text();
        SimulationRun::fork(&self.path(new), self.record(new), &self.beginning(&text, 1), &past)
    }

    /// Submits a request from outside.
    pub(crate) fn ask(&self, run: &str, id: &str, request: LifecycleAction) {
        self.open(run).submit_request(id, request).unwrap();
    }

    /// Returns the turns that have a checkpoint.
    pub(crate) fn checkpoints(&self, run: &str) -> Vec<u64> {
        self.open(run).checkpoints().unwrap()
    }

    pub(crate) fn checkpoint_path(&self, run: &str, turn: u64) -> PathBuf {
        self.path(run).join(format!("checkpoints/turn_{turn:06}.json"))
    }

    /// Replaces a checkpoint, with a valid checksum.
    pub(crate) fn replace_checkpoint(&self, run: &str, turn: u64, mut checkpoint: Value) {
        checkpoint.as_object_mut().unwrap().remove("checksum").unwrap();
        let text = checkpoint.to_string();
        let content = format!("{},\n", text.strip_suffix('}').unwrap());
        let mut text = content.clone();
        text.push_str("\"checksum\": \"");
        for byte in Sha256::digest(&content) {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("\"\n}\n");
        fs::write(self.checkpoint_path(run, turn), text).unwrap();
    }

    pub(crate) fn checkpoint(&self, run: &str, turn: u64) -> Value {
        let text = fs::read_to_string(self.checkpoint_path(run, turn)).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

pub(crate) fn add(name: &str) -> LifecycleAction {
    let initial_state = Some(Map::new());
    LifecycleAction { initial_state, ..LifecycleAction::new(LifecycleOperation::AddAgent, name) }
}

pub(crate) fn remove(name: &str) -> LifecycleAction {
    LifecycleAction::new(LifecycleOperation::RemoveAgent, name)
}

pub(crate) fn pause(name: &str) -> LifecycleAction {
    LifecycleAction::new(LifecycleOperation::PauseAgent, name)
}

pub(crate) fn resume(name: &str) -> LifecycleAction {
    LifecycleAction::new(LifecycleOperation::ResumeAgent, name)
}

pub(crate) fn to_end(_: SimulationProgress<'_>) -> RunControl {
    RunControl::Continue
}

pub(crate) fn stop_after(turn: u64) -> impl FnMut(SimulationProgress<'_>) -> RunControl {
    move |progress| if progress.turn >= turn { RunControl::Stop } else { RunControl::Continue }
}

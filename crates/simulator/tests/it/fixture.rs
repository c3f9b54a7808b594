//! A fixture for runs in a temporary folder.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use polity_simulator::error::SimError;
use polity_simulator::folder::{RunFolder, RunStatus, SimulationRecord};
use polity_simulator::run::{
    ForkBase, RunControl, RunSetup, RunSummary, SimulationProgress, SimulationRun,
};
use polity_simulator::scenario::{Scenario, ScenarioFile};
use polity_statechart::Chart;
use serde_json::Value;
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
        self.begin(run, threads).run(|_| RunControl::Continue).unwrap()
    }

    /// Runs to the end of a turn.
    pub(crate) fn run_until(&self, run: &str, turn: u64) -> RunSummary {
        self.begin(run, 1).run(stop_after(turn)).unwrap()
    }

    pub(crate) fn resume(&self, run: &str, from: Option<u64>) -> RunSummary {
        let resumed = SimulationRun::resume(self.open(run), from, None, &self.scenario(), None);
        resumed.unwrap().run(|_| RunControl::Continue).unwrap()
    }

    pub(crate) fn fork(&self, run: &str, at: u64, new: &str) -> RunSummary {
        self.try_fork(run, at, new).unwrap().run(|_| RunControl::Continue).unwrap()
    }

    /// Runs a fork with these world values reset to those of the scenario.
    pub(crate) fn fork_with(&self, run: &str, at: u64, new: &str, values: &[&str]) -> RunSummary {
        self.forked(run, at, new, values).unwrap().run(|_| RunControl::Continue).unwrap()
    }

    pub(crate) fn try_fork(
        &self,
        run: &str,
        at: u64,
        new: &str,
    ) -> Result<SimulationRun, SimError> {
        self.forked(run, at, new, &[])
    }

    fn forked(
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

    pub(crate) fn checkpoint_path(&self, run: &str, turn: u64) -> PathBuf {
        self.path(run).join(format!("checkpoints/turn_{turn:06}.json"))
    }

    pub(crate) fn checkpoint(&self, run: &str, turn: u64) -> Value {
        let text = fs::read_to_string(self.checkpoint_path(run, turn)).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

pub(crate) fn stop_after(turn: u64) -> impl FnMut(SimulationProgress<'_>) -> RunControl {
    move |progress| if progress.turn >= turn { RunControl::Stop } else { RunControl::Continue }
}

//! New runs of simulations, ready to start, and their performance.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_model::ids::RunId;
use polity_simulator::error::SimError;
use polity_simulator::folder::version::RunVersion;
use polity_simulator::folder::{ForkOrigin, RunStatus, SimulationRecord};
use polity_simulator::run::{
    ForkBase, RunControl, RunSetup, RunSummary, SimulationProgress, SimulationRun,
};
use polity_simulator::scenario::Scenario;

use super::LoadedScenario;
use super::changes::scenario_text;
use crate::report::ErrorReport;

/// The options of a new run.
#[derive(Debug, Clone, Default)]
pub struct NewRunOptions {
    /// The id; random by default.
    pub id: Option<RunId>,
    /// True if one invalid request rejects all requests of its turn.
    pub strict: bool,
    /// The number of threads; by default one per core.
    pub threads: Option<NonZeroUsize>,
    /// The origin of a fork.
    pub forked_from: Option<ForkOrigin>,
    /// The digest of the request that started the run, if it may be repeated.
    pub request: Option<String>,
}

/// A new run of a scenario, ready to start.
#[derive(Debug)]
pub struct PreparedSimulation {
    record: SimulationRecord,
    scenario: Arc<Scenario>,
    scenario_text: String,
    chart_text: String,
    threads: Option<NonZeroUsize>,
}

impl PreparedSimulation {
    /// Prepares a run of a scenario.
    pub fn new(read: LoadedScenario, options: NewRunOptions) -> Result<Self, ErrorReport> {
        let NewRunOptions { id, strict, threads, forked_from, request } = options;
        let chart_text = serde_json::to_string_pretty(&read.chart.document)
            .map_err(|error| ErrorReport::usage(format!("the chart cannot be written: {error}")))?;
        let scenario_text = scenario_text(&read.file)?;
        let id = id.unwrap_or_else(|| RunId::from_random_bytes(SystemEntropy.seed()));
        let record = SimulationRecord {
            run_id: id.to_string(),
            scenario: read.scenario.name.clone(),
            created_at: SystemClock.now(),
            forked_from,
            strict,
            turns: read.scenario.turns,
            status: RunStatus::Running,
            summary: None,
            version: Some(RunVersion::current()),
            request,
        };
        let scenario = Arc::new(read.scenario);
        Ok(Self { record, scenario, scenario_text, chart_text, threads })
    }

    /// The id of the run.
    pub fn id(&self) -> &str {
        &self.record.run_id
    }

    /// Creates the folder of the run.
    pub fn start(self, path: &Path) -> Result<SimulationRun, SimError> {
        SimulationRun::start(path, self.record.clone(), &self.setup())
    }

    /// Creates the folder of a run that continues another one.
    pub fn fork(self, path: &Path, base: &ForkBase<'_>) -> Result<SimulationRun, SimError> {
        SimulationRun::fork(path, self.record.clone(), &self.setup(), base)
    }

    fn setup(&self) -> RunSetup<'_> {
        RunSetup {
            scenario: Arc::clone(&self.scenario),
            scenario_text: &self.scenario_text,
            chart_text: &self.chart_text,
            threads: self.threads,
        }
    }
}

/// Runs to the last turn, or to the end of the turn after which `watch` returns true.
pub fn perform_run(
    run: &mut SimulationRun,
    mut watch: impl FnMut(SimulationProgress<'_>) -> bool,
) -> Result<RunSummary, SimError> {
    let mut checkpoint_timer = CheckpointTimer::new(run);
    run.run(|progress| {
        if watch(progress) {
            RunControl::Stop
        } else if checkpoint_timer.is_due(progress.agents) {
            RunControl::Checkpoint
        } else {
            RunControl::Continue
        }
    })
}

/// Requests checkpoints by elapsed time, so that the newest checkpoint of a slow run is never old.
struct CheckpointTimer {
    last: Instant,
    /// False if the scenario sets `checkpoint_every`.
    is_automatic: bool,
}

impl CheckpointTimer {
    /// Chosen so that checkpoints take a small part of the time, also for large populations.
    const AFTER: Duration = Duration::from_secs(2);
    const AFTER_FOR_EACH_AGENT: Duration = Duration::from_micros(30);

    fn new(run: &SimulationRun) -> Self {
        Self { last: Instant::now(), is_automatic: run.scenario().checkpoint_every.is_none() }
    }

    fn is_due(&mut self, agents: u64) -> bool {
        let agents = u32::try_from(agents).unwrap_or(u32::MAX);
        let after = Self::AFTER + Self::AFTER_FOR_EACH_AGENT * agents;
        let is_so = self.is_automatic && self.last.elapsed() > after;
        if is_so {
            self.last = Instant::now();
        }
        is_so
    }
}

//! A run: a simulation with its folder.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::checkpoint::retention::dispensable;
use crate::checkpoint::writer::CheckpointWriter;
use crate::checkpoint::{self, StateDigest, hexadecimal};
use crate::error::SimError;
use crate::folder::draft::RunDraft;
use crate::folder::durable_files as files;
use crate::folder::requests::{self, OutsideRequest, RequestAnswer, RequestLog};
use crate::folder::version::RunVersion;
use crate::folder::{ForkOrigin, RunFolder, RunLock, RunStatus, SimulationRecord};
use crate::lifecycle::{LifecycleEvent, RequestRuling, RequestVerdict};
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::warning::RunWarning;

/// A simulation that runs in its folder.
#[derive(Debug)]
pub struct SimulationRun {
    folder: RunFolder,
    _owner: RunLock,
    record: SimulationRecord,
    simulation: Simulation,
    requests: RequestLog,
    writer: CheckpointWriter,
    /// The turn of the newest checkpoint, and its digest if known.
    written: Option<(u64, Option<StateDigest>)>,
    /// The turns with checkpoints.
    kept: BTreeSet<u64>,
    /// The turns with superseded checkpoints.
    superseded: BTreeSet<u64>,
}

/// The setup of a new run.
#[derive(Debug, Clone)]
pub struct RunSetup<'a> {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The text of the scenario, for the folder.
    pub scenario_text: &'a str,
    /// The text of the chart, for the folder.
    pub chart_text: &'a str,
    /// The number of threads; by default one per core.
    pub threads: Option<NonZeroUsize>,
}

/// The end of a turn of another run, from which a fork starts.
#[derive(Debug, Clone, Copy)]
pub struct ForkBase<'a> {
    /// The other run.
    pub folder: &'a RunFolder,
    /// Its scenario.
    pub scenario: &'a Arc<Scenario>,
    /// The turn.
    pub turn: u64,
    /// The names of world values to reset to those of the fork's scenario.
    pub values: &'a [String],
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The run's id.
    pub run_id: String,
    /// The name of its scenario.
    pub scenario: String,
    /// The seed of all random draws.
    pub seed: u64,
    /// The number of turns so far.
    pub turns: u64,
    /// The number of agents.
    pub agents: u64,
    /// The names of paused agents.
    pub paused: Vec<String>,
    /// The number of agents in each state.
    pub states: StateCounts,
    /// The warnings.
    pub warnings: Vec<RunWarning>,
    /// The SHA-256 digest of the state.
    pub digest: String,
    /// The number of visits of each state.
    #[serde(default)]
    pub visits: StateCounts,
    /// The world values.
    #[serde(default)]
    pub world: Map<String, Value>,
}

/// A number per state, in chart order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateCounts(pub Vec<(String, u64)>);

impl StateCounts {
    pub(crate) fn new(states: Vec<(&str, u64)>) -> Self {
        Self(states.into_iter().map(|(name, number)| (name.to_owned(), number)).collect())
    }

    /// Returns the number of a state.
    pub fn get(&self, state: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == state).map(|(_, number)| *number)
    }
}

impl Serialize for StateCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}

impl<'de> Deserialize<'de> for StateCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StateCountsVisitor)
    }
}

struct StateCountsVisitor;

impl<'de> Visitor<'de> for StateCountsVisitor {
    type Value = StateCounts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers by state")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<StateCounts, A::Error> {
        let mut states = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            states.push(entry);
        }
        Ok(StateCounts(states))
    }
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulationProgress<'a> {
    /// The number of turns so far.
    pub turn: u64,
    /// The total number of turns.
    pub turns: u64,
    /// The number of agents.
    pub agents: u64,
    /// The changes of the population in the last turn, if the run
    /// [records](SimulationRun::record_events) them.
    pub events: &'a [LifecycleEvent],
}

/// The decision after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunControl {
    /// Continue.
    Continue,
    /// Write a checkpoint and continue.
    Checkpoint,
    /// Stop. The run can be resumed.
    Stop,
}

impl SimulationRun {
    /// Starts a new run in a folder that does not exist or holds no run.
    pub fn start(
        path: &Path,
        record: SimulationRecord,
        setup: &RunSetup<'_>,
    ) -> Result<Self, SimError> {
        let simulation = Simulation::new(Arc::clone(&setup.scenario), setup.threads)?;
        Self::create(path, record, setup, simulation, None)
    }

    /// Starts a new run with the agents of another one at the end of a turn. Requests from outside
    /// that the other run handled later are handled in the same turns.
    pub fn fork(
        path: &Path,
        mut record: SimulationRecord,
        setup: &RunSetup<'_>,
        other: &ForkBase<'_>,
    ) -> Result<Self, SimError> {
        let RunSetup { scenario, threads, .. } = setup;
        let ForkBase { folder: other, scenario: before, turn, values } = *other;
        record.forked_from = Some(ForkOrigin { run_id: other.record()?.run_id, turn });
        let (found, ..) = other.checkpoint(Some(turn))?;
        if record.turns < turn {
            return Err(SimError::TooFewTurns { turns: record.turns, turn });
        }
        let (was, is) = (before.behaviour_names(), scenario.behaviour_names());
        if was != is {
            let [was, is] = [was, is].map(|names| names.join(", "));
            return Err(SimError::Scenario(format!(
                "the behaviours of a fork have the names that they had: {was}, and not: {is}"
            )));
        }
        let mut simulation = if found == turn {
            Simulation::restore_in(other, turn, before, scenario, *threads)?
        } else {
            // Replayed turns use the other run's scenario.
            let past = Simulation::restore(other, Some(turn), before, *threads)?;
            past.in_scenario(scenario, *threads)?
        };
        simulation.change_world(values);
        Self::create(path, record, setup, simulation, Some(other))
    }

    fn create(
        path: &Path,
        record: SimulationRecord,
        setup: &RunSetup<'_>,
        simulation: Simulation,
        other: Option<&RunFolder>,
    ) -> Result<Self, SimError> {
        check_turns(&record, &setup.scenario)?;
        let asked = match other {
            Some(other) => requests::requests_after(&other.requests(), simulation.turn())?,
            None => Vec::new(),
        };
        let draft = RunDraft::create(path)?;
        let filled = draft.fill(setup.scenario_text, setup.chart_text, &asked).and_then(|()| {
            let mut writer = CheckpointWriter::default();
            checkpoint::write(draft.folder(), &simulation, &mut writer, Vec::new())?;
            writer.flush()
        });
        let (folder, owner) = match filled {
            Ok(()) => draft.publish(&record)?,
            Err(error) => return Err(draft.discard(error)),
        };
        let requests = RequestLog::open(&folder.requests(), simulation.turn())?;
        Self::open(folder, owner, record, simulation, requests)
    }

    /// Resumes a run from the end of a turn, by default from its newest checkpoint. Later turns are
    /// computed again; their checkpoints stay until new ones replace them.
    pub fn resume(
        folder: RunFolder,
        turn: Option<u64>,
        turns: Option<u64>,
        scenario: &Arc<Scenario>,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, SimError> {
        let owner = folder.acquire_lock()?;
        folder.check_version()?;
        let mut record = folder.record()?;
        record.version = Some(RunVersion::current());
        record.turns = turns.unwrap_or(record.turns);
        check_turns(&record, scenario)?;
        let newest = folder.checkpoints()?.last().copied();
        if turn.is_some_and(|turn| newest.is_none_or(|newest| newest < turn)) {
            folder.restore_superseded()?;
        }
        // A run that crashed before its first checkpoint starts from the beginning.
        let is_new =
            turn.is_none() && record.forked_from.is_none() && folder.checkpoints()?.is_empty();
        let simulation = if is_new {
            Simulation::new(Arc::clone(scenario), threads)?
        } else {
            Simulation::restore(&folder, turn, scenario, threads)?
        };
        if record.turns < simulation.turn() {
            let (turns, turn) = (record.turns, simulation.turn());
            return Err(SimError::TooFewTurns { turns, turn });
        }
        let requests = RequestLog::open(&folder.requests(), simulation.turn())?;
        folder.set_aside_after(simulation.turn())?;
        record.status = RunStatus::Running;
        folder.write_record(&record)?;
        let mut run = Self::open(folder, owner, record, simulation, requests)?;
        run.remove_dispensable()?;
        run.write_checkpoint()?;
        Ok(run)
    }

    /// Combines a simulation with its locked folder.
    fn open(
        folder: RunFolder,
        owner: RunLock,
        record: SimulationRecord,
        simulation: Simulation,
        requests: RequestLog,
    ) -> Result<Self, SimError> {
        let kept: BTreeSet<u64> = folder.checkpoints()?.into_iter().collect();
        let superseded = folder.superseded_turns()?.into_iter().collect();
        let written = kept.contains(&simulation.turn()).then(|| (simulation.turn(), None));
        Ok(Self {
            folder,
            _owner: owner,
            record,
            simulation,
            requests,
            writer: CheckpointWriter::default(),
            written,
            kept,
            superseded,
        })
    }

    /// Removes checkpoints that retention does not keep.
    fn remove_dispensable(&mut self) -> Result<(), SimError> {
        let gone = self.take_dispensable();
        let paths = gone.into_iter().flat_map(|turn| self.folder.checkpoint_paths(turn));
        files::remove_all(&paths.collect::<Vec<_>>())
    }

    /// Takes the turns whose checkpoints retention does not keep.
    fn take_dispensable(&mut self) -> Vec<u64> {
        let turns: Vec<u64> = self.kept.iter().copied().collect();
        let gone = dispensable(&turns, self.simulation.scenario().keep_checkpoints);
        self.kept.retain(|turn| !gone.contains(turn));
        gone
    }

    /// Returns the run's folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        self.simulation.scenario()
    }

    /// Returns the record.
    pub fn record(&self) -> &SimulationRecord {
        &self.record
    }

    /// Records changes of the population, for [`SimulationProgress::events`].
    pub fn record_events(&mut self) {
        self.simulation.record_events();
    }

    /// Runs to the last turn, or until `watch` stops it, and returns the summary.
    pub fn run(
        &mut self,
        mut watch: impl FnMut(SimulationProgress<'_>) -> RunControl,
    ) -> Result<RunSummary, SimError> {
        if self.record.status != RunStatus::Running {
            self.record.status = RunStatus::Running;
            self.folder.write_record(&self.record)?;
        }
        let mut status = RunStatus::Ended;
        while self.simulation.turn() < self.record.turns {
            let was_asked = self.run_turn()?;
            // A checkpoint makes answered requests durable.
            if was_asked || self.is_checkpoint_due() {
                self.write_checkpoint()?;
            }
            let (turn, turns) = (self.simulation.turn(), self.record.turns);
            let (agents, events) = (self.simulation.len(), self.simulation.events());
            let progress = SimulationProgress { turn, turns, agents, events };
            match watch(progress) {
                RunControl::Continue => {}
                RunControl::Checkpoint => self.write_checkpoint()?,
                RunControl::Stop if turn < turns => {
                    status = RunStatus::Stopped;
                    break;
                }
                RunControl::Stop => {}
            }
        }
        self.write_checkpoint()?;
        self.writer.flush()?;
        let summary = self.summary()?;
        self.record.status = status;
        self.record.summary = Some(summary.clone());
        self.folder.write_record(&self.record)?;
        Ok(summary)
    }

    /// Runs one turn: ticks, then changes of the population. Answers are durable before the next
    /// checkpoint. Returns true if there were any.
    fn run_turn(&mut self) -> Result<bool, SimError> {
        self.simulation.run_ticks();
        let turn = self.simulation.turn();
        let requests = self.requests.claim(turn)?;
        let actions: Vec<_> =
            requests.iter().filter_map(|request| request.action.clone().ok()).collect();
        let mut rulings =
            self.simulation.change_population(&actions, self.record.strict)?.into_iter();
        let mut answers = Vec::new();
        for OutsideRequest { id, action, answered_in, .. } in requests {
            let verdict = match action {
                Ok(_) => rulings.next().map(RequestRuling::into_verdict).unwrap_or_default(),
                Err(reason) => RequestVerdict::refused(reason),
            };
            if answered_in.is_none() {
                answers.push(RequestAnswer { request_id: id, turn, verdict });
            }
        }
        let was_asked = !answers.is_empty();
        // New requests invalidate superseded checkpoints.
        if was_asked && !std::mem::take(&mut self.superseded).is_empty() {
            self.folder.remove_superseded()?;
        }
        self.requests.record_answers(answers)?;
        Ok(was_asked)
    }

    fn is_checkpoint_due(&self) -> bool {
        let (scenario, agents) = (self.simulation.scenario(), self.simulation.len());
        let after = scenario.checkpoint_interval(agents, self.record.turns);
        let since = self.written.map_or(0, |(written, _)| written);
        self.simulation.turn() >= since.saturating_add(after)
    }

    /// Writes a checkpoint of the current turn, unless it exists.
    fn write_checkpoint(&mut self) -> Result<(), SimError> {
        let turn = self.simulation.turn();
        if self.written.is_none_or(|(written, _)| written != turn) {
            self.kept.insert(turn);
            let gone = self.take_dispensable();
            let still_superseded = self.superseded.split_off(&(turn + 1));
            let replaced = std::mem::replace(&mut self.superseded, still_superseded).into_iter();
            let gone = gone.into_iter().flat_map(|turn| self.folder.checkpoint_paths(turn));
            let replaced = replaced.flat_map(|turn| self.folder.superseded_paths(turn));
            let remove = gone.chain(replaced).collect();
            let digest =
                checkpoint::write(&self.folder, &self.simulation, &mut self.writer, remove)?;
            self.written = Some((turn, digest));
        }
        Ok(())
    }

    fn summary(&self) -> Result<RunSummary, SimError> {
        let digest = match self.written {
            Some((_, Some(digest))) => digest,
            Some((_, None)) | None => checkpoint::digest(&self.simulation)?,
        };
        Ok(RunSummary {
            run_id: self.record.run_id.clone(),
            scenario: self.record.scenario.clone(),
            seed: self.simulation.scenario().seed,
            turns: self.simulation.turn(),
            agents: self.simulation.len(),
            paused: self.simulation.paused(),
            states: StateCounts::new(self.simulation.states()),
            warnings: self.simulation.list_warnings(),
            digest: hexadecimal(digest),
            visits: StateCounts::new(self.simulation.visits()),
            world: self.simulation.world(),
        })
    }
}

/// Checks that the tick counter can hold all turns.
fn check_turns(record: &SimulationRecord, scenario: &Scenario) -> Result<(), SimError> {
    let (turns, max_turns) = (record.turns, scenario.turns_max());
    if turns > max_turns { Err(SimError::TooManyTurns { turns, max_turns }) } else { Ok(()) }
}

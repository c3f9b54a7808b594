//! A run: a simulation that goes on in its folder.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::checkpoint::{self, Digest};
use crate::error::SimError;
use crate::files;
use crate::folder::{Fork, Owner, RunFolder, RunRecord, RunStatus};
use crate::keeper::Keeper;
use crate::lifecycle::{Done, Opinion, Ruling};
use crate::requests::{self, Answer, Request, RequestLog};
use crate::retention::dispensable;
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::warning::Warning;

/// A simulation at work in its folder.
#[derive(Debug)]
pub struct Run {
    folder: RunFolder,
    _owner: Owner,
    record: RunRecord,
    simulation: Simulation,
    requests: RequestLog,
    keeper: Keeper,
    /// The newest checkpoint, by its turn, and its digest if that is known.
    written: Option<(u64, Option<Digest>)>,
    /// The turns of which there are checkpoints.
    kept: BTreeSet<u64>,
    /// The turns that are done again, and of which there are checkpoints from before.
    later: BTreeSet<u64>,
}

/// What a run was begun with.
#[derive(Debug, Clone)]
pub struct Beginning<'a> {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The scenario as it is to be kept.
    pub scenario_text: &'a str,
    /// The chart as it is to be kept.
    pub chart_text: &'a str,
    /// How many threads do the work; as many as the machine has, if none.
    pub threads: Option<NonZeroUsize>,
}

/// The end of a turn of another run, with which a fork begins.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// The other run.
    pub folder: &'a RunFolder,
    /// Its scenario.
    pub scenario: &'a Arc<Scenario>,
    /// The turn.
    pub turn: u64,
    /// The values of the world, by name, that are to be what the fork's scenario says.
    pub values: &'a [String],
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The run's id.
    pub run_id: String,
    /// The name of its scenario.
    pub scenario: String,
    /// What all chance follows from.
    pub seed: u64,
    /// The turns that are over.
    pub turns: u64,
    /// How many agents there are.
    pub agents: u64,
    /// The names of the paused.
    pub paused: Vec<String>,
    /// How many agents are in each state.
    pub states: States,
    /// What went wrong without ending the run.
    pub warnings: Vec<Warning>,
    /// The SHA-256 over the whole state.
    pub digest: String,
    /// How often agents have entered each state.
    #[serde(default)]
    pub visits: States,
    /// The values of the world.
    #[serde(default)]
    pub world: Map<String, Value>,
}

/// A number for each state, in the order of the chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct States(pub Vec<(String, u64)>);

impl States {
    pub(crate) fn new(states: Vec<(&str, u64)>) -> Self {
        Self(states.into_iter().map(|(name, number)| (name.to_owned(), number)).collect())
    }

    /// The number of a state.
    pub fn get(&self, state: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == state).map(|(_, number)| *number)
    }
}

impl Serialize for States {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StatesVisitor)
    }
}

struct StatesVisitor;

impl<'de> Visitor<'de> for StatesVisitor {
    type Value = States;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers by state")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<States, A::Error> {
        let mut states = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            states.push(entry);
        }
        Ok(States(states))
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The turns that are over.
    pub turn: u64,
    /// The turns there are to be.
    pub turns: u64,
    /// How many agents there are.
    pub agents: u64,
    /// What was done to the population in the turn that is over, if the run
    /// [takes note](Run::note_done) of that.
    pub done: &'a [Done],
}

/// Whether a run goes on after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoOn {
    /// It does.
    Yes,
    /// It does, with a checkpoint of the turn that is over.
    Keep,
    /// It stops here, and can be resumed.
    Stop,
}

impl Run {
    /// Begins a new run in a folder that is not there yet, or in which no run ever began.
    pub fn begin(
        path: &Path,
        record: RunRecord,
        beginning: &Beginning<'_>,
    ) -> Result<Self, SimError> {
        let simulation = Simulation::new(Arc::clone(&beginning.scenario), beginning.threads)?;
        Self::create(path, record, beginning, simulation, None)
    }

    /// Begins a new run with the agents of another one, as they were at the end of a turn. What was
    /// asked of that from outside in later turns is asked of this in the same turns.
    pub fn fork(
        path: &Path,
        mut record: RunRecord,
        beginning: &Beginning<'_>,
        other: &Past<'_>,
    ) -> Result<Self, SimError> {
        let Beginning { scenario, threads, .. } = beginning;
        let Past { folder: other, scenario: before, turn, values } = *other;
        record.forked_from = Some(Fork { run_id: other.record()?.run_id, turn });
        let (found, ..) = other.checkpoint(Some(turn))?;
        if record.turns < turn {
            return Err(SimError::TooFewTurns { turns: record.turns, turn });
        }
        let (was, is) = (before.behaviours_named(), scenario.behaviours_named());
        if was != is {
            let [was, is] = [was, is].map(|names| names.join(", "));
            return Err(SimError::Scenario(format!(
                "the behaviours of a fork have the names that they had: {was}, and not: {is}"
            )));
        }
        let mut simulation = if found == turn {
            Simulation::restore_in(other, turn, before, scenario, *threads)?
        } else {
            // What is done again is done as it was.
            let past = Simulation::restore(other, Some(turn), before, *threads)?;
            past.in_scenario(scenario, *threads)?
        };
        simulation.change_world(values);
        Self::create(path, record, beginning, simulation, Some(other))
    }

    fn create(
        path: &Path,
        record: RunRecord,
        beginning: &Beginning<'_>,
        simulation: Simulation,
        other: Option<&RunFolder>,
    ) -> Result<Self, SimError> {
        check_turns(&record, &beginning.scenario)?;
        let asked = match other {
            Some(other) => requests::asked_after(&other.requests(), simulation.turn())?,
            None => Vec::new(),
        };
        let (folder, owner) =
            RunFolder::create(path, &record, beginning.scenario_text, beginning.chart_text)?;
        requests::repeat(&folder.requests(), &asked)?;
        let requests = RequestLog::open(&folder.requests(), simulation.turn())?;
        let mut run = Self {
            folder,
            _owner: owner,
            record,
            simulation,
            requests,
            keeper: Keeper::default(),
            written: None,
            kept: BTreeSet::new(),
            later: BTreeSet::new(),
        };
        run.keep()?;
        run.keeper.settle()?;
        Ok(run)
    }

    /// Goes on with a run from the end of a turn that it has come to, or of the newest that has a
    /// checkpoint. What came after that turn is done again; the checkpoints of it stay until there
    /// are new ones in their place.
    pub fn resume(
        folder: RunFolder,
        turn: Option<u64>,
        turns: Option<u64>,
        scenario: &Arc<Scenario>,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, SimError> {
        let owner = folder.own()?;
        let mut record = folder.record()?;
        record.turns = turns.unwrap_or(record.turns);
        check_turns(&record, scenario)?;
        let newest = folder.checkpoints()?.last().copied();
        if turn.is_some_and(|turn| newest.is_none_or(|newest| newest < turn)) {
            folder.bring_back()?;
        }
        // One that died before its first checkpoint has not done anything yet.
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
        let kept: BTreeSet<u64> = folder.checkpoints()?.into_iter().collect();
        let later = folder.later()?.into_iter().collect();
        let written = kept.contains(&simulation.turn()).then(|| (simulation.turn(), None));
        let keeper = Keeper::default();
        let mut run = Self {
            folder,
            _owner: owner,
            record,
            simulation,
            requests,
            keeper,
            written,
            kept,
            later,
        };
        run.remove_dispensable()?;
        run.keep()?;
        Ok(run)
    }

    /// Removes the checkpoints that are not needed any more. Turns that were to be done again may have
    /// left more of them than a run keeps.
    fn remove_dispensable(&mut self) -> Result<(), SimError> {
        let gone = self.take_dispensable();
        let paths = gone.into_iter().flat_map(|turn| self.folder.checkpoint_paths(turn));
        files::remove_all(&paths.collect::<Vec<_>>())
    }

    /// The checkpoints that are not needed any more, which count as removed from here on.
    fn take_dispensable(&mut self) -> Vec<u64> {
        let turns: Vec<u64> = self.kept.iter().copied().collect();
        let gone = dispensable(&turns, self.simulation.scenario().keep_checkpoints);
        self.kept.retain(|turn| !gone.contains(turn));
        gone
    }

    /// The run's folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// The scenario that is run.
    pub fn scenario(&self) -> &Scenario {
        self.simulation.scenario()
    }

    /// What the run is.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Takes note of what is done to the population, for whoever watches it go.
    pub fn note_done(&mut self) {
        self.simulation.note_done();
    }

    /// Runs to the last turn, or until `watch` says to stop, and tells what came of it.
    pub fn go(&mut self, mut watch: impl FnMut(Progress<'_>) -> GoOn) -> Result<Summary, SimError> {
        if self.record.status != RunStatus::Running {
            self.record.status = RunStatus::Running;
            self.folder.write_record(&self.record)?;
        }
        let mut status = RunStatus::Ended;
        while self.simulation.turn() < self.record.turns {
            let was_asked = self.turn()?;
            // Whoever was answered finds it done, whatever becomes of this process.
            if was_asked || self.is_due() {
                self.keep()?;
            }
            let (turn, turns) = (self.simulation.turn(), self.record.turns);
            let (agents, done) = (self.simulation.len(), self.simulation.done());
            let progress = Progress { turn, turns, agents, done };
            match watch(progress) {
                GoOn::Yes => {}
                GoOn::Keep => self.keep()?,
                GoOn::Stop if turn < turns => {
                    status = RunStatus::Stopped;
                    break;
                }
                GoOn::Stop => {}
            }
        }
        self.keep()?;
        self.keeper.settle()?;
        let summary = self.summary()?;
        self.record.status = status;
        self.record.summary = Some(summary.clone());
        self.folder.write_record(&self.record)?;
        Ok(summary)
    }

    /// One turn: actions, then changes of the population. Answers are durable before the
    /// checkpoint that follows. Says whether there were any.
    fn turn(&mut self) -> Result<bool, SimError> {
        self.simulation.act();
        let turn = self.simulation.turn();
        let requests = self.requests.take(turn)?;
        let actions: Vec<_> =
            requests.iter().filter_map(|request| request.action.clone().ok()).collect();
        let mut rulings = self.simulation.change(&actions, self.record.strict)?.into_iter();
        let mut answers = Vec::new();
        for Request { id, action, answered_in, .. } in requests {
            let opinion = match action {
                Ok(_) => rulings.next().map(Ruling::into_opinion).unwrap_or_default(),
                Err(reason) => Opinion::refused(reason),
            };
            if answered_in.is_none() {
                answers.push(Answer { request_id: id, turn, opinion });
            }
        }
        if answers.is_empty() {
            return Ok(false);
        }
        // What was not asked before leads elsewhere.
        if !std::mem::take(&mut self.later).is_empty() {
            self.folder.forget_later()?;
        }
        self.requests.answer(answers)?;
        Ok(true)
    }

    /// Whether it is time for a checkpoint.
    fn is_due(&self) -> bool {
        let (scenario, agents) = (self.simulation.scenario(), self.simulation.len());
        let after = scenario.checkpoint_after(agents, self.record.turns);
        let since = self.written.map_or(0, |(written, _)| written);
        self.simulation.turn() >= since.saturating_add(after)
    }

    /// Writes a checkpoint of the turn that is over, unless there is one.
    fn keep(&mut self) -> Result<(), SimError> {
        let turn = self.simulation.turn();
        if self.written.is_none_or(|(written, _)| written != turn) {
            self.kept.insert(turn);
            let gone = self.take_dispensable();
            let still_later = self.later.split_off(&(turn + 1));
            let replaced = std::mem::replace(&mut self.later, still_later).into_iter();
            let gone = gone.into_iter().flat_map(|turn| self.folder.checkpoint_paths(turn));
            let replaced = replaced.flat_map(|turn| self.folder.later_paths(turn));
            let remove = gone.chain(replaced).collect();
            let digest =
                checkpoint::write(&self.folder, &self.simulation, &mut self.keeper, remove)?;
            self.written = Some((turn, digest));
        }
        Ok(())
    }

    fn summary(&self) -> Result<Summary, SimError> {
        let digest = match self.written {
            Some((_, Some(digest))) => digest,
            Some((_, None)) | None => checkpoint::digest(&self.simulation)?,
        };
        Ok(Summary {
            run_id: self.record.run_id.clone(),
            scenario: self.record.scenario.clone(),
            seed: self.simulation.scenario().seed,
            turns: self.simulation.turn(),
            agents: self.simulation.len(),
            paused: self.simulation.paused(),
            states: States::new(self.simulation.states()),
            warnings: self.simulation.warnings().told(self.simulation.turn()),
            digest: hexadecimal(digest),
            visits: States::new(self.simulation.visits()),
            world: self.simulation.world(),
        })
    }
}

fn hexadecimal(digest: Digest) -> String {
    let mut digits = String::with_capacity(2 * digest.len());
    for byte in digest {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// No run has more turns than can be counted.
fn check_turns(record: &RunRecord, scenario: &Scenario) -> Result<(), SimError> {
    let (turns, most) = (record.turns, scenario.turns_max());
    if turns > most { Err(SimError::TooManyTurns { turns, most }) } else { Ok(()) }
}

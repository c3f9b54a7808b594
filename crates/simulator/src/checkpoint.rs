//! The whole state of a simulation at the end of a turn, as a file.
//!
//! There are two forms with the same content. `json` is for people and other programs; `compact`
//! is for large populations, is written and read agent by agent, and ends with a checksum. The
//! digest of a simulation is the SHA-256 of its compact form, without the checksum, whichever form
//! is on disk.

mod codec;
mod compact;
mod json;

use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::SimError;
use crate::files;
use crate::folder::{Form, RunFolder};
use crate::keeper::{Job, Keeper};
use crate::kernel::AgentImage;
use crate::population::SERIALS_MAX;
use crate::run::States;
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::warning::Warnings;

/// Populations above this are written in the compact form.
const JSON_AGENTS_MAX: u64 = 10_000;

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// All of a simulation but its agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the state of a simulation")]
pub(crate) struct Head {
    /// The version of the form.
    pub(crate) format: u32,
    pub(crate) scenario: String,
    pub(crate) chart: String,
    pub(crate) seed: u64,
    pub(crate) start_time: Timestamp,
    pub(crate) tick_seconds: f64,
    /// The names of the behaviours, in order.
    pub(crate) behaviours: Vec<String>,
    /// How many ticks of the kernel are over.
    pub(crate) tick: u64,
    /// The serial of the next agent.
    pub(crate) next_serial: u64,
    /// How often each state was entered.
    pub(crate) visits: States,
    /// The values of the world by name; null for one that was never set.
    pub(crate) world: serde_json::Map<String, serde_json::Value>,
    #[serde(flatten)]
    pub(crate) warnings: Warnings,
}

/// The version that is written. Where draws come to be other ones, that is another version too: the rest
/// of a run would not be what it was going to be.
const FORMAT: u32 = 3;

/// One agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentRow {
    pub(crate) name: String,
    /// The turn that it was added in; 0 if it was there from the start.
    pub(crate) turn_added: u64,
    /// How many turns a paused agent still skips, if it goes on by itself.
    pub(crate) auto_resume: Option<NonZeroU32>,
    pub(crate) image: AgentImage,
}

/// Takes in a simulation as it is read.
pub(crate) trait Restore {
    /// Comes first.
    fn head(&mut self, turn: u64, head: &Head) -> Result<(), String>;
    /// Comes once for each agent, in the order of serials.
    fn agent(&mut self, row: AgentRow) -> Result<(), String>;
}

impl Head {
    pub(crate) fn new(simulation: &Simulation) -> Self {
        let scenario = simulation.scenario();
        Self {
            format: FORMAT,
            scenario: scenario.name.clone(),
            chart: scenario.chart.name().to_owned(),
            seed: scenario.seed,
            start_time: scenario.start_time,
            tick_seconds: scenario.tick_seconds,
            behaviours: scenario.behaviours_named(),
            tick: simulation.tick(),
            next_serial: simulation.next_serial().0,
            visits: States::new(simulation.visits()),
            world: simulation.world(),
            warnings: simulation.warnings().clone(),
        }
    }

    /// Whether it says what the scenario says that it was written in, where that never changes.
    fn check_written(&self, scenario: &Scenario) -> Result<(), String> {
        let Scenario { seed, start_time, tick_seconds, .. } = scenario;
        // Numbers and times that are written alike are the same.
        for (what, found, expected) in [
            ("seed", self.seed.to_string(), seed.to_string()),
            ("start_time", self.start_time.to_string(), start_time.to_string()),
            ("tick_seconds", self.tick_seconds.to_string(), tick_seconds.to_string()),
        ] {
            if found != expected {
                return Err(format!("its {what} is {found}, and that of the run is {expected}"));
            }
        }
        Ok(())
    }

    /// Whether a simulation of this scenario can go on from here.
    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!(
                "it has the format {}, and this version of Polity reads {FORMAT}",
                self.format
            ));
        }
        for (what, found, expected) in [
            ("scenario", self.scenario.as_str(), scenario.name.as_str()),
            ("chart", self.chart.as_str(), scenario.chart.name()),
        ] {
            if found != expected {
                return Err(format!("it is of the {what} \"{found}\", not of \"{expected}\""));
            }
        }
        if self.next_serial < scenario.agents() {
            return Err(format!(
                "next_serial is {}, and there were {} agents from the start",
                self.next_serial,
                scenario.agents()
            ));
        }
        if self.next_serial > SERIALS_MAX {
            return Err(format!(
                "next_serial is {}, and {SERIALS_MAX} is the most",
                self.next_serial
            ));
        }
        if self.behaviours != scenario.behaviours_named() {
            return Err("its behaviours have other names than those of the scenario".to_owned());
        }
        Ok(())
    }
}

impl AgentRow {
    /// The rules that every agent of a checkpoint keeps. Those about its state, its fields and the
    /// way that it came are the kernel's.
    fn check(&self, scenario: &Scenario, head: &Head) -> Result<(), String> {
        if let Some(fault) = crate::names::fault_of(&self.name) {
            return Err(fault);
        }
        let AgentImage { serial, history, fields, memories, ticks_in_state, .. } = &self.image;
        if serial.0 >= head.next_serial {
            return Err(format!("its serial {} was never given", serial.0));
        }
        let turns = head.tick / scenario.kernel_ticks();
        if self.turn_added > turns {
            return Err(format!("turn_added is {}, and there were {turns} turns", self.turn_added));
        }
        if u64::from(*ticks_in_state) > head.tick {
            return Err(format!(
                "ticks_in_state is {ticks_in_state}, and there were {}",
                head.tick
            ));
        }
        if let Some(last) = history.last()
            && u64::from(*ticks_in_state) > head.tick.saturating_sub(last.tick)
        {
            let since = head.tick.saturating_sub(last.tick);
            return Err(format!(
                "ticks_in_state is {ticks_in_state}, and there were {since} since its last transition"
            ));
        }
        let chart = &*scenario.chart;
        let mut values = chart.fields().iter().zip(fields);
        if let Some((field, _)) =
            values.find(|(field, value)| field.default.is_some() && value.is_none())
        {
            return Err(format!("its field \"{}\" is missing", field.name));
        }
        // Each state with a history remembers one of those inside it.
        let histories = chart.tree().iter().filter(|node| node.history);
        let mut remembered = histories.zip(memories);
        if remembered.any(|(node, memory)| usize::from(*memory) >= node.children.len()) {
            return Err("it remembers a state that the chart does not have".to_owned());
        }
        let depth = chart.max_history_depth();
        if history.len() > depth {
            let count = history.len();
            return Err(format!(
                "it remembers {count} transitions, and max_history_depth is {depth}"
            ));
        }
        if history.iter().any(|past| past.tick > head.tick) {
            return Err("it remembers a transition that is still to come".to_owned());
        }
        if history.windows(2).any(|pair| pair[0].tick >= pair[1].tick) {
            return Err("its transitions are not in the order of time".to_owned());
        }
        Ok(())
    }
}

/// Writes the checkpoint of the turn that is over, and gives its digest if that is known. What is to
/// be removed is removed when the checkpoint is durable. A small one is left to the keeper, and the
/// simulation goes on meanwhile; a large one would take its memory twice.
pub(crate) fn write(
    folder: &RunFolder,
    simulation: &Simulation,
    keeper: &mut Keeper,
    remove: Vec<PathBuf>,
) -> Result<Option<Digest>, SimError> {
    let turn = simulation.turn();
    if simulation.len() > JSON_AGENTS_MAX {
        keeper.settle()?;
        let path = folder.checkpoint_path(turn, Form::Compact);
        let mut digest = None;
        files::write_whole(&path, |file| {
            let written = compact::write(simulation, file);
            digest = Some(written.map_err(SimError::io("write", &path))?);
            Ok(())
        })?;
        files::remove_all(&remove)?;
        return Ok(digest);
    }
    let path = folder.checkpoint_path(turn, Form::Json);
    let mut text = Vec::new();
    json::write(simulation, &mut text).map_err(SimError::io("write", &path))?;
    keeper.keep(Job { path, text, remove })?;
    Ok(None)
}

/// Reads the checkpoint of a turn or the newest before it, or the newest one. It was written in one
/// scenario, and what is read is to go on in another, or in the same.
pub(crate) fn read(
    folder: &RunFolder,
    turn: Option<u64>,
    scenarios: [&Scenario; 2],
    restore: &mut impl Restore,
) -> Result<(), SimError> {
    let (turn, path, form) = folder.checkpoint(turn)?;
    let unusable = |reason: String| SimError::damaged(&path, unusable(&reason));
    let read = match form {
        Form::Json => json::read(&files::read_text(&path)?, scenarios, restore),
        Form::Compact => {
            let file = std::fs::File::open(&path).map_err(SimError::io("read", &path))?;
            compact::read(file, scenarios, restore)
        }
    };
    match read.map_err(unusable)? {
        written if written == turn => Ok(()),
        written => Err(unusable(format!("it is of turn {written}, and not of turn {turn}"))),
    }
}

/// That a checkpoint cannot be used.
pub(crate) fn unusable(reason: &str) -> String {
    format!("the checkpoint cannot be used: {reason}")
}

/// Hands a simulation over to another one.
pub(crate) fn hand_over(
    from: &Simulation,
    scenario: &Scenario,
    to: &mut impl Restore,
) -> Result<(), String> {
    let head = Head::new(from);
    head.check(scenario)?;
    to.head(from.turn(), &head)?;
    from.rows().try_for_each(|row| to.agent(row))
}

/// The digest of a simulation's whole state.
pub(crate) fn digest(simulation: &Simulation) -> Result<Digest, SimError> {
    let nowhere = Path::new("nowhere");
    compact::write(simulation, &mut io::sink()).map_err(SimError::io("write", nowhere))
}

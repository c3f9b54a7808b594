//! Checkpoints: the complete state of a simulation at the end of a turn, as a file.
//!
//! There are two formats with the same content, and both end with a checksum. `json` is readable;
//! `compact` is for large populations, and is written and read agent by agent. The digest of a
//! simulation is the SHA-256 of its compact form without the checksum, whichever format is on disk.
//! It does not contain the turn, so that it does not depend on the grouping of ticks.

mod checksum;
mod codec;
mod compact;
mod json;
pub(crate) mod retention;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::checkpoint::writer::{CheckpointWriter, WriteJob};
use crate::error::{SimError, ensure};
use crate::folder::durable_files as files;
use crate::folder::version::RUN_FORMAT;
use crate::folder::{CheckpointFormat, RunFolder};
use crate::kernel::AgentSnapshot;
use crate::population::SERIALS_MAX;
use crate::run::StateCounts;
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::warning::WarningLog;

/// The maximum population size of the JSON format.
const JSON_AGENTS_MAX: u64 = 10_000;

/// The maximum size of a checkpoint in the JSON format. It is read whole.
const JSON_BYTES_MAX: u64 = 1 << 30;

/// A SHA-256 digest of a simulation's state.
pub(crate) type StateDigest = [u8; 32];

/// The state of a simulation without its agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the state of a simulation")]
pub(crate) struct CheckpointHead {
    /// The format version.
    pub(crate) format: u32,
    pub(crate) scenario: String,
    pub(crate) chart: String,
    pub(crate) seed: u64,
    pub(crate) start_time: Timestamp,
    pub(crate) tick_seconds: f64,
    /// The names of the behaviours, in order.
    pub(crate) behaviours: Vec<String>,
    /// The number of kernel ticks so far.
    pub(crate) tick: u64,
    pub(crate) next_serial: u64,
    /// The next number behind each base name.
    pub(crate) name_numbers: BTreeMap<String, u64>,
    /// The number of visits of each state.
    pub(crate) visits: StateCounts,
    /// The world values by name; null for one that was never set.
    pub(crate) world: serde_json::Map<String, serde_json::Value>,
    #[serde(flatten)]
    pub(crate) warnings: WarningLog,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentRow {
    pub(crate) name: String,
    /// The turn in which it was added; 0 for an initial agent.
    pub(crate) turn_added: u64,
    /// The number of turns that a paused agent still skips, if its pause ends by itself.
    pub(crate) auto_resume: Option<NonZeroU32>,
    pub(crate) snapshot: AgentSnapshot,
}

/// Receives a simulation while a checkpoint is read.
pub(crate) trait CheckpointTarget {
    /// Called first.
    fn head(&mut self, turn: u64, head: &CheckpointHead) -> Result<(), String>;
    /// Called once per agent, in order of serials.
    fn agent(&mut self, row: AgentRow) -> Result<(), String>;
}

impl CheckpointHead {
    pub(crate) fn new(simulation: &Simulation) -> Self {
        let scenario = simulation.scenario();
        Self {
            format: RUN_FORMAT,
            scenario: scenario.name.clone(),
            chart: scenario.chart.name().to_owned(),
            seed: scenario.seed,
            start_time: scenario.start_time,
            tick_seconds: scenario.tick_seconds,
            behaviours: scenario.behaviour_names(),
            tick: simulation.tick(),
            next_serial: simulation.next_serial().0,
            name_numbers: simulation.name_numbers(),
            visits: StateCounts::new(simulation.visits()),
            world: simulation.world(),
            warnings: simulation.warnings().clone(),
        }
    }

    /// Checks the values that never change against the scenario of the run.
    fn check_origin(&self, scenario: &Scenario) -> Result<(), String> {
        let Scenario { seed, start_time, tick_seconds, .. } = scenario;
        // Equal texts mean equal numbers and times.
        for (what, found, expected) in [
            ("seed", self.seed.to_string(), seed.to_string()),
            ("start_time", self.start_time.to_string(), start_time.to_string()),
            ("tick_seconds", self.tick_seconds.to_string(), tick_seconds.to_string()),
        ] {
            ensure!(found == expected, "its {what} is {found}, and that of the run is {expected}");
        }
        Ok(())
    }

    /// Checks that a simulation of this scenario can continue from here.
    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let Self { format, next_serial, .. } = self;
        ensure!(
            *format == RUN_FORMAT,
            "it has the format {format}, and this version of Polity reads {RUN_FORMAT}"
        );
        for (what, found, expected) in [
            ("scenario", self.scenario.as_str(), scenario.name.as_str()),
            ("chart", self.chart.as_str(), scenario.chart.name()),
        ] {
            ensure!(found == expected, "it is of the {what} \"{found}\", not of \"{expected}\"");
        }
        let agents = scenario.agents();
        ensure!(
            *next_serial >= agents,
            "next_serial is {next_serial}, and there were {agents} agents from the start"
        );
        ensure!(
            *next_serial <= SERIALS_MAX,
            "next_serial is {next_serial}; the maximum is {SERIALS_MAX}"
        );
        ensure!(
            self.behaviours == scenario.behaviour_names(),
            "its behaviours have other names than those of the scenario"
        );
        Ok(())
    }
}

impl AgentRow {
    /// Checks an agent of a checkpoint. The kernel checks its state, fields and history.
    fn check(&self, scenario: &Scenario, head: &CheckpointHead) -> Result<(), String> {
        if let Some(fault) = crate::population::names::name_error(&self.name) {
            return Err(fault);
        }
        let AgentSnapshot { serial, history, fields, last_active, ticks_in_state: ticks, .. } =
            &self.snapshot;
        ensure!(serial.0 < head.next_serial, "its serial {} was never given", serial.0);
        let (added, turns) = (self.turn_added, head.tick / scenario.kernel_ticks());
        ensure!(added <= turns, "turn_added is {added}, and there were {turns} turns");
        let all = head.tick;
        ensure!(u64::from(*ticks) <= all, "ticks_in_state is {ticks}, and there were {all}");
        if let Some(last) = history.last() {
            let since = all.saturating_sub(last.tick);
            ensure!(
                u64::from(*ticks) <= since,
                "ticks_in_state is {ticks}, and there were {since} since its last transition"
            );
        }
        let chart = &*scenario.chart;
        let mut values = chart.fields().iter().zip(fields);
        if let Some((field, _)) =
            values.find(|(field, value)| field.default.is_some() && value.is_none())
        {
            return Err(format!("its field \"{}\" is missing", field.name));
        }
        // Each history state must refer to one of its children.
        let mut remembered = chart.history_child_counts().zip(last_active);
        ensure!(
            remembered.all(|(children, child)| usize::from(*child) < children),
            "it remembers a state that the chart does not have"
        );
        let (count, depth) = (history.len(), chart.max_history_depth());
        ensure!(
            count <= depth,
            "it remembers {count} transitions, and max_history_depth is {depth}"
        );
        ensure!(
            history.iter().all(|past| past.tick <= all),
            "it remembers a transition that is still to come"
        );
        ensure!(
            history.windows(2).all(|pair| pair[0].tick < pair[1].tick),
            "its transitions are not in the order of time"
        );
        Ok(())
    }
}

/// Writes a checkpoint of the current turn. Returns its digest if known. The files in `remove` are
/// removed once it is durable. The background writer takes small checkpoints; a large one would
/// double its memory.
pub(crate) fn write(
    folder: &RunFolder,
    simulation: &Simulation,
    writer: &mut CheckpointWriter,
    remove: Vec<PathBuf>,
) -> Result<Option<StateDigest>, SimError> {
    let turn = simulation.turn();
    if simulation.len() > JSON_AGENTS_MAX {
        writer.flush()?;
        let path = folder.checkpoint_path(turn, CheckpointFormat::Compact);
        let mut digest = None;
        files::write_atomic(&path, |file| {
            let written = compact::write(simulation, file);
            digest = Some(written.map_err(SimError::io("write", &path))?);
            Ok(())
        })?;
        files::remove_all(&remove)?;
        return Ok(digest);
    }
    let path = folder.checkpoint_path(turn, CheckpointFormat::Json);
    let mut text = Vec::new();
    json::write(simulation, &mut text).map_err(SimError::io("write", &path))?;
    checksum::seal(&mut text);
    writer.enqueue(WriteJob { path, text, remove })?;
    Ok(None)
}

/// Reads the checkpoint of a turn, or the newest before it, or the newest of all. It was written
/// with one scenario and continues with another, which may be the same.
pub(crate) fn read(
    folder: &RunFolder,
    turn: Option<u64>,
    scenarios: [&Scenario; 2],
    restore: &mut impl CheckpointTarget,
) -> Result<(), SimError> {
    folder.check_version()?;
    let (turn, path, form) = folder.checkpoint(turn)?;
    let read = match form {
        CheckpointFormat::Json => {
            let bytes = polity_files::read_named_file(&path, JSON_BYTES_MAX)
                .map_err(|error| SimError::io("read", &path)(error.into()))?;
            json::read(&bytes, scenarios, restore)
        }
        CheckpointFormat::Compact => {
            let file = polity_files::open_named_file(&path)
                .map_err(|error| SimError::io("read", &path)(error.into()))?;
            compact::read(file, scenarios, restore)
        }
    };
    let read = read.and_then(|written| {
        ensure!(written == turn, "it is of turn {written}, and not of turn {turn}");
        Ok(())
    });
    read.map_err(|reason| damaged(folder, turn, &path, reason))
}

/// Returns the error for a checkpoint that cannot be used, with the turn to continue from instead.
pub(crate) fn damaged(folder: &RunFolder, turn: u64, path: &Path, reason: String) -> SimError {
    let mut before = turn;
    let earlier = loop {
        let Some(wanted) = before.checked_sub(1) else { break None };
        match folder.checkpoint(Some(wanted)) {
            Ok((found, path, form)) if checksum::is_intact(&path, form) => break Some(found),
            Ok((found, _, _)) => before = found,
            Err(_) => break None,
        }
    };
    SimError::DamagedCheckpoint { path: path.to_owned(), reason, earlier }
}

/// Reads a checkpoint without its checksum and returns its turn.
#[cfg(feature = "fuzz")]
pub(crate) fn parse(
    form: CheckpointFormat,
    bytes: &[u8],
    scenarios: [&Scenario; 2],
    restore: &mut impl CheckpointTarget,
) -> Result<u64, String> {
    match form {
        CheckpointFormat::Json => json::read_content(bytes, scenarios, restore),
        CheckpointFormat::Compact => {
            use sha2::{Digest as _, Sha256};
            let sealed = [bytes, &Sha256::digest(bytes)].concat();
            compact::read(&*sealed, scenarios, restore)
        }
    }
}

/// Writes a checkpoint as [`parse`] reads it.
#[cfg(feature = "fuzz")]
pub(crate) fn encode(form: CheckpointFormat, simulation: &Simulation) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match form {
        CheckpointFormat::Json => {
            json::write(simulation, &mut bytes)?;
            checksum::seal(&mut bytes);
        }
        CheckpointFormat::Compact => {
            let digest = compact::write(simulation, &mut bytes)?;
            bytes.truncate(bytes.len().saturating_sub(digest.len()));
        }
    }
    Ok(bytes)
}

/// Copies the state of a simulation to another one.
pub(crate) fn copy_state(
    from: &Simulation,
    scenario: &Scenario,
    to: &mut impl CheckpointTarget,
) -> Result<(), String> {
    let head = CheckpointHead::new(from);
    head.check(scenario)?;
    to.head(from.turn(), &head)?;
    from.rows().try_for_each(|row| to.agent(row))
}

/// Returns the digest of a simulation's state.
pub(crate) fn digest(simulation: &Simulation) -> Result<StateDigest, SimError> {
    let nowhere = Path::new("nowhere");
    compact::write(simulation, &mut io::sink()).map_err(SimError::io("write", nowhere))
}

/// Returns a digest in hexadecimal digits.
pub(crate) fn hexadecimal(digest: StateDigest) -> String {
    let mut digits = String::with_capacity(2 * digest.len());
    for byte in digest {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

//! The run folders of simulations.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use polity_definition::ExternalDocument;
use polity_simulator::error::SimError;
use polity_simulator::folder::{RunFolder, RunStatus, SimulationRecord, is_unfinished};
use serde_json::{Value, json};

use super::{LoadedScenario, chart_from_document, scenario_from_file};
use crate::error::{HostError, LookupError, RecordKind};
use crate::home_folder::HomeFolder;

/// The runs of a home.
pub struct RunList {
    /// The readable runs, newest first.
    pub runs: Vec<(RunFolder, SimulationRecord)>,
    /// The errors of the unreadable ones.
    pub unreadable: Vec<SimError>,
}

/// Lists the runs of a home.
pub fn list_runs(home: &HomeFolder) -> Result<RunList, HostError> {
    home.must_exist()?;
    let path = home.runs();
    let mut list = RunList { runs: Vec::new(), unreadable: Vec::new() };
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(list),
        entries => entries.map_err(|error| HostError::io("read", &path, error))?,
    };
    for entry in entries {
        let folder = entry.map_err(|error| HostError::io("read", &path, error))?.path();
        if is_unfinished(&folder) {
            continue;
        }
        if let Some(folder) = RunFolder::open(&folder) {
            match folder.record() {
                Ok(record) => list.runs.push((folder, record)),
                Err(error) => list.unreadable.push(error),
            }
        }
    }
    list.runs.sort_by(|(_, a), (_, b)| (b.created_at, &b.run_id).cmp(&(a.created_at, &a.run_id)));
    Ok(list)
}

/// Finds a run by its folder, by its id, by the beginning of one, or the newest by `last`. The list
/// is read only if the name is not a folder.
pub fn find_run(
    name: &str,
    list: impl FnOnce() -> Result<Vec<(RunFolder, SimulationRecord)>, HostError>,
) -> Result<(RunFolder, SimulationRecord), HostError> {
    if let Some(folder) = RunFolder::open(Path::new(name)) {
        let record = folder.record()?;
        return Ok((folder, record));
    }
    if Path::new(name).is_dir() && Path::new(name).components().count() > 1 {
        return Err(HostError::NotARunFolder { path: name.to_owned() });
    }
    let (kind, mut runs) = (RecordKind::Run, list()?);
    if name == "last" {
        return if runs.is_empty() {
            Err(LookupError::NoneYet(kind).into())
        } else {
            Ok(runs.remove(0))
        };
    }
    let prefix = name.to_lowercase();
    if prefix.is_empty() {
        return Err(LookupError::EmptyId(kind).into());
    }
    runs.retain(|(_, record)| record.run_id.starts_with(&prefix));
    match runs.len() {
        0 => Err(LookupError::NotFound { kind, id: name.to_owned() }.into()),
        1 => Ok(runs.remove(0)),
        _ => Err(LookupError::Ambiguous { kind, prefix }.into()),
    }
}

/// The name by which [`find_run`] finds a run: its id, or its folder if that is outside of the home.
pub fn run_name(home: &HomeFolder, folder: &RunFolder, record: &SimulationRecord) -> String {
    if folder.path() == home.runs().join(&record.run_id) {
        record.run_id.clone()
    } else {
        folder.path().display().to_string()
    }
}

/// The scenario and chart that a run pinned.
pub fn pinned_scenario(folder: &RunFolder) -> Result<LoadedScenario, HostError> {
    let (path, text) = folder.chart()?;
    let invalid = |problems| HostError::InvalidRun { folder: folder.path().to_owned(), problems };
    let chart =
        chart_from_document(ExternalDocument::from_text(&path.display().to_string(), &text))
            .map_err(invalid)?;
    let (path, text) = folder.scenario()?;
    let mut document = ExternalDocument::from_text(&path.display().to_string(), &text);
    let content = document.content.take();
    content
        .and_then(|file| scenario_from_file(file, chart, &mut document))
        .filter(|_| document.is_clean())
        .ok_or_else(|| invalid(document.into_problems()))
}

/// The state of a run as seen from outside of its process.
pub struct RunOverview {
    /// The record of the run.
    pub record: SimulationRecord,
    /// True if the run should be at work and its process is gone.
    pub interrupted: bool,
    /// The turns that have a checkpoint.
    pub checkpoints: Vec<u64>,
    /// The folder of the run.
    pub folder: RunFolder,
}

impl RunOverview {
    /// Reads the state of a run.
    pub fn read(folder: RunFolder, record: SimulationRecord) -> Result<Self, HostError> {
        let interrupted = record.status == RunStatus::Running && !folder.is_locked()?;
        // The owner may have ended between the two reads; then its last record counts.
        let record = if interrupted { folder.record()? } else { record };
        let interrupted = interrupted && record.status == RunStatus::Running;
        let checkpoints = folder.checkpoints()?;
        Ok(Self { record, interrupted, checkpoints, folder })
    }

    /// The last finished turn, as far as the files show.
    pub fn turn(&self) -> u64 {
        let summarized = self.record.summary.as_ref().map(|summary| summary.turns);
        let checkpointed = self.checkpoints.last().copied().unwrap_or_default();
        match self.record.status {
            RunStatus::Running => checkpointed,
            RunStatus::Stopped | RunStatus::Ended => summarized.unwrap_or(checkpointed),
        }
    }

    /// The status in one word.
    pub fn status(&self) -> &'static str {
        if self.interrupted { "interrupted" } else { self.record.status.as_str() }
    }

    /// The JSON form.
    pub fn to_json(&self) -> Value {
        let SimulationRecord {
            run_id,
            scenario,
            created_at,
            forked_from,
            strict,
            turns,
            status,
            summary,
            version,
            request: _,
        } = &self.record;
        json!({
            "run_id": run_id,
            "scenario": scenario,
            "status": status,
            "interrupted": self.interrupted,
            "turn": self.turn(),
            "turns": turns,
            "created_at": created_at,
            "forked_from": forked_from,
            "strict": strict,
            "checkpoints": self.checkpoints,
            "folder": self.folder.path(),
            "summary": summary,
            "version": version,
        })
    }
}

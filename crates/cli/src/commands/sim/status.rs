//! `polity sim status`: how runs stand.

use polity_simulator::folder::{RunFolder, RunRecord, RunStatus};
use serde_json::{Value, json};

use super::{called, find, runs};
use crate::app::App;
use crate::args::SimStatusArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::simulation::print_summary;
use crate::view::{print_json, say, style, table};

/// How a run stands, as far as one can see from outside.
struct Standing {
    record: RunRecord,
    interrupted: bool,
    checkpoints: Vec<u64>,
    folder: RunFolder,
}

impl Standing {
    fn of(folder: RunFolder, record: RunRecord) -> Result<Self, CliError> {
        let interrupted = record.status == RunStatus::Running && !folder.is_owned()?;
        // The owner may have ended between the two questions; then its last word counts.
        let record = if interrupted { folder.record()? } else { record };
        let interrupted = interrupted && record.status == RunStatus::Running;
        let checkpoints = folder.checkpoints()?;
        Ok(Self { record, interrupted, checkpoints, folder })
    }

    /// The turns that are over, as far as is known.
    fn turn(&self) -> u64 {
        let told = self.record.summary.as_ref().map(|summary| summary.turns);
        let kept = self.checkpoints.last().copied().unwrap_or_default();
        match self.record.status {
            RunStatus::Running => kept,
            RunStatus::Stopped | RunStatus::Ended => told.unwrap_or(kept),
        }
    }

    fn status(&self) -> &'static str {
        if self.interrupted { "interrupted" } else { self.record.status.as_str() }
    }

    fn to_json(&self) -> Value {
        let RunRecord { run_id, scenario, created_at, forked_from, strict, turns, status, summary } =
            &self.record;
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
        })
    }
}

pub(super) fn status(app: &App, args: &SimStatusArgs) -> CliResult {
    if let Some(run) = &args.run {
        let (folder, record) = find(app, run)?;
        return one(app, &Standing::of(folder, record)?);
    }
    let all = runs(app)?;
    let all: Vec<Standing> = all
        .into_iter()
        .map(|(folder, record)| Standing::of(folder, record))
        .collect::<Result<_, _>>()?;
    if app.json() {
        print_json(&all.iter().map(Standing::to_json).collect::<Vec<_>>())?;
    } else if all.is_empty() {
        say!("no runs in {}", app.folder.root().display())?;
    } else {
        let rows = all.iter().map(|standing| {
            let short: String = standing.record.run_id.chars().take(8).collect();
            let turns = format!("{}/{}", standing.turn(), standing.record.turns);
            let begun = standing.record.created_at.strftime("%Y-%m-%d %H:%M:%S").to_string();
            [short, standing.status().to_owned(), standing.record.scenario.clone(), turns, begun]
        });
        say!("{}", table(["RUN", "STATUS", "SCENARIO", "TURNS", "BEGUN"], rows))?;
    }
    Ok(Exit::Done)
}

fn one(app: &App, standing: &Standing) -> CliResult {
    if app.json() {
        print_json(&standing.to_json())?;
        return Ok(Exit::Done);
    }
    let record = &standing.record;
    say!("{} {}", style::label("run:"), record.run_id)?;
    say!("{} {}", style::label("scenario:"), record.scenario)?;
    say!("{} {}", style::label("status:"), standing.status())?;
    say!("{} {} of {}", style::label("turns:"), standing.turn(), record.turns)?;
    if let Some(fork) = &record.forked_from {
        say!("{} {} at turn {}", style::label("forked from:"), fork.run_id, fork.turn)?;
    }
    if let (Some(first), Some(last)) = (standing.checkpoints.first(), standing.checkpoints.last()) {
        let number = standing.checkpoints.len();
        say!("{} {number}, of turns {first} to {last}", style::label("checkpoints:"))?;
    }
    say!("{} {}", style::label("folder:"), standing.folder.path().display())?;
    match (&record.summary, record.status) {
        (Some(summary), RunStatus::Stopped | RunStatus::Ended) => {
            print_summary(app, summary, None)?;
        }
        (Some(_), RunStatus::Running) | (None, _) => {}
    }
    if standing.interrupted || record.status == RunStatus::Stopped {
        let run = called(app, &standing.folder, record);
        say!("go on with `polity sim resume {run}`")?;
    }
    Ok(Exit::Done)
}

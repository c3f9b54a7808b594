//! `polity sim`: populations of agents whose behaviour is a chart.

mod changes;
mod export;
mod lifecycle;
mod run;
mod status;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use polity_definition::ExternalDocument;
use polity_simulator::error::SimError;
use polity_simulator::folder::{RunFolder, RunRecord};

use crate::app::App;
use crate::args::SimCommand;
use crate::error::{CliError, CliResult};
use crate::simulations::{ReadScenario, chart_of, scenario_of};
use crate::view::{note, style};

pub(crate) fn sim(app: &App, command: SimCommand) -> CliResult {
    match command {
        SimCommand::Run(args) => run::run(app, &args),
        SimCommand::Resume(args) => run::resume(app, &args),
        SimCommand::Fork(args) => run::fork(app, &args),
        SimCommand::Status(args) => status::status(app, &args),
        SimCommand::Lifecycle(args) => lifecycle::lifecycle(app, args),
        SimCommand::Export(args) => export::export(app, &args),
    }
}

/// The runs of the home, newest first.
fn runs(app: &App) -> Result<Vec<(RunFolder, RunRecord)>, CliError> {
    app.folder.must_exist()?;
    let path = app.folder.runs();
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| CliError::io("read", &path, &error))?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let folder = entry.map_err(|error| CliError::io("read", &path, &error))?.path();
        if let Some(folder) = RunFolder::open(&folder) {
            match folder.record() {
                Ok(record) => runs.push((folder, record)),
                // One that cannot be read does not take the others away. With `--json` stderr is for
                // errors alone.
                Err(error) if app.shows_progress() => {
                    note!("{}: {error}", style::warning("warning"));
                }
                Err(_) => {}
            }
        }
    }
    runs.sort_by(|(_, a), (_, b)| (b.created_at, &b.run_id).cmp(&(a.created_at, &a.run_id)));
    Ok(runs)
}

/// The run that an id, the beginning of one, a folder or `last` stands for.
fn find(app: &App, run: &str) -> Result<(RunFolder, RunRecord), CliError> {
    if let Some(folder) = RunFolder::open(Path::new(run)) {
        let record = folder.record()?;
        return Ok((folder, record));
    }
    if Path::new(run).is_dir() && Path::new(run).components().count() > 1 {
        return Err(CliError::not_found(format!("{run} is not the folder of a run"))
            .hint("a run is a folder with a run.json, as `polity sim run --out DIR` makes it"));
    }
    let list = "`polity sim status` shows the runs there are";
    let mut runs = runs(app)?;
    if run == "last" {
        let none =
            || CliError::not_found("there are no runs yet").hint("begin one: `polity sim run`");
        return if runs.is_empty() { Err(none()) } else { Ok(runs.remove(0)) };
    }
    let id = run.to_lowercase();
    if id.is_empty() {
        return Err(CliError::usage("the run is empty").hint(list));
    }
    runs.retain(|(_, record)| record.run_id.starts_with(&id));
    match runs.len() {
        0 => Err(CliError::not_found(format!("there is no run {run}")).hint(list)),
        1 => Ok(runs.remove(0)),
        _ => Err(CliError::usage(format!("several runs begin with \"{id}\""))
            .hint("give more of the id")),
    }
}

/// How a run is named on the command line: by its id, or by its folder if that is elsewhere.
fn called(app: &App, folder: &RunFolder, record: &RunRecord) -> String {
    if folder.path() == app.folder.runs().join(&record.run_id) {
        record.run_id.clone()
    } else {
        folder.path().display().to_string()
    }
}

/// The scenario and chart that a run began with.
fn pinned(folder: &RunFolder) -> Result<ReadScenario, CliError> {
    let (path, text) = folder.chart()?;
    let invalid = |problems| {
        let message = "what the run began with is not valid any more";
        CliError::invalid(message, problems).hint(format!(
            "the run keeps its own chart.json and scenario.json in {}: put them back as they were, or \
             begin a new run",
            folder.path().display()
        ))
    };
    let chart = chart_of(ExternalDocument::from_text(&path.display().to_string(), &text))
        .map_err(invalid)?;
    let (path, text) = folder.scenario()?;
    let mut document = ExternalDocument::from_text(&path.display().to_string(), &text);
    let content = document.content.take();
    content
        .and_then(|file| scenario_of(file, chart, &mut document))
        .filter(|_| document.is_clean())
        .ok_or_else(|| invalid(document.into_problems()))
}

/// What went wrong with a run, with hints that name it.
fn of_run(error: SimError, run: &str) -> CliError {
    CliError::from(error).about("RUN", run)
}

impl From<SimError> for CliError {
    fn from(error: SimError) -> Self {
        match &error {
            SimError::Exists(_) => Self::conflict(&error).hint(
                "a run has a folder of its own: name one with --out that is empty or not there yet",
            ),
            SimError::Io { doing, path, source } => Self::io(doing, path, source),
            SimError::Damaged { path, .. } if RunFolder::is_checkpoint(path) => {
                Self::damaged(&error).hint(
                    "go on from an earlier turn: `polity sim resume RUN --from TURN`; `polity sim \
                     status RUN` shows the turns that have a checkpoint",
                )
            }
            SimError::Damaged { .. } => Self::damaged(&error)
                .hint("put the file back from a copy, or begin a new run with `polity sim run`"),
            SimError::NoCheckpoint { .. } => Self::not_found(&error)
                .hint("`polity sim status RUN` shows the turns that have a checkpoint"),
            SimError::Ended(_) => Self::conflict(&error)
                .hint("begin another future of it: `polity sim fork RUN --at TURN`"),
            SimError::InUse => {
                Self::conflict(&error).hint("`polity sim status` shows which runs are at work")
            }
            SimError::TooManyAgents { .. } => Self::over_limit("limit_max_agents", &error)
                .hint("raise max_agents in the scenario, or with --set max_agents=N"),
            SimError::TooManyTurns { .. } => Self::over_limit("limit_turns", &error)
                .hint("ask for fewer turns, or give a turn fewer ticks"),
            SimError::TooFewTurns { .. } => Self::usage(&error)
                .hint("ask for more turns with --turns, or begin at an earlier one"),
            SimError::Threads(_) => Self::conflict(&error).hint("try fewer with --threads"),
            SimError::Scenario(_) => Self::usage(&error),
            SimError::Rates(_) | SimError::Agent(_) => Self::conflict(&error),
        }
    }
}

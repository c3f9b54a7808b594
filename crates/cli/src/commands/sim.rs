//! `polity sim`: runs and inspects simulations.

mod export;
mod lifecycle;
mod run;
mod status;

use polity_host::HostError;
use polity_host::simulations::runs::{RunList, find_run, list_runs};
use polity_simulator::error::SimError;
use polity_simulator::folder::{RunFolder, SimulationRecord};

use crate::app::AppContext;
use crate::args::SimCommand;
use crate::error::{CliError, CliResult};
use crate::terminal::note;
use crate::view::style;

pub(crate) fn sim(app: &AppContext, command: SimCommand) -> CliResult {
    match command {
        SimCommand::Run(args) => run::run(app, &args),
        SimCommand::Resume(args) => run::resume(app, &args),
        SimCommand::Fork(args) => run::fork(app, &args),
        SimCommand::Status(args) => status::status(app, &args),
        SimCommand::Lifecycle(args) => lifecycle::lifecycle(app, args),
        SimCommand::Export(args) => export::export(app, &args),
    }
}

/// The runs of the home, newest first. An unreadable run is a warning and does not hide the others.
fn runs(app: &AppContext) -> Result<Vec<(RunFolder, SimulationRecord)>, HostError> {
    let RunList { runs, unreadable } = list_runs(app.folder())?;
    // With `--json`, stderr contains only errors.
    for error in unreadable.iter().filter(|_| app.shows_progress()) {
        note!("{}: {error}", style::warning("warning"));
    }
    Ok(runs)
}

/// Finds a run by its id, the beginning of one, its folder or `last`.
fn find(app: &AppContext, run: &str) -> Result<(RunFolder, SimulationRecord), CliError> {
    Ok(find_run(run, || runs(app))?)
}

/// An error of a run, with the name of the run in its hints.
fn run_error(error: SimError, run: &str) -> CliError {
    CliError::from(error).about("RUN", run)
}

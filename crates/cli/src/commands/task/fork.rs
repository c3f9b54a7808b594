//! `polity task fork`: a new task that goes on from a checkpoint of another.

use polity_engine::driver::RunOverrides;

use crate::app::{App, Workshop, block_on};
use crate::args::ForkArgs;
use crate::commands::run::{detach, perform};
use crate::commands::set;
use crate::error::CliResult;
use crate::tape::{Given, Part, Tape, TapeFile};

pub(crate) fn fork(app: &App, args: &ForkArgs) -> CliResult {
    let background = detach::is_background();
    if args.detach && !background {
        return detach::detach(app);
    }
    if background {
        detach::leave_terminal();
    }
    let reader = app.reader()?;
    let row = app.task_row(&reader, &args.task.id)?;
    super::checkpoints::must_exist(&reader, &row, args.from)?;
    let updates = set::updates(&args.set)?;
    let home = app.definitions()?;
    let agent = row.assigned_agent.as_str();
    // A cassette of a fork holds what the fork itself asks. One of the first task holds more.
    let part = if args.tape.replay.is_some() { Part::Rest } else { Part::Whole };
    let file = TapeFile::find(&args.tape, agent, part)?;
    let input = app.task(&reader, &row)?.description;
    let given = Given { agent, input: &input, overrides: &RunOverrides::default() };
    block_on(async {
        let (drivers, tape) = Tape::open(file, app, &home, given)?;
        let workshop = Workshop::open_with(app, &home, drivers)?;
        let fork = workshop.runtime.fork(row.id, args.from, updates);
        let outcome = perform(app, &workshop, &tape, background, fork).await;
        workshop.close().await;
        outcome
    })
}

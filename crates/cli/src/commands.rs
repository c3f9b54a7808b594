//! The commands, one file each.

mod agent;
mod backup;
mod chart;
mod check;
mod completions;
mod cost;
mod demo;
mod execution;
mod gc;
mod init;
mod review;
mod run;
mod schema;
mod session;
mod set;
mod sim;
mod task;
mod tool;
mod workflow;

use crate::app::{App, block_on};
use crate::args::{Args, Command};
use crate::error::CliResult;

/// Runs a command.
pub(crate) fn run(args: Args) -> CliResult {
    let Args { options, command } = args;
    match command {
        Command::Init(args) => init::init(&options, &args),
        Command::Schema(args) => schema::schema(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Demo => demo::demo(&options),
        Command::Check => check::check(&App::new(options)?),
        Command::Run(args) => block_on(run::run(&App::new(options)?, args)),
        Command::Task(command) => block_on(task::task(&App::new(options)?, command)),
        Command::Agent(command) => block_on(agent::agent(&App::new(options)?, &command)),
        Command::Execution(command) => {
            block_on(execution::execution(&App::new(options)?, &command))
        }
        Command::Workflow(command) => block_on(workflow::workflow(&App::new(options)?, &command)),
        Command::Chart(command) => chart::chart(&App::new(options)?, &command),
        Command::Sim(command) => sim::sim(&App::new(options)?, command),
        Command::Review(command) => block_on(review::review(&App::new(options)?, command)),
        Command::Session(command) => block_on(session::session(&App::new(options)?, command)),
        Command::Tool(command) => block_on(tool::tool(&App::new(options)?, command)),
        Command::Gc(args) => block_on(gc::gc(&App::new(options)?, &args)),
        Command::Cost(args) => block_on(cost::cost(&App::new(options)?, &args)),
        Command::Backup(args) => backup::backup(&App::new(options)?, &args),
        Command::Restore(args) => backup::restore(&App::new(options)?, &args),
    }
}

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
pub(crate) mod review;
mod run;
mod schema;
mod session;
mod set;
mod sim;
mod task;
mod tool;
mod workflow;

pub(crate) use session::parts_of;
pub(crate) use task::{checkpoints_of_task, trace_of};

use crate::app::App;
use crate::args::{Args, Command};
use crate::error::CliResult;

/// Carries out what was typed.
pub(crate) fn run(args: Args) -> CliResult {
    let Args { options, command } = args;
    match command {
        Command::Init(args) => init::init(&options, &args),
        Command::Schema(args) => schema::schema(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Demo => demo::demo(&options),
        Command::Check => check::check(&App::new(options)?),
        Command::Run(args) => run::run(&App::new(options)?, args),
        Command::Task(command) => task::task(&App::new(options)?, command),
        Command::Agent(command) => agent::agent(&App::new(options)?, &command),
        Command::Execution(command) => execution::execution(&App::new(options)?, &command),
        Command::Workflow(command) => workflow::workflow(&App::new(options)?, &command),
        Command::Chart(command) => chart::chart(&App::new(options)?, &command),
        Command::Sim(command) => sim::sim(&App::new(options)?, command),
        Command::Review(command) => review::review(&App::new(options)?, command),
        Command::Session(command) => session::session(&App::new(options)?, command),
        Command::Tool(command) => tool::tool(&App::new(options)?, command),
        Command::Gc(args) => gc::gc(&App::new(options)?, &args),
        Command::Cost(args) => cost::cost(&App::new(options)?, &args),
        Command::Backup(args) => backup::backup(&App::new(options)?, &args),
        Command::Restore(args) => backup::restore(&App::new(options)?, &args),
    }
}

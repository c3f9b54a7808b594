//! The commands, one file each.

mod agent;
mod backup;
mod chart;
mod check;
mod completions;
mod cost;
mod demo;
mod doctor;
mod execution;
mod gc;
mod init;
mod remote;
mod review;
mod run;
mod schedule;
mod schema;
mod serve;
mod session;
mod set_option;
mod sim;
mod task;
mod token;
mod tool;
mod trust;
mod workflow;

use crate::app::{AppContext, block_on};
use crate::args::{CliCommand, PolityArgs};
use crate::client::{ServerLink, named_server};
use crate::error::CliResult;

/// Runs a command.
pub(crate) fn run(args: PolityArgs) -> CliResult {
    let PolityArgs { options, command } = args;
    if let Some(url) = named_server(&options) {
        let link = ServerLink::to(options, &url)?;
        return block_on(remote::command(&link, command));
    }
    if remote::is_work(&command)
        && let Some(link) = ServerLink::of_home(&AppContext::new(options.clone())?)?
    {
        return block_on(remote::command(&link, command));
    }
    match command {
        CliCommand::Init(args) => init::init(&options, &args),
        CliCommand::Schema(args) => schema::schema(&args),
        CliCommand::Completions(args) => completions::completions(&args),
        CliCommand::Demo => demo::demo(&options),
        CliCommand::Check => check::check(&AppContext::new(options)?),
        CliCommand::Doctor => block_on(doctor::doctor(&AppContext::new(options)?)),
        CliCommand::Run(args) => block_on(run::run(&AppContext::new(options)?, args)),
        CliCommand::Task(command) => block_on(task::task(&AppContext::new(options)?, command)),
        CliCommand::Agent(command) => block_on(agent::agent(&AppContext::new(options)?, &command)),
        CliCommand::Execution(command) => {
            block_on(execution::execution(&AppContext::new(options)?, &command))
        }
        CliCommand::Workflow(command) => {
            block_on(workflow::workflow(&AppContext::new(options)?, &command))
        }
        CliCommand::Chart(command) => chart::chart(&AppContext::new(options)?, &command),
        CliCommand::Sim(command) => sim::sim(&AppContext::new(options)?, command),
        CliCommand::Review(command) => {
            block_on(review::review(&AppContext::new(options)?, command))
        }
        CliCommand::Session(command) => {
            block_on(session::session(&AppContext::new(options)?, command))
        }
        CliCommand::Tool(command) => block_on(tool::tool(&AppContext::new(options)?, command)),
        CliCommand::Gc(args) => block_on(gc::gc(&AppContext::new(options)?, &args)),
        CliCommand::Cost(args) => block_on(cost::cost(&AppContext::new(options)?, &args)),
        CliCommand::Schedule(command) => {
            block_on(schedule::schedule(&AppContext::new(options)?, command))
        }
        CliCommand::Serve(args) => serve::serve(&AppContext::new(options)?, &args),
        CliCommand::Token(command) => token::token(&AppContext::new(options)?, command),
        CliCommand::Backup(args) => backup::backup(&AppContext::new(options)?, &args),
        CliCommand::Restore(args) => backup::restore(&AppContext::new(options)?, &args),
    }
}

//! Commands whose work a server does. They show what the same command shows without a server.

mod agent;
mod execution;
mod follow;
mod lookup;
mod review;
mod run;
mod start;
mod task;
mod workflow;

use serde_json::Value;

use crate::args::{
    AgentCommand, CliCommand, CostArgs, ExecutionCommand, RecordingArgs, ReviewCommand, TaskCommand,
};
use crate::client::ServerLink;
use crate::commands::{completions, cost, schema};
use crate::error::{CliError, CliResult};

use agent::agent;
use execution::execution;
use review::review;
use run::run;
use task::task;

/// Runs a command on a server that the user has named. No home is needed.
pub(crate) async fn command(link: &ServerLink, command: CliCommand) -> CliResult {
    match command {
        CliCommand::Run(args) => {
            refuse_recording(&args.recording)?;
            run(link, &args).await
        }
        CliCommand::Task(command) => task(link, command).await,
        CliCommand::Review(command) => review(link, command).await,
        CliCommand::Agent(command) => agent(link, &command).await,
        CliCommand::Execution(command) => execution(link, &command).await,
        CliCommand::Workflow(command) => workflow::workflow(link, &command).await,
        CliCommand::Cost(args) => show_cost(link, &args).await,
        CliCommand::Schema(args) => schema::schema(&args),
        CliCommand::Completions(args) => completions::completions(&args),
        CliCommand::Init(_) => Err(refusal("init")),
        CliCommand::Demo => Err(refusal("demo")),
        CliCommand::Check => Err(refusal("check")),
        CliCommand::Doctor => Err(refusal("doctor")),
        CliCommand::Schedule(_) => Err(refusal("schedule")),
        CliCommand::Chart(_) => Err(refusal("chart")),
        CliCommand::Sim(_) => Err(refusal("sim")),
        CliCommand::Session(_) => Err(refusal("session")),
        CliCommand::Tool(_) => Err(refusal("tool")),
        CliCommand::Serve(_) => Err(refusal("serve")),
        CliCommand::Token(_) => Err(refusal("token")),
        CliCommand::Gc(_) => Err(refusal("gc")),
        CliCommand::Backup(_) => Err(refusal("backup")),
        CliCommand::Restore(_) => Err(refusal("restore")),
    }
}

/// True if the server of a home does this work. Reading goes to the store, which is faster; a
/// recording, and trust in an imported task, need a process of their own.
pub(crate) fn is_work(command: &CliCommand) -> bool {
    let is_plain = |recording: &RecordingArgs| recording.request().is_none();
    match command {
        CliCommand::Run(args) => is_plain(&args.recording),
        CliCommand::Task(command) => match command {
            TaskCommand::Cancel(_) => true,
            TaskCommand::Resume(args) => {
                args.which.id.is_some() && !args.trust && is_plain(&args.recording)
            }
            TaskCommand::Fork(args) => !args.trust && is_plain(&args.recording),
            TaskCommand::Retry(args) => !args.trust && is_plain(&args.recording),
            TaskCommand::List(_)
            | TaskCommand::Show(_)
            | TaskCommand::Trace(_)
            | TaskCommand::Checkpoints(_)
            | TaskCommand::Watch(_)
            | TaskCommand::Wait(_)
            | TaskCommand::Export(_)
            | TaskCommand::Import(_)
            | TaskCommand::Diff(_) => false,
        },
        CliCommand::Review(command) => match command {
            ReviewCommand::List | ReviewCommand::Show(_) => false,
            ReviewCommand::Approve(args) => !args.decide.trust && is_plain(&args.decide.recording),
            ReviewCommand::Reject(args) | ReviewCommand::Modify(args) => {
                !args.trust && is_plain(&args.recording)
            }
        },
        CliCommand::Agent(command) => match command {
            AgentCommand::Enable(_) | AgentCommand::Disable(_) => true,
            AgentCommand::List
            | AgentCommand::Show(_)
            | AgentCommand::Status(_)
            | AgentCommand::Add(_) => false,
        },
        CliCommand::Execution(command) => match command {
            ExecutionCommand::Cancel(_) => true,
            ExecutionCommand::List(_) | ExecutionCommand::Show(_) => false,
        },
        CliCommand::Init(_)
        | CliCommand::Check
        | CliCommand::Doctor
        // Its commands commit to the stream of the schedule, which the server reads.
        | CliCommand::Schedule(_)
        | CliCommand::Schema(_)
        | CliCommand::Demo
        | CliCommand::Workflow(_)
        | CliCommand::Chart(_)
        | CliCommand::Sim(_)
        | CliCommand::Session(_)
        | CliCommand::Tool(_)
        | CliCommand::Serve(_)
        | CliCommand::Token(_)
        | CliCommand::Gc(_)
        | CliCommand::Cost(_)
        | CliCommand::Backup(_)
        | CliCommand::Restore(_)
        | CliCommand::Completions(_) => false,
    }
}

/// The error of a command that works on a home of this machine only.
fn refusal(command: &str) -> CliError {
    CliError::unsupported(format!("`polity {command}` works on a home, and not through a server"))
        .hint("run it on the server's machine, or with --local on a home of this machine")
}

/// Refuses to record or replay: both happen in the process that performs the work.
fn refuse_recording(recording: &RecordingArgs) -> Result<(), CliError> {
    match recording.request() {
        None => Ok(()),
        Some(_) => Err(CliError::unsupported("a server does not record or replay tasks")
            .hint("run it with --local on a home of this machine")),
    }
}

/// Refuses to trust an imported task from afar.
fn refuse_trust(is_asked: bool) -> Result<(), CliError> {
    if is_asked {
        return Err(CliError::unsupported("--trust does not work through a server")
            .hint("trust the task on the server's machine, with --local"));
    }
    Ok(())
}

async fn show_cost(link: &ServerLink, args: &CostArgs) -> CliResult {
    let keys = cost::keys(args);
    let by: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
    let sums: Vec<Value> = link.client.list(&["cost"], &[("by", by.join(","))], None).await?;
    cost::print(&link.options, &keys, &sums)
}

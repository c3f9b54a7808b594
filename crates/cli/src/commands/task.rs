//! `polity task`: looking at tasks and steering them.

pub(super) mod cancel;
mod checkpoints;
mod diff;
mod export;
mod fork;
mod list;
mod resume;
mod watch;

use polity_model::event::{StreamId, StreamSequence};
use polity_model::session::session_of_task;
use polity_model::trace::TraceLog;
use polity_store::{Store, TaskRow};

use crate::app::App;
use crate::args::{TaskArgs, TaskCommand, TaskShowArgs};
use crate::commands::session::{info, parts_of};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_json, say, steps, task as view};

pub(crate) use checkpoints::checkpoints_of_task;

pub(crate) fn task(app: &App, command: TaskCommand) -> CliResult {
    match command {
        TaskCommand::List(args) => list::list(app, args),
        TaskCommand::Show(args) => show(app, &args),
        TaskCommand::Trace(args) => trace(app, &args),
        TaskCommand::Checkpoints(args) => checkpoints::checkpoints(app, &args),
        TaskCommand::Watch(args) => watch::watch(app, &args),
        TaskCommand::Wait(args) => watch::wait(app, &args),
        TaskCommand::Cancel(args) => cancel::cancel(app, &args),
        TaskCommand::Resume(args) => resume::resume(app, &args),
        TaskCommand::Export(args) => export::export(app, &args),
        TaskCommand::Import(args) => export::import(app, &args),
        TaskCommand::Fork(args) => fork::fork(app, &args),
        TaskCommand::Diff(args) => diff::diff(app, &args),
    }
}

fn show(app: &App, args: &TaskShowArgs) -> CliResult {
    let store = app.reader()?;
    let row = app.task_row(&store, &args.task.id)?;
    if let Some(number) = args.at {
        return checkpoints::show(app, &store, &row, number);
    }
    let task = app.task(&store, &row)?;
    if app.json() {
        print_json(&task)?;
    } else {
        say!("{}", view::details(&task))?;
    }
    Ok(Exit::Done)
}

fn trace(app: &App, args: &TaskArgs) -> CliResult {
    let store = app.reader()?;
    let row = app.task_row(&store, &args.id)?;
    let trace = trace_of(&store, &row)?;
    if app.json() {
        print_json(&trace)?;
    } else {
        say!("{}", told(app, &store, &row)?)?;
    }
    Ok(Exit::Done)
}

/// The trace for people, with those of the sub-agents below it.
pub(super) fn told(app: &App, store: &dyn Store, row: &TaskRow) -> Result<String, CliError> {
    let mut text = steps::tree(&app.task(store, row)?, &trace_of(store, row)?);
    for part in parts_of(store, row.id)? {
        text.push('\n');
        for line in told(app, store, &part)?.lines() {
            text.push_str("\n   ");
            text.push_str(line);
        }
    }
    Ok(text)
}

/// The steps of a task, and the conversations of its sub-agents.
pub(crate) fn trace_of(store: &dyn Store, row: &TaskRow) -> Result<TraceLog, CliError> {
    let events = store.events(&StreamId::Task(row.id), StreamSequence::default())?;
    let mut trace = TraceLog::from_events(row.id, &events).ok_or_else(|| {
        CliError::not_found(format!("the journal of task {} has no beginning", row.id))
    })?;
    let sessions = parts_of(store, row.id)?;
    trace.sub_agent_sessions =
        sessions.iter().map(|part| (session_of_task(part.id), info(part))).collect();
    Ok(trace)
}

//! `polity task`: looking at tasks and steering them.

mod cancel;
mod resume;
mod watch;

use std::sync::Arc;

use polity_engine::checkpoints::checkpoints as checkpoints_of;
use polity_engine::runtime::load;
use polity_model::event::{Sequence, StreamId};
use polity_model::session::session_of_task;
use polity_model::trace::TraceLog;
use polity_store::{Store, TaskFilter, TaskRow};

use crate::app::{App, block_on};
use crate::args::{TaskArgs, TaskCommand, TaskListArgs};
use crate::commands::session::{info, parts_of};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_json, say, steps, table, task as view};

pub(crate) fn task(app: &App, command: TaskCommand) -> CliResult {
    match command {
        TaskCommand::List(args) => list(app, args),
        TaskCommand::Show(args) => show(app, &args),
        TaskCommand::Trace(args) => trace(app, &args),
        TaskCommand::Checkpoints(args) => checkpoints(app, &args),
        TaskCommand::Watch(args) => watch::watch(app, &args),
        TaskCommand::Wait(args) => watch::wait(app, &args),
        TaskCommand::Cancel(args) => cancel::cancel(app, &args),
        TaskCommand::Resume(args) => resume::resume(app, &args),
    }
}

fn list(app: &App, args: TaskListArgs) -> CliResult {
    let store = app.reader()?;
    let filter = TaskFilter {
        statuses: args.status,
        assigned_agent: args.agent,
        limit: Some(args.limit),
        ..TaskFilter::default()
    };
    let mut tasks = Vec::new();
    let mut exit = Exit::Done;
    for row in store.task_rows(&filter)? {
        match app.task(&store, &row) {
            Ok(task) => tasks.push(task),
            // One that cannot be read must not hide the others.
            Err(error) => {
                error.print(app.json());
                exit = Exit::Failed;
            }
        }
    }
    if app.json() {
        print_json(&tasks)?;
    } else if tasks.is_empty() {
        say!("no tasks")?;
    } else {
        say!("{}", view::list(&tasks))?;
    }
    Ok(exit)
}

fn show(app: &App, args: &TaskArgs) -> CliResult {
    let store = app.reader()?;
    let row = app.task_row(&store, &args.id)?;
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

fn checkpoints(app: &App, args: &TaskArgs) -> CliResult {
    let store: Arc<dyn Store> = Arc::new(app.reader()?);
    let id = app.task_row(&*store, &args.id)?.id;
    let checkpoints = block_on(async {
        let closure = load(&store, id).await?.closure;
        let events = store.events(&StreamId::Task(id), Sequence::default())?;
        checkpoints_of(&closure, events)
            .map_err(|broken| CliError::not_found(format!("task {id}: {broken}")))
    })?;
    if app.json() {
        print_json(&checkpoints)?;
    } else if checkpoints.is_empty() {
        say!("no checkpoints")?;
    } else {
        let rows = checkpoints.iter().map(|checkpoint| {
            let messages = checkpoint.state.messages.len();
            [
                checkpoint.sequence.to_string(),
                checkpoint.position.clone(),
                messages.to_string(),
                view::time(checkpoint.created_at),
            ]
        });
        say!("{}", table(["SEQUENCE", "POSITION", "MESSAGES", "TAKEN"], rows))?;
    }
    Ok(Exit::Done)
}

pub(super) fn trace_of(store: &dyn Store, row: &TaskRow) -> Result<TraceLog, CliError> {
    let events = store.events(&StreamId::Task(row.id), Sequence::default())?;
    let mut trace = TraceLog::from_events(row.id, &events).ok_or_else(|| {
        CliError::not_found(format!("the journal of task {} has no beginning", row.id))
    })?;
    let sessions = parts_of(store, row.id)?;
    trace.sub_agent_sessions =
        sessions.iter().map(|part| (session_of_task(part.id), info(part))).collect();
    Ok(trace)
}

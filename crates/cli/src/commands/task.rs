//! `polity task`: looking at tasks and steering them.

mod cancel;
mod resume;
mod watch;

use polity_model::event::{Sequence, StreamId};
use polity_model::trace::TraceLog;
use polity_store::{Store, TaskFilter};

use crate::app::App;
use crate::args::{TaskArgs, TaskCommand, TaskListArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_json, say, steps, task as view};

pub(crate) fn task(app: &App, command: TaskCommand) -> CliResult {
    match command {
        TaskCommand::List(args) => list(app, args),
        TaskCommand::Show(args) => show(app, &args),
        TaskCommand::Trace(args) => trace(app, &args),
        TaskCommand::Watch(args) => watch::watch(app, &args),
        TaskCommand::Wait(args) => watch::wait(app, &args),
        TaskCommand::Cancel(args) => cancel::cancel(app, &args),
        TaskCommand::Resume(args) => resume::resume(app, &args),
    }
}

fn list(app: &App, args: TaskListArgs) -> CliResult {
    let store = app.reader()?;
    let filter =
        TaskFilter { statuses: args.status, assigned_agent: args.agent, limit: Some(args.limit) };
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
        say!("{}", steps::tree(&app.task(&store, &row)?, &trace))?;
    }
    Ok(Exit::Done)
}

pub(super) fn trace_of(
    store: &dyn Store,
    row: &polity_store::TaskRow,
) -> Result<TraceLog, CliError> {
    let events = store.events(&StreamId::Task(row.id), Sequence::default())?;
    TraceLog::from_events(row.id, &events).ok_or_else(|| {
        CliError::not_found(format!("the journal of task {} has no beginning", row.id))
    })
}

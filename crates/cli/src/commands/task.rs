//! `polity task`: inspects and controls tasks.

pub(super) mod cancel;
pub(super) mod checkpoints;
mod diff;
mod export;
pub(super) mod fork;
pub(super) mod list;
mod resume;
mod retry;
pub(super) mod watch;

use std::fmt::Write;

use polity_host::HomeQueries;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use polity_model::trace::{FAILED_ITEMS_SHOWN, ITEMS_SHOWN, TraceLog};
use polity_store::TaskRow;

use crate::app::AppContext;
use crate::args::{TaskArgs, TaskCommand, TaskShowArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{count, steps, task as view};

pub(crate) use watch::follow_to_end;

pub(crate) async fn task(app: &AppContext, command: TaskCommand) -> CliResult {
    match command {
        TaskCommand::List(args) => list::list(app, args).await,
        TaskCommand::Show(args) => show(app, &args).await,
        TaskCommand::Trace(args) => trace(app, &args).await,
        TaskCommand::Checkpoints(args) => checkpoints::checkpoints(app, &args).await,
        TaskCommand::Watch(args) => watch::watch(app, &args).await,
        TaskCommand::Wait(args) => watch::wait(app, &args).await,
        TaskCommand::Cancel(args) => cancel::cancel(app, &args).await,
        TaskCommand::Resume(args) => resume::resume(app, &args).await,
        TaskCommand::Export(args) => export::export(app, &args).await,
        TaskCommand::Import(args) => export::import(app, &args).await,
        TaskCommand::Fork(args) => Box::pin(fork::fork(app, &args)).await,
        TaskCommand::Retry(args) => Box::pin(retry::retry(app, &args)).await,
        TaskCommand::Diff(args) => diff::diff(app, &args).await,
    }
}

async fn show(app: &AppContext, args: &TaskShowArgs) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.task.id).await?;
    if let Some(number) = args.at {
        return checkpoints::show(app, &queries, &row, number).await;
    }
    let task = queries.load_task(row.id).await?;
    app.print(&task, || view::details(&task))
}

async fn trace(app: &AppContext, args: &TaskArgs) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.id).await?;
    if app.json() {
        print_json(&queries.trace(&row).await?)?;
    } else {
        say!("{}", trace_text(&traced_task(&queries, &row).await?))?;
    }
    Ok(ExitStatus::Done)
}

/// A task with its trace and the traces of its parts.
pub(super) struct TracedTask {
    pub(super) task: Task,
    pub(super) trace: TraceLog,
    pub(super) parts: Vec<TracedTask>,
    /// The number of parts that are not shown.
    pub(super) folded: usize,
}

/// Reads the traces of a task and its parts. Of the items of a map, the first and the failed ones are
/// shown.
pub(super) async fn traced_task(
    queries: &HomeQueries,
    row: &TaskRow,
) -> Result<TracedTask, CliError> {
    let (task, trace) = (queries.task_of(row).await?, queries.trace(row).await?);
    let (mut parts, mut failed, mut folded) = (Vec::new(), 0, 0_usize);
    for part in queries.parts(row.id).await? {
        if part.map_item.is_some_and(|item| item >= ITEMS_SHOWN) {
            if part.status != TaskStatus::Failed || failed >= FAILED_ITEMS_SHOWN {
                folded += 1;
                continue;
            }
            failed += 1;
        }
        parts.push(Box::pin(traced_task(queries, &part)).await?);
    }
    Ok(TracedTask { task, trace, parts, folded })
}

/// The trace as text, with the traces of the parts indented below it.
pub(super) fn trace_text(traced: &TracedTask) -> String {
    let mut text = steps::tree(&traced.task, &traced.trace);
    for part in &traced.parts {
        text.push('\n');
        for line in trace_text(part).lines() {
            text.push_str("\n   ");
            text.push_str(line);
        }
    }
    if traced.folded > 0 {
        let parts = format!("polity task list --parent {}", traced.task.id);
        // Writing to a String cannot fail.
        let _ = write!(text, "\n\n   {} more: `{parts}`", count(traced.folded, "item"));
    }
    text
}

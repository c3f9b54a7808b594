//! `polity task`: inspects and controls tasks.

pub(super) mod cancel;
mod checkpoints;
mod diff;
mod export;
mod fork;
mod list;
mod resume;
mod retry;
mod watch;

use std::fmt::Write;

use polity_host::HomeQueries;
use polity_model::machine::task::TaskStatus;
use polity_model::trace::{FAILED_ITEMS_SHOWN, ITEMS_SHOWN};
use polity_store::TaskRow;

use crate::app::AppContext;
use crate::args::{TaskArgs, TaskCommand, TaskShowArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{count, steps, task as view};

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
        say!("{}", trace_text(&queries, &row).await?)?;
    }
    Ok(ExitStatus::Done)
}

/// The trace as text, with the traces of the parts indented below it. Of the items of a map, the
/// first and the failed ones are shown.
pub(super) async fn trace_text(queries: &HomeQueries, row: &TaskRow) -> Result<String, CliError> {
    let mut text = steps::tree(&queries.task_of(row).await?, &queries.trace(row).await?);
    let (mut failed, mut folded) = (0, 0_usize);
    for part in queries.parts(row.id).await? {
        if part.map_item.is_some_and(|item| item >= ITEMS_SHOWN) {
            if part.status != TaskStatus::Failed || failed >= FAILED_ITEMS_SHOWN {
                folded += 1;
                continue;
            }
            failed += 1;
        }
        text.push('\n');
        for line in Box::pin(trace_text(queries, &part)).await?.lines() {
            text.push_str("\n   ");
            text.push_str(line);
        }
    }
    if folded > 0 {
        let parts = format!("polity task list --parent {}", row.id);
        // Writing to a String cannot fail.
        let _ = write!(text, "\n\n   {} more: `{parts}`", count(folded, "item"));
    }
    Ok(text)
}

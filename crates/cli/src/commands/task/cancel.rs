//! `polity task cancel`: ends a task, whichever process runs it.

use polity_definition::Home;
use polity_engine::runtime::EngineError;
use polity_host::{HomeQueries, Host, cancel_task};
use polity_model::ids::TaskId;
use polity_model::task::Task;

use crate::app::{AppContext, close};
use crate::args::{GlobalOptions, TaskArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::signals::unless_stopped;
use crate::terminal::{note, print_json, say};
use crate::view::task as view;

pub(crate) async fn cancel(app: &AppContext, args: &TaskArgs) -> CliResult {
    let queries = app.queries()?;
    let id = queries.find_task(&args.id).await?.id;
    let home = app.definitions()?;
    cancel_task(&app.context, &home, &queries, id).await?;
    let left = compensating_tasks(&queries, id).await?;
    if !left.is_empty() {
        compensate(app, &home, &left).await?;
    }
    let row = queries.task_row(id).await?;
    let task = queries.task_of(&row).await?;
    print(&app.options, &task)?;
    if !app.json() {
        let top = queries.top_task(row).await?;
        if top.id != id && top.owner.is_none() {
            note!("task {} can be resumed with `polity task resume {}`", top.id, top.id);
        }
    }
    Ok(ExitStatus::Done)
}

/// Prints a task that was cancelled.
pub(crate) fn print(options: &GlobalOptions, task: &Task) -> Result<(), CliError> {
    if options.json {
        return print_json(task);
    }
    say!("task {} is {}", task.id, view::status_text(task))?;
    if let Some(error) = &task.error {
        note!("{error}");
    }
    Ok(())
}

/// The task and its parts that no process runs and that have not ended: they undo finished nodes.
async fn compensating_tasks(queries: &HomeQueries, id: TaskId) -> Result<Vec<TaskId>, CliError> {
    let (mut left, mut waiting) = (Vec::new(), vec![id]);
    while let Some(task) = waiting.pop() {
        let row = queries.task_row(task).await?;
        // The worker of a task takes care of the parts.
        if queries.is_interrupted(&row).await? {
            left.push(task);
        } else {
            waiting.extend(queries.parts(task).await?.iter().map(|part| part.id));
        }
    }
    Ok(left)
}

/// Runs the compensations of cancelled workflows, and waits until they have ended.
async fn compensate(app: &AppContext, home: &Home, tasks: &[TaskId]) -> Result<(), CliError> {
    note!("undoing the finished nodes before the task ends");
    let host = Host::open(&app.context, home).await?;
    let left = || {
        CliError::conflict("left the task interrupted")
            .hint("undo the rest with `polity task resume`, or leave it with `polity task cancel`")
    };
    let work = async {
        for task in tasks {
            match host.runtime().adopt(*task).await {
                Ok(mut handle) => _ = handle.wait().await?,
                // Another process adopted it first, or has ended it.
                Err(EngineError::Rejected(_) | EngineError::TakenOver(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    let outcome = Box::pin(unless_stopped(app, &host, left, work)).await;
    close(host).await;
    outcome.flatten()
}

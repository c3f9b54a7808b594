//! `polity task export` and `polity task import`.

use std::sync::Arc;

use polity_host::archive::{FolderOutcome, ImportReport, export_task, import_tasks};
use polity_model::ids::TaskId;
use serde_json::json;

use crate::app::AppContext;
use crate::args::{ExportArgs, ImportArgs};
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::access::pinned_access;
use crate::view::{count, task as view};

pub(super) async fn export(app: &AppContext, args: &ExportArgs) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.id).await?;
    let exported = export_task(&queries, &row, &args.out, args.force).await?;
    if app.json() {
        let ids: Vec<TaskId> = exported.iter().map(|exported| exported.task).collect();
        print_json(&json!({"task_id": row.id, "out": args.out, "tasks": ids}))?;
        return Ok(ExitStatus::Done);
    }
    for exported in exported {
        let folder = args.out.join("tasks").join(exported.task.to_string());
        let (folder, files) = (folder.display(), count(exported.files, "file"));
        match exported.outcome {
            FolderOutcome::Written => say!("wrote {folder} ({files})")?,
            FolderOutcome::Unchanged => say!("{folder} is up to date")?,
        }
    }
    Ok(ExitStatus::Done)
}

pub(super) async fn import(app: &AppContext, args: &ImportArgs) -> CliResult {
    let home = app.definitions()?;
    let ImportReport { imported, present, store } =
        import_tasks(&app.context, &home, &args.dir).await?;
    let queries = app.context.queries_on(Arc::new(store));
    let mut unfinished = Vec::new();
    let mut statuses = Vec::new();
    for task in &imported {
        let task = queries.load_task(*task).await?;
        statuses.push(view::status_text(&task));
        // The list of a task has that of its parts.
        if task.needs_trust && task.parent_task_id.is_none_or(|parent| !imported.contains(&parent))
        {
            unfinished.push((task.id, queries.pinned_access(task.id).await?));
        }
    }
    if app.json() {
        let untrusted: Vec<_> = unfinished
            .iter()
            .map(|(task, access)| json!({"task_id": task, "access": access}))
            .collect();
        print_json(&json!({"imported": imported, "present": present, "untrusted": untrusted}))?;
        return Ok(ExitStatus::Done);
    }
    for task in present {
        say!("task {task} is already in this home, unchanged")?;
    }
    for (task, status) in imported.iter().zip(statuses) {
        say!("imported task {task} ({status})")?;
    }
    for (task, access) in unfinished {
        say!(
            "\ntask {task} runs only after you trust it. It would use:\n{}",
            pinned_access(&access)
        )?;
        say!("if you trust all of it: `polity task resume {task} --trust`")?;
    }
    Ok(ExitStatus::Done)
}

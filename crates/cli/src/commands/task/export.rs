//! `polity task export` and `polity task import`.

use std::collections::BTreeMap;

use polity_model::event::{StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_store::{Import, ImportError, Store};
use serde_json::json;

use crate::app::App;
use crate::archive::{self, Stage, Written};
use crate::args::{ExportArgs, ImportArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{count, print_json, say, task as view};

pub(super) fn export(app: &App, args: &ExportArgs) -> CliResult {
    let store = app.reader()?;
    let row = app.task_row(&store, &args.id)?;
    if let Some(parent) = row.parent_task_id {
        let what = format!("task {} is a part of task {parent}", row.id);
        return Err(CliError::usage(what)
            .hint(format!("export it with the whole: `polity task export {parent} --out DIR`")));
    }
    let stage = Stage::of(archive::collect(&store, row.id)?)
        .map_err(|error| CliError::archive(format!("task {}: {error}", row.id)))?;
    let mut tasks: Vec<(TaskId, BTreeMap<String, Vec<u8>>)> = Vec::new();
    for import in stage.imports() {
        let interrupted = app.is_interrupted(&stage.row(import.task)?);
        tasks.push((import.task, stage.files(import, interrupted)?));
    }
    // The task that was asked for comes last: where it is, all that belongs to it is too.
    tasks.sort_by_key(|(task, _)| *task == row.id);
    let outcomes = archive::write(&args.out, row.id, &tasks, args.force)?;
    if app.json() {
        let ids: Vec<TaskId> = tasks.iter().map(|(task, _)| *task).collect();
        print_json(&json!({"task_id": row.id, "out": args.out, "tasks": ids}))?;
        return Ok(Exit::Done);
    }
    for ((task, files), outcome) in tasks.iter().zip(outcomes) {
        let folder = args.out.join("tasks").join(task.to_string());
        match outcome {
            Written::New => say!("wrote {} ({})", folder.display(), count(files.len(), "file"))?,
            Written::AsItWas => say!("{} is there already", folder.display())?,
        }
    }
    Ok(Exit::Done)
}

pub(super) fn import(app: &App, args: &ImportArgs) -> CliResult {
    let home = app.definitions()?;
    // Nothing is opened, let alone made, for an archive that is of no use.
    let stage = archive::read(&args.dir)?;
    let store = app.writer(&home)?;
    let (mut new, mut present) = (Vec::new(), Vec::new());
    for import in stage.into_imports() {
        if is_here(&store, &import)? { present.push(import.task) } else { new.push(import) }
    }
    let imported: Vec<TaskId> = new.iter().map(|import| import.task).collect();
    if !new.is_empty() {
        store.import(new).map_err(refused)?;
    }
    if app.json() {
        print_json(&json!({"imported": imported, "present": present}))?;
        return Ok(Exit::Done);
    }
    for task in present {
        say!("task {task} is here already, as it is there")?;
    }
    for task in imported {
        let row = store.task_row(task)?;
        let told = row.map(|row| app.task(&store, &row)).transpose()?;
        let status = told.map(|task| view::status_text(&task)).unwrap_or_default();
        say!("imported task {task} ({status})")?;
    }
    Ok(Exit::Done)
}

/// Whether the store has the task with the very same events. One with others is a conflict.
fn is_here(store: &dyn Store, import: &Import) -> Result<bool, CliError> {
    let here = store.events(&StreamId::Task(import.task), StreamSequence::default())?;
    if here.is_empty() {
        return Ok(false);
    }
    let same = here
        .iter()
        .zip(&import.events)
        .take_while(|(here, (at, event))| (here.at, &here.event) == (*at, event));
    let same = same.count();
    if same == here.len() && same == import.events.len() {
        return Ok(true);
    }
    let what = match (here.len() > same, import.events.len() > same) {
        (true, true) => format!("they differ from event {} on", same + 1),
        (true, false) => "it has gone on here since it was exported".to_owned(),
        (false, _) => "it had gone on there when it was exported".to_owned(),
    };
    let conflict = format!("task {} is here already and not the same: {what}", import.task);
    Err(CliError::conflict(conflict)
        .hint("nothing was imported; use another home with --home to have both"))
}

fn refused(error: ImportError) -> CliError {
    match error {
        ImportError::Store(error) => error.into(),
        ImportError::Exists { .. } => {
            CliError::conflict(error).hint("nothing was imported; another process was faster")
        }
        ImportError::Illegal { .. } => CliError::archive(error),
    }
}

//! `polity task resume`: goes on with what a process left when it ended.

use polity_engine::runtime::orphans;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;

use crate::app::{App, Workshop, block_on};
use crate::args::ResumeArgs;
use crate::commands::run::{follow, present};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{count, print_json, task as view};

pub(crate) fn resume(app: &App, args: &ResumeArgs) -> CliResult {
    match &args.id {
        Some(id) => one(app, id),
        None => all(app),
    }
}

fn one(app: &App, id: &str) -> CliResult {
    let row = app.task_row(&app.reader()?, id)?;
    let home = app.definitions()?;
    block_on(async {
        let workshop = Workshop::open(app, &home)?;
        let live = workshop.runtime.subscribe();
        let handle = workshop.runtime.adopt(row.id).await?;
        let task = follow(app, &workshop, handle, live).await?;
        present(app, &task)
    })
}

fn all(app: &App) -> CliResult {
    if orphans(&app.reader()?, &app.instances())?.is_empty() {
        if app.json() {
            print_json(&Vec::<Task>::new())?;
        } else {
            anstream::println!("nothing to resume");
        }
        return Ok(Exit::Done);
    }
    let home = app.definitions()?;
    let tasks = block_on(async {
        let workshop = Workshop::open(app, &home)?;
        let mut handles = Vec::new();
        for row in orphans(&*workshop.store, &app.instances())? {
            match workshop.runtime.adopt(row.id).await {
                Ok(handle) => handles.push(handle),
                // Another process was faster, or someone has ended it: it is not left alone.
                Err(error) if app.shows_progress() => anstream::eprintln!("{error}"),
                Err(_) => {}
            }
        }
        if app.shows_progress() {
            anstream::eprintln!("resuming {}", count(handles.len(), "task"));
        }
        let mut tasks = Vec::new();
        for mut handle in handles {
            handle.wait().await?;
            tasks.push(workshop.task(app, handle.id)?);
        }
        Ok::<_, CliError>(tasks)
    })?;
    let all_well = tasks.iter().all(|task| task.status == TaskStatus::Completed);
    if app.json() {
        print_json(&tasks)?;
    } else {
        anstream::println!("{}", view::list(&tasks));
    }
    Ok(if all_well { Exit::Done } else { Exit::Failed })
}

//! `polity task resume`: goes on with what a process left when it ended.

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::decide::Rejection;
use polity_engine::runtime::{EngineError, orphans, top_of};
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use polity_store::TaskRow;

use crate::app::{App, Workshop, block_on};
use crate::args::{ResumeArgs, TapeArgs};
use crate::commands::run::{follow, present};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::tape::{Part, Tape, TapeFile};
use crate::view::{count, note, print_json, say, task as view};

pub(crate) fn resume(app: &App, args: &ResumeArgs) -> CliResult {
    match &args.which.id {
        Some(id) => one(app, id, &args.tape),
        None => all(app),
    }
}

fn one(app: &App, id: &str, tape: &TapeArgs) -> CliResult {
    let reader = app.reader()?;
    // A sub-agent goes on with the task that it is a part of.
    let row = top_of(&reader, app.task_row(&reader, id)?)?;
    let home = app.definitions()?;
    let agent = row.assigned_agent.as_str();
    let file = TapeFile::find(tape, agent, Part::Rest)?;
    let input = app.task(&reader, &row)?.description;
    block_on(async {
        let (drivers, tape) = Tape::open(file, app, &home, agent, &input)?;
        let workshop = Workshop::open_with(app, &home, drivers)?;
        let outcome = go_on(app, &workshop, &tape, &row).await;
        workshop.close().await;
        outcome
    })
}

/// Takes a task over, and follows it to its end.
async fn go_on(app: &App, workshop: &Workshop, tape: &Tape, row: &TaskRow) -> CliResult {
    let live = workshop.runtime.subscribe();
    let task = match workshop.runtime.adopt(row.id).await {
        Ok(handle) => follow(app, workshop, handle, live).await?,
        // No one decided in time, and that has just ended it.
        Err(EngineError::Rejected(Rejection::Finished { .. })) if !row.status.is_final() => {
            workshop.task(app, row.id)?
        }
        Err(error) => return Err(error.into()),
    };
    let exit = present(app, &task)?;
    tape.finish(app, &task)?;
    Ok(exit)
}

fn all(app: &App) -> CliResult {
    if orphans(&app.reader()?, &app.instances(), SystemClock.now())?.is_empty() {
        if app.json() {
            print_json(&Vec::<Task>::new())?;
        } else {
            say!("nothing to resume")?;
        }
        return Ok(Exit::Done);
    }
    let home = app.definitions()?;
    let (tasks, failed) = block_on(async {
        let workshop = Workshop::open(app, &home)?;
        let mut handles = Vec::new();
        let mut ended = Vec::new();
        let mut failed = 0;
        for row in orphans(&*workshop.store, &app.instances(), SystemClock.now())? {
            match workshop.runtime.adopt(row.id).await {
                Ok(handle) => handles.push(handle),
                // No one decided in time, or someone else has ended it.
                Err(EngineError::Rejected(Rejection::Finished { .. })) => ended.push(row.id),
                // Another process was faster: it is not left alone.
                Err(
                    EngineError::TakenOver(_)
                    | EngineError::Rejected(
                        Rejection::OwnerAlive { .. } | Rejection::AwaitingHuman { .. },
                    ),
                ) => {}
                Err(error) => {
                    failed += 1;
                    CliError::from(error).print(app.json());
                }
            }
        }
        if app.shows_progress() {
            note!("resuming {}", count(handles.len(), "task"));
        }
        let ended = ended.into_iter().map(|id| workshop.task(app, id));
        let mut tasks = ended.collect::<Result<Vec<_>, _>>()?;
        for mut handle in handles {
            // One that could not be finished here is told of, and the others go on.
            if let Err(error) = handle.wait().await {
                failed += 1;
                CliError::from(error).print(app.json());
            }
            tasks.push(workshop.task(app, handle.id)?);
        }
        workshop.close().await;
        Ok::<_, CliError>((tasks, failed))
    })?;
    if app.json() {
        print_json(&tasks)?;
    } else {
        say!("{}", view::list(&tasks, &view::Column::Parent))?;
    }
    let is_well =
        |task: &Task| [TaskStatus::Completed, TaskStatus::AwaitingHuman].contains(&task.status);
    let waits = tasks.iter().any(|task| task.status == TaskStatus::AwaitingHuman);
    Ok(match (failed == 0 && tasks.iter().all(is_well), waits) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::AwaitingHuman,
        (true, false) => Exit::Done,
    })
}

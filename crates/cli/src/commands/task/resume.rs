//! `polity task resume`: goes on with what a process left when it ended.

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::decide::CommandRejection;
use polity_engine::driver::RunOverrides;
use polity_engine::runtime::{EngineError, orphans};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use polity_store::TaskRow;

use crate::app::{App, Workshop, block_on};
use crate::args::{ResumeArgs, TapeArgs};
use crate::commands::run::{follow, present};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::tape::{Given, Part, Tape, TapeFile, carrier_of};
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
    let row = carrier_of(tape, &reader, app.task_row(&reader, id)?)?;
    let home = app.definitions()?;
    let agent = row.assigned_agent.as_str();
    let file = TapeFile::find(tape, agent, Part::Rest)?;
    let input = app.task(&reader, &row)?.description;
    let given = Given { agent, input: &input, overrides: &RunOverrides::default() };
    block_on(async {
        let (drivers, tape) = Tape::open(file, app, &home, given)?;
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
        Err(EngineError::Rejected(CommandRejection::Finished { .. })) if !row.status.is_final() => {
            workshop.task(app, row.id)?
        }
        Err(error) => return Err(error.into()),
    };
    let exit = present(app, &task)?;
    tape.finish(app, &task)?;
    Ok(exit)
}

/// What became of a task that no one worked on.
enum Fate {
    /// It went on here, or was over as soon as someone looked: its status says what came of it.
    WentOn(Task),
    /// Another process was faster: it is not left alone.
    Elsewhere,
    /// It could not go on here, or not to its end; why has been told.
    Stuck(Task),
}

impl Fate {
    /// The task, unless it is someone else's.
    fn task_here(&self) -> Option<&Task> {
        match self {
            Self::WentOn(task) | Self::Stuck(task) => Some(task),
            Self::Elsewhere => None,
        }
    }

    /// In words that several tasks can share.
    fn in_words(&self) -> &'static str {
        match self {
            Self::WentOn(task) => match task.status {
                TaskStatus::Completed => "completed",
                TaskStatus::Failed => "failed",
                TaskStatus::Cancelled => "cancelled",
                TaskStatus::AwaitingHuman => "waiting for a person",
                TaskStatus::Pending | TaskStatus::Running => "not at its end",
            },
            Self::Elsewhere => "at work in another process",
            Self::Stuck(_) => "not to be resumed here",
        }
    }

    fn is_well(&self) -> bool {
        match self {
            Self::WentOn(task) => {
                [TaskStatus::Completed, TaskStatus::AwaitingHuman].contains(&task.status)
            }
            Self::Elsewhere => true,
            Self::Stuck(_) => false,
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::WentOn(task) if task.status == TaskStatus::AwaitingHuman)
    }
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
    let fates = block_on(async {
        let workshop = Workshop::open(app, &home)?;
        let fates = resume_all(app, &workshop).await;
        workshop.close().await;
        fates
    })?;
    let tasks: Vec<Task> = fates.iter().filter_map(Fate::task_here).cloned().collect();
    if app.json() {
        print_json(&tasks)?;
    } else {
        if !tasks.is_empty() {
            say!("{}\n", view::list(&tasks, &view::Column::Parent))?;
        }
        say!("{}", summary(&fates))?;
    }
    Ok(match (fates.iter().all(Fate::is_well), fates.iter().any(Fate::waits)) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::AwaitingHuman,
        (true, false) => Exit::Done,
    })
}

/// Takes over all that is left, oldest first, and waits until no one works on any of it.
async fn resume_all(app: &App, workshop: &Workshop) -> Result<Vec<Fate>, CliError> {
    let told = |id: TaskId, error: EngineError| CliError::from(error).of_task(id).print(app.json());
    let mut adopted = Vec::new();
    for row in orphans(&*workshop.store, &app.instances(), SystemClock.now())? {
        adopted.push((row.id, workshop.runtime.adopt(row.id).await));
    }
    if app.shows_progress() {
        let at_work = adopted.iter().filter(|(_, adopted)| adopted.is_ok()).count();
        note!("resuming {}", count(at_work, "task"));
    }
    let mut fates = Vec::new();
    for (id, adopted) in adopted {
        let outcome = match adopted {
            Ok(mut handle) => handle.wait().await.map(drop),
            Err(error) => Err(error),
        };
        let task = workshop.task(app, id)?;
        fates.push(match outcome {
            // No one decided in time, and that has ended it or led to the next question.
            Ok(())
            | Err(EngineError::Rejected(
                CommandRejection::Finished { .. } | CommandRejection::AwaitingHuman { .. },
            )) => Fate::WentOn(task),
            Err(
                EngineError::TakenOver(_)
                | EngineError::Rejected(CommandRejection::OwnerAlive { .. }),
            ) => Fate::Elsewhere,
            // One that could not be finished here is told of, and the others go on.
            Err(error) => {
                told(id, error);
                Fate::Stuck(task)
            }
        });
    }
    Ok(fates)
}

/// How many tasks came to what.
fn summary(fates: &[Fate]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for fate in fates {
        let what = fate.in_words();
        match counts.iter_mut().find(|(known, _)| *known == what) {
            Some((_, number)) => *number += 1,
            None => counts.push((what, 1)),
        }
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(what, number)| format!("{number} {what}")).collect();
    format!("{}: {}", count(fates.len(), "task"), counts.join(", "))
}

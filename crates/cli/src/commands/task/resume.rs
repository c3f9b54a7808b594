//! `polity task resume`: resumes interrupted tasks.

use polity_engine::decide::CommandRejection;
use polity_engine::driver::RunOverrides;
use polity_engine::runtime::EngineError;
use polity_host::Host;
use polity_host::recording::{
    CassetteFile, Recording, RecordingScope, RecordingSubject, resumable_task,
};
use polity_model::event::JournalPosition;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use polity_store::TaskRow;

use crate::app::{AppContext, close};
use crate::args::ResumeArgs;
use crate::commands::run::{finish, follow, present};
use crate::commands::trust::{explain, trust_if_asked};
use crate::error::{CliError, CliResult, print_error};
use crate::exit::ExitStatus;
use crate::signals::unless_stopped;
use crate::terminal::note;
use crate::view::{count, task as view};

pub(crate) async fn resume(app: &AppContext, args: &ResumeArgs) -> CliResult {
    match &args.which.id {
        Some(id) => one(app, id, args).await,
        None => all(app).await,
    }
}

async fn one(app: &AppContext, id: &str, args: &ResumeArgs) -> CliResult {
    let queries = app.queries()?;
    let request = args.recording.request();
    // A part is resumed with its root task.
    let row = queries.find_task(id).await?;
    let row = resumable_task(request.as_ref(), &queries, row).await?;
    let home = app.definitions()?;
    let agent = row.assigned_agent.as_str();
    let open = |request| CassetteFile::open(request, agent, RecordingScope::Remainder);
    let file = request.map(open).transpose()?;
    let input = queries.task_of(&row).await?.description;
    let run = RecordingSubject { agent, input: &input, overrides: &RunOverrides::default() };
    let (drivers, recording) = Recording::open(file, &app.context, &home, run)?;
    let host = Host::open_with(&app.context, &home, drivers).await?;
    trust_if_asked(&host, row.id, args.trust).await?;
    let outcome = adopt(app, &host, &recording, &row).await;
    close(host).await;
    outcome
}

/// Adopts a task and follows it to its end.
async fn adopt(app: &AppContext, host: &Host, recording: &Recording, row: &TaskRow) -> CliResult {
    let live = host.runtime().subscribe();
    let task = match host.runtime().adopt(row.id).await {
        Ok(handle) => follow(app, host, handle, live, JournalPosition::default()).await?,
        // The deadline of its review had passed, and adoption has ended the task.
        Err(EngineError::Rejected(CommandRejection::Finished { .. })) if !row.status.is_final() => {
            host.queries().load_task(row.id).await?
        }
        Err(error) => return Err(explain(host.queries(), error).await),
    };
    let exit = present(&app.options, &task)?;
    finish(app, recording, &task)?;
    Ok(exit)
}

/// The outcome of resuming one task.
enum ResumeOutcome {
    /// The task ran here, or had ended already.
    Resumed(Task),
    /// Another process adopted the task first.
    OwnedElsewhere,
    /// The task could not be resumed here; the error was printed.
    NotResumed(Task),
}

impl ResumeOutcome {
    /// The task, unless another process owns it.
    fn task_here(&self) -> Option<&Task> {
        match self {
            Self::Resumed(task) | Self::NotResumed(task) => Some(task),
            Self::OwnedElsewhere => None,
        }
    }

    /// The outcome as a label for the summary.
    fn in_words(&self) -> &'static str {
        match self {
            Self::Resumed(task) => match task.status {
                TaskStatus::Completed => "completed",
                TaskStatus::Failed => "failed",
                TaskStatus::Cancelled => "cancelled",
                TaskStatus::AwaitingHuman => "waiting for a person",
                TaskStatus::Pending | TaskStatus::Running => "not ended",
            },
            Self::OwnedElsewhere => "running in another process",
            Self::NotResumed(_) => "not resumable here",
        }
    }

    fn is_well(&self) -> bool {
        match self {
            Self::Resumed(task) => {
                [TaskStatus::Completed, TaskStatus::AwaitingHuman].contains(&task.status)
            }
            Self::OwnedElsewhere => true,
            Self::NotResumed(_) => false,
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Resumed(task) if task.status == TaskStatus::AwaitingHuman)
    }
}

async fn all(app: &AppContext) -> CliResult {
    let orphans = app.queries()?.orphans().await?;
    let untrusted: Vec<String> = orphans.untrusted.iter().map(|row| view::short(row.id)).collect();
    if !untrusted.is_empty() {
        note!(
            "{} not resumed: {}; `polity task resume ID` lists what a task would run",
            count(untrusted.len(), "imported task"),
            untrusted.join(", ")
        );
    }
    if orphans.resumable.is_empty() {
        return app.print_list(&[] as &[Task], "nothing to resume", String::new);
    }
    let home = app.definitions()?;
    let host = Host::open(&app.context, &home).await?;
    let left = || {
        CliError::conflict("left the tasks interrupted")
            .hint("continue with `polity task resume --all`")
    };
    let outcomes = Box::pin(unless_stopped(app, &host, left, resume_all(app, &host))).await;
    close(host).await;
    let outcomes = outcomes.flatten()?;
    let tasks: Vec<Task> = outcomes.iter().filter_map(ResumeOutcome::task_here).cloned().collect();
    app.print(&tasks, || match summary(&outcomes) {
        summary if tasks.is_empty() => summary,
        summary => format!("{}\n\n{summary}", view::list(&tasks, &view::TaskListColumn::Parent)),
    })?;
    let is_well = outcomes.iter().all(ResumeOutcome::is_well);
    Ok(match (is_well, outcomes.iter().any(ResumeOutcome::waits)) {
        (false, _) => ExitStatus::Failed,
        (true, true) => ExitStatus::AwaitingHuman,
        (true, false) => ExitStatus::Done,
    })
}

/// Adopts all interrupted tasks, oldest first, and waits until they end or await a review.
async fn resume_all(app: &AppContext, host: &Host) -> Result<Vec<ResumeOutcome>, CliError> {
    let told = |id: TaskId, error: EngineError| {
        print_error(&CliError::from(error).of_task(id), app.json());
    };
    let mut adopted = Vec::new();
    for row in host.queries().orphans().await?.resumable {
        adopted.push((row.id, host.runtime().adopt(row.id).await));
    }
    if app.shows_progress() {
        let at_work = adopted.iter().filter(|(_, adopted)| adopted.is_ok()).count();
        note!("resuming {}", count(at_work, "task"));
    }
    let mut outcomes = Vec::new();
    for (id, adopted) in adopted {
        let outcome = match adopted {
            Ok(mut handle) => handle.wait().await.map(drop),
            Err(error) => Err(error),
        };
        let task = host.queries().load_task(id).await?;
        outcomes.push(match outcome {
            // The deadline of its review had passed, which ended the task or opened the next review.
            Ok(())
            | Err(EngineError::Rejected(
                CommandRejection::Finished { .. } | CommandRejection::AwaitingHuman { .. },
            )) => ResumeOutcome::Resumed(task),
            Err(
                EngineError::TakenOver(_)
                | EngineError::Rejected(CommandRejection::OwnerAlive { .. }),
            ) => ResumeOutcome::OwnedElsewhere,
            // An error of one task does not stop the others.
            Err(error) => {
                told(id, error);
                ResumeOutcome::NotResumed(task)
            }
        });
    }
    Ok(outcomes)
}

/// The number of tasks per outcome.
fn summary(outcomes: &[ResumeOutcome]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for outcome in outcomes {
        let what = outcome.in_words();
        match counts.iter_mut().find(|(known, _)| *known == what) {
            Some((_, number)) => *number += 1,
            None => counts.push((what, 1)),
        }
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(what, number)| format!("{number} {what}")).collect();
    format!("{}: {}", count(outcomes.len(), "task"), counts.join(", "))
}

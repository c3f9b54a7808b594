//! `polity schedule run`: a run by hand, by the server if there is one, else here.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use polity_definition::{Home, ScheduleDefinition};
use polity_engine::driver::RunOverrides;
use polity_engine::pinned::Assignee;
use polity_engine::runtime::{EngineError, TaskHandle};
use polity_engine::schedule::{ScheduleCommand, ScheduleRejection, StartFault};
use polity_host::recording::{Recording, RecordingSubject};
use polity_host::{Host, ScheduledStart, find_schedule, schedule_assignee, start_scheduled};
use polity_model::event::{ScheduleChange, TickTrigger};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;

use super::control::{commit, commit_to};
use super::is_served;
use crate::app::{AppContext, close};
use crate::args::schedule::ScheduleRunArgs;
use crate::commands::run::{background, perform};
use crate::commands::task::follow_to_end;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};

/// The time that the server has to start a run.
const SERVER_SECONDS_MAX: u64 = 60;

/// The interval between two looks at the records.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn run(app: &AppContext, args: &ScheduleRunArgs) -> CliResult {
    let background = background::is_background();
    if !background && is_served(app) {
        return ask_server(app, args).await;
    }
    if args.detach && !background {
        return background::detach(app).await;
    }
    if background {
        background::leave_terminal();
    }
    let home = app.definitions()?;
    let definition = find_schedule(&home, &args.schedule.name)?;
    let toggles = app.queries()?.agent_toggles().await?;
    let assignee = schedule_assignee(&app.context, &home, &toggles, &definition)
        .map_err(|fault| cannot_start(&definition, fault))?;
    let overrides = RunOverrides::default();
    let agent = definition.target.name().as_str();
    let subject = RecordingSubject { agent, input: "", overrides: &overrides };
    let (drivers, recording) = Recording::open(None, &app.context, &home, subject)?;
    let host = Host::open_with(&app.context, &home, drivers).await?;
    let outcome = perform_here(app, &host, &recording, background, &definition, assignee).await;
    close(host).await;
    outcome
}

fn cannot_start(definition: &ScheduleDefinition, fault: StartFault) -> EngineError {
    let StartFault { code, message } = fault;
    let schedule = definition.name.clone();
    EngineError::Schedule(ScheduleRejection::CannotStart { schedule, code, message })
}

/// Records the run, performs it in this process, and records its end.
async fn perform_here(
    app: &AppContext,
    host: &Host,
    recording: &Recording,
    background: bool,
    definition: &ScheduleDefinition,
    assignee: Assignee,
) -> CliResult {
    let store = &**host.queries().store();
    let run_now = ScheduleCommand::RunNow { task_id: None };
    let changes = commit_to(store, definition, &run_now).await?;
    let (due, id) = changes.iter().rev().find_map(started).ok_or_else(|| {
        CliError::conflict(format!("the schedule \"{}\" started nothing", definition.name))
    })?;
    let begin = begin(host, definition, assignee, due, id);
    let outcome = Box::pin(perform(app, host, recording, background, begin)).await;
    let row = store.task_row(id).await?;
    let end = |completed, cancelled| ScheduleCommand::End { task_id: id, completed, cancelled };
    let command = match row.map(|row| row.status) {
        Some(TaskStatus::Completed) => end(true, false),
        Some(TaskStatus::Failed) => end(false, false),
        Some(TaskStatus::Cancelled) => end(false, true),
        // The server records the end of a task that a person continues.
        Some(TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman) => {
            return outcome;
        }
        None => {
            let message = outcome.as_ref().err().map_or("", |error| error.message()).to_owned();
            let fault = StartFault { code: "not_started".to_owned(), message };
            ScheduleCommand::FailStart { task_id: id, fault }
        }
    };
    // Due times that wait are left to a server.
    commit_to(store, definition, &command).await?;
    outcome
}

async fn begin(
    host: &Host,
    definition: &ScheduleDefinition,
    assignee: Assignee,
    due: Timestamp,
    id: TaskId,
) -> Result<TaskHandle, EngineError> {
    match start_scheduled(host, assignee, definition, due, id).await {
        ScheduledStart::Started(handle) => Ok(handle),
        // A server that has just started was faster.
        ScheduledStart::Exists => Err(EngineError::TakenOver(id)),
        ScheduledStart::Later(error) => Err(error),
        ScheduledStart::Failed(fault) => Err(cannot_start(definition, fault)),
    }
}

fn started(change: &ScheduleChange) -> Option<(Timestamp, TaskId)> {
    let ScheduleChange::Tick { due, outcome, .. } = change else { return None };
    outcome.task_id().map(|task_id| (*due, task_id))
}

/// Asks the server for a run, and follows its task.
async fn ask_server(app: &AppContext, args: &ScheduleRunArgs) -> CliResult {
    let home = app.definitions()?;
    let definition = find_schedule(&home, &args.schedule.name)?;
    let due = request_run(app, &home, &definition).await?;
    let name = &definition.name;
    let queries = app.queries()?;
    let began = Instant::now();
    let id = loop {
        let rows = queries.schedule_history(name, 100).await?;
        let row = rows.into_iter().find(|row| row.due == due && row.trigger == "manual");
        match row.map(|row| (row.task_id, row.task_status, row.outcome, row.message)) {
            Some((Some(id), Some(_), _, _)) => break id,
            Some((_, _, "failed" | "skipped", message)) => {
                let reason = message.unwrap_or_else(|| "it was withdrawn".to_owned());
                return Err(CliError::conflict(format!("\"{name}\" was not started: {reason}")));
            }
            Some(_) | None => {}
        }
        if began.elapsed() > Duration::from_secs(SERVER_SECONDS_MAX) {
            let message =
                format!("the server has not started \"{name}\" within {SERVER_SECONDS_MAX} s");
            return Err(CliError::timed_out(message).hint(format!(
                "it is queued: `polity schedule history {name}` shows when it starts"
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    if !args.detach {
        return follow_to_end(app, id).await;
    }
    if app.json() {
        print_json(&queries.load_task(id).await?)?;
    } else {
        say!("{id}")?;
    }
    Ok(ExitStatus::Done)
}

/// Queues a run by hand and returns its due time.
async fn request_run(
    app: &AppContext,
    home: &Home,
    definition: &ScheduleDefinition,
) -> Result<Timestamp, CliError> {
    let toggles = app.queries()?.agent_toggles().await?;
    schedule_assignee(&app.context, home, &toggles, definition)
        .map_err(|fault| cannot_start(definition, fault))?;
    let changes = commit(app, home, definition, &ScheduleCommand::RequestRun).await?;
    let queued = changes.iter().find_map(|change| {
        let ScheduleChange::Tick { due, trigger: TickTrigger::Manual, .. } = change else {
            return None;
        };
        Some(*due)
    });
    queued.ok_or_else(|| CliError::conflict("the run was not queued"))
}

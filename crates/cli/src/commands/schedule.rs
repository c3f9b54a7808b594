//! `polity schedule`: lists, shows, adds, controls and runs schedules.
//!
//! Changes are commits to the schedule's stream, with or without a server; the server reads them
//! there. Only a server starts due times.

mod add;
mod control;
mod run;

use polity_engine::clock::{Clock as _, SystemClock};
use polity_host::{DueTimeRow, ScheduleView, find_schedule, next_starts};
use polity_model::name::Name;
use polity_server::running_server;
use serde_json::json;

use crate::app::AppContext;
use crate::args::schedule::{ScheduleAction, ScheduleArgs, ScheduleHistoryArgs, ScheduleNextArgs};
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, say};
use crate::view::task::time;
use crate::view::{lines, style};

pub(crate) async fn schedule(app: &AppContext, command: ScheduleAction) -> CliResult {
    match command {
        ScheduleAction::List => list(app).await,
        ScheduleAction::Show(args) => show(app, &args).await,
        ScheduleAction::Add(args) => add::add(app, &args).await,
        ScheduleAction::Remove(args) => add::remove(app, &args).await,
        ScheduleAction::Pause(args) => control::pause(app, &args).await,
        ScheduleAction::Resume(args) => control::resume(app, &args).await,
        ScheduleAction::Run(args) => run::run(app, &args).await,
        ScheduleAction::Next(args) => next(app, &args),
        ScheduleAction::Backfill(args) => control::backfill(app, &args).await,
        ScheduleAction::History(args) => history(app, &args).await,
    }
}

/// True if a server watches the schedules of the home.
fn is_served(app: &AppContext) -> bool {
    running_server(&app.folder().data()).is_some()
}

/// Says that nothing starts by itself without a server.
fn note_no_server(app: &AppContext) {
    if app.shows_progress() && !is_served(app) {
        note!(
            "{}: no server runs: nothing starts until `polity serve` does",
            style::warning("note")
        );
    }
}

async fn list(app: &AppContext) -> CliResult {
    let home = app.valid_definitions()?;
    let views = app.queries()?.schedule_views(home.schedules.values(), SystemClock.now()).await?;
    let empty = format!("no schedules in {}", app.folder().root().display());
    let exit = app.print_list(&views, empty, || {
        let rows = views.iter().map(|view| {
            vec![
                view.name.to_string(),
                state_label(view),
                view.next_execution.map_or("-".to_owned(), time),
                view.last_execution.map_or("-".to_owned(), time),
                view.agent_id.to_string(),
                format!("{} ({})", view.cron_expression, view.time_zone),
            ]
        });
        lines(&["NAME", "STATE", "NEXT", "LAST", "STARTS", "TIMES"], rows)
    })?;
    if !views.is_empty() {
        note_no_server(app);
    }
    Ok(exit)
}

fn state_label(view: &ScheduleView) -> String {
    if view.enabled { view.state.to_string() } else { format!("{} (disabled)", view.state) }
}

async fn show(app: &AppContext, args: &ScheduleArgs) -> CliResult {
    let home = app.folder().read()?;
    let definition = find_schedule(&home, &args.name)?;
    let view = app.queries()?.schedule_view(&definition, SystemClock.now()).await?;
    if app.json() {
        print_json(&view)?;
        return Ok(ExitStatus::Done);
    }
    let pause = view.pause.as_ref().map(|pause| {
        let by = pause.by.as_deref().unwrap_or("its failures");
        let note = pause.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        format!("since {} by {by}{note}", time(pause.at))
    });
    let running = view.running.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let input = serde_json::Value::Object(view.input_parameters.clone()).to_string();
    let fields = [
        ("name", Some(view.name.to_string())),
        ("starts", Some(view.agent_id.to_string())),
        ("times", Some(format!("{} ({})", view.cron_expression, view.time_zone))),
        ("state", Some(state_label(&view))),
        ("paused", pause),
        ("next", view.next_execution.map(time)),
        ("last", view.last_execution.map(time)),
        ("last task", view.last_task_id.map(|id| id.to_string())),
        ("running", (!view.running.is_empty()).then_some(running)),
        ("queued", (view.queued > 0).then(|| view.queued.to_string())),
        (
            "failures",
            (view.consecutive_failures > 0).then(|| view.consecutive_failures.to_string()),
        ),
        ("overlap", Some(label(&view.overlap))),
        ("catch_up", Some(label(&view.catch_up))),
        ("input", (!view.input_parameters.is_empty()).then_some(input)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            say!("{} {value}", style::label(&format!("{name}:")))?;
        }
    }
    note_no_server(app);
    Ok(ExitStatus::Done)
}

/// A policy as its file has it.
fn label(policy: &impl serde::Serialize) -> String {
    json!(policy).as_str().unwrap_or_default().to_owned()
}

fn next(app: &AppContext, args: &ScheduleNextArgs) -> CliResult {
    let home = app.folder().read()?;
    let definitions = match &args.name {
        Some(name) => vec![find_schedule(&home, name)?],
        None => home.schedules.values().cloned().collect(),
    };
    let (now, count) = (SystemClock.now(), args.count as usize);
    let starts = definitions.iter().flat_map(|definition| {
        let times = next_starts(definition, now, count);
        times.into_iter().map(|at| (at, definition.name.clone()))
    });
    let mut starts: Vec<(jiff::Timestamp, Name)> = starts.collect();
    starts.sort();
    starts.truncate(count);
    let times: Vec<_> = starts.iter().map(|(at, _)| *at).collect();
    let exit = app.print_list(&times, "no times to come", || {
        let rows = starts.iter().map(|(at, name)| vec![time(*at), name.to_string()]);
        lines(&["TIME", "SCHEDULE"], rows)
    })?;
    note_no_server(app);
    Ok(exit)
}

async fn history(app: &AppContext, args: &ScheduleHistoryArgs) -> CliResult {
    let queries = app.queries()?;
    let name: Result<Name, _> = args.schedule.name.parse();
    let rows = match &name {
        Ok(name) => queries.schedule_history(name, args.limit).await?,
        Err(_) => Vec::new(),
    };
    if rows.is_empty() {
        // The history of a removed schedule stays.
        find_schedule(&app.folder().read()?, &args.schedule.name)?;
    }
    app.print_list(&rows, "no due times yet", || {
        let cells = rows.iter().map(|row| {
            let task = row.task_id.map_or(String::new(), |id| id.to_string());
            let status = row.task_status.map_or(String::new(), |status| status.to_string());
            vec![due_label(row), outcome_label(row), row.trigger.to_owned(), task, status]
        });
        lines(&["DUE", "OUTCOME", "TRIGGER", "TASK", "STATUS"], cells)
    })
}

fn due_label(row: &DueTimeRow) -> String {
    match row.last_due {
        None => time(row.due),
        Some(last) => {
            let more = if row.is_more { "more than " } else { "" };
            format!("{} to {} ({more}{})", time(row.due), time(last), row.count)
        }
    }
}

fn outcome_label(row: &DueTimeRow) -> String {
    match (&row.reason, &row.message) {
        (Some(_), Some(message)) => format!("{}: {message}", row.outcome),
        (Some(reason), None) => format!("{}: {reason}", row.outcome),
        (None, _) => row.outcome.to_owned(),
    }
}

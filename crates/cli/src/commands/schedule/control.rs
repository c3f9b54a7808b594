//! `polity schedule pause`, `resume` and `backfill`: commits to the stream of a schedule.

use polity_definition::{Home, ScheduleDefinition};
use polity_engine::clock::SystemClock;
use polity_engine::runtime::{ScheduleRecord, ScheduleSubject, decide_schedule};
use polity_engine::schedule::ScheduleCommand;
use polity_host::find_schedule;
use polity_model::event::{ScheduleChange, TickOutcome};
use polity_store::Store;
use serde_json::json;

use super::is_served;
use crate::app::AppContext;
use crate::args::schedule::{BackfillArgs, ScheduleArgs, SchedulePauseArgs};
use crate::commands::trust::user_name;
use crate::error::{CliError, CliResult};
use crate::view::count;

/// Decides on a command and commits the changes.
pub(super) async fn commit(
    app: &AppContext,
    home: &Home,
    definition: &ScheduleDefinition,
    command: &ScheduleCommand,
) -> Result<Vec<ScheduleChange>, CliError> {
    let store = app.context.open_writer(home)?;
    commit_to(&store, definition, command).await
}

/// Decides on a command and commits the changes to an open store.
pub(super) async fn commit_to(
    store: &dyn Store,
    definition: &ScheduleDefinition,
    command: &ScheduleCommand,
) -> Result<Vec<ScheduleChange>, CliError> {
    let mut record = ScheduleRecord::load(store, &definition.name).await?;
    let times = definition.due_times();
    let subject = ScheduleSubject { definition, times: &times, fault: None };
    Ok(decide_schedule(store, &SystemClock, &mut record, subject, command).await?)
}

pub(super) async fn pause(app: &AppContext, args: &SchedulePauseArgs) -> CliResult {
    let home = app.definitions()?;
    let definition = find_schedule(&home, &args.schedule.name)?;
    let pause = ScheduleCommand::Pause { by: user_name(), note: args.note.clone() };
    commit(app, &home, &definition, &pause).await?;
    let name = &definition.name;
    app.print(&json!({"name": name, "state": "paused", "note": args.note}), || {
        format!("paused {name}: its due times are skipped; `polity schedule resume {name}`")
    })
}

pub(super) async fn resume(app: &AppContext, args: &ScheduleArgs) -> CliResult {
    let home = app.definitions()?;
    let definition = find_schedule(&home, &args.name)?;
    let resume = ScheduleCommand::Resume { by: user_name() };
    // The server starts what waits: here, only the records of skipped due times are written.
    commit(app, &home, &definition, &resume).await?;
    let name = &definition.name;
    app.print(&json!({"name": name, "state": "active"}), || format!("resumed {name}"))
}

pub(super) async fn backfill(app: &AppContext, args: &BackfillArgs) -> CliResult {
    let home = app.definitions()?;
    let definition = find_schedule(&home, &args.schedule.name)?;
    let name = &definition.name;
    let (from, to) = (args.from, args.to);
    let started = app.queries()?.started_due_times(name, from, to).await?;
    let already = started.len();
    let command = ScheduleCommand::Backfill { from, to, started };
    let changes = commit(app, &home, &definition, &command).await?;
    let is_queued = |change: &&ScheduleChange| {
        matches!(change, ScheduleChange::Tick { outcome: TickOutcome::Queued, .. })
    };
    let queued = changes.iter().filter(is_queued).count();
    let document = json!({"name": name, "queued": queued, "already_started": already});
    app.print(&document, || {
        let when = if is_served(app) {
            "the server starts them"
        } else {
            "they start while `polity serve` runs"
        };
        let times = count(queued, "due time");
        let already = match already {
            0 => String::new(),
            already => format!("; {already} had a task already"),
        };
        format!("queued {times} of {name}; {when}{already}")
    })
}

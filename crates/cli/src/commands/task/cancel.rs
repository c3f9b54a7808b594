//! `polity task cancel`: ends a task, wherever it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_engine::clock::SystemClock;
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{EngineError, Steering, cancel as steer_cancel, top_of};
use polity_model::machine::task::TaskStatus::Cancelled;
use polity_store::Store;

use crate::app::{App, block_on, remotes};
use crate::args::TaskArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{note, print_json, say, task as view};

/// How long to wait for the owner to carry a cancel out. It notices within a fifth of a second.
const OWNER_SECONDS_MAX: u64 = 10;

pub(crate) fn cancel(app: &App, args: &TaskArgs) -> CliResult {
    let reader = app.reader()?;
    let id = app.task_row(&reader, &args.id)?.id;
    let home = app.definitions()?;
    let store: Arc<dyn Store> = Arc::new(app.writer(&home)?);
    let (owners, remotes) = (app.instances(), remotes(&home));
    let (store, clock) = (&store, &SystemClock);
    let steering = Steering { store, owners: &owners, clock, remotes: &remotes };
    let ask = || block_on(async { Ok(steer_cancel(&steering, id).await) });
    match ask()? {
        // Others may have asked for the same, and been faster.
        Ok(_)
        | Err(EngineError::Rejected(CommandRejection::Finished { status: Cancelled, .. })) => {}
        Err(error) => return Err(error.into()),
    }
    let began = Instant::now();
    let row = loop {
        let row = app.task_row(&reader, &id.to_string())?;
        if row.status.is_final() {
            break row;
        }
        // An owner that ended before it noticed leaves the task to whoever asks next.
        if app.is_interrupted(&row) {
            match ask()? {
                // It has ended since it was looked at, which the next look tells.
                Ok(_) | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if began.elapsed() > Duration::from_secs(OWNER_SECONDS_MAX) {
            let message = format!(
                "the process that runs task {id} was asked to end it and has not done so within \
                 {OWNER_SECONDS_MAX} seconds"
            );
            let hint = format!("the request stays; follow the task with `polity task watch {id}`");
            return Err(CliError::conflict(message).hint(hint));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let task = app.task(&reader, &row)?;
    if app.json() {
        print_json(&task)?;
    } else {
        say!("task {} is {}", task.id, view::status_text(&task))?;
        let top = top_of(&reader, row)?;
        if top.id != id && top.owner.is_none() {
            note!("task {} goes on with `polity task resume {}`", top.id, top.id);
        }
    }
    Ok(Exit::Done)
}

//! `polity task watch` and `polity task wait`: following a task from any process.

use std::time::{Duration, Instant};

use polity_engine::clock::{Clock, SystemClock};
use polity_model::event::{StreamId, StreamSequence};
use polity_model::machine::task::TaskStatus;
use polity_store::{SqliteStore, Store, TaskRow};

use crate::app::App;
use crate::args::TaskArgs;
use crate::commands::run::present;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::live::LiveView;
use crate::view::print_json;

/// How often the journal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a task may be without an owner before waiting for it makes no sense: one who resumes
/// it takes a moment to take hold.
const ORPHANED_AT_MOST: Duration = Duration::from_millis(500);

pub(crate) fn watch(app: &App, args: &TaskArgs) -> CliResult {
    let store = app.reader()?;
    let row = app.task_row(&store, &args.id)?;
    let row = follow(app, &store, row, &mut LiveView::new(app))?;
    if app.json() {
        print_json(&super::trace_of(&store, &row)?)?;
        return Ok(Exit::of_task(&app.task(&store, &row)?));
    }
    present(app, &app.task(&store, &row)?)
}

pub(crate) fn wait(app: &App, args: &TaskArgs) -> CliResult {
    let store = app.reader()?;
    let mut row = app.task_row(&store, &args.id)?;
    let mut patience = Patience::default();
    while is_under_way(row.status) {
        patience.check(app, &row)?;
        std::thread::sleep(LOOK_EVERY);
        row = read_again(&store, &row)?;
    }
    present(app, &app.task(&store, &row)?)
}

/// Shows the steps of a task until no one works on it any more.
pub(super) fn follow(
    app: &App,
    store: &SqliteStore,
    mut row: TaskRow,
    view: &mut LiveView,
) -> Result<TaskRow, CliError> {
    let stream = StreamId::Task(row.id);
    let mut seen = StreamSequence::default();
    let mut patience = Patience::default();
    loop {
        // The row is read first: when it says that the task is over, all events are there.
        let over = !is_under_way(row.status);
        for recorded in store.events(&stream, seen)? {
            seen = recorded.sequence;
            view.see(&recorded);
        }
        if over {
            view.clear();
            return Ok(row);
        }
        patience.check(app, &row).inspect_err(|_| view.clear())?;
        view.tick(SystemClock.now());
        std::thread::sleep(LOOK_EVERY);
        row = read_again(store, &row)?;
    }
}

fn is_under_way(status: TaskStatus) -> bool {
    match status {
        TaskStatus::Pending | TaskStatus::Running => true,
        TaskStatus::AwaitingHuman
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled => false,
    }
}

fn read_again(store: &SqliteStore, row: &TaskRow) -> Result<TaskRow, CliError> {
    store
        .task_row(row.id)?
        .ok_or_else(|| CliError::not_found(format!("task {} is not there any more", row.id)))
}

/// Notices when a task has been without an owner for too long.
#[derive(Default)]
struct Patience {
    orphaned_since: Option<Instant>,
}

impl Patience {
    fn check(&mut self, app: &App, row: &TaskRow) -> Result<(), CliError> {
        if !app.is_interrupted(row) {
            self.orphaned_since = None;
            return Ok(());
        }
        let since = *self.orphaned_since.get_or_insert_with(Instant::now);
        if since.elapsed() < ORPHANED_AT_MOST {
            return Ok(());
        }
        Err(CliError::conflict(format!("task {} was interrupted: its process is gone", row.id))
            .hint(format!("go on with `polity task resume {}`", row.id)))
    }
}

//! `polity task watch` and `polity task wait`: follows a task of any process.

use std::time::{Duration, Instant};

use polity_engine::clock::{Clock, SystemClock};
use polity_host::HomeQueries;
use polity_model::event::StreamSequence;
use polity_model::ids::TaskId;
use polity_model::machine::Machine;
use polity_model::machine::task::TaskStatus;
use polity_store::TaskRow;

use crate::app::AppContext;
use crate::args::{TaskArgs, WaitArgs};
use crate::commands::run::present;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::print_json;
use crate::view::live::LiveView;

/// The interval between two reads of the journal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The time that a task may be without a live owner: a process that resumes it needs a moment to claim
/// it.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

pub(crate) async fn watch(app: &AppContext, args: &TaskArgs) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.id).await?;
    let row = follow(&queries, row, &mut LiveView::new(&app.options)).await?;
    let task = queries.load_task(row.id).await?;
    if app.json() {
        print_json(&queries.trace(&row).await?)?;
        return Ok(ExitStatus::of_task(&task));
    }
    present(&app.options, &task)
}

/// Follows a task that another process runs, and presents it as `polity run` does.
pub(crate) async fn follow_to_end(app: &AppContext, id: TaskId) -> CliResult {
    let queries = app.queries()?;
    let row = queries.task_row(id).await?;
    follow(&queries, row, &mut LiveView::new(&app.options)).await?;
    present(&app.options, &queries.load_task(id).await?)
}

pub(crate) async fn wait(app: &AppContext, args: &WaitArgs) -> CliResult {
    let queries = app.queries()?;
    let mut row = queries.find_task(&args.id).await?;
    let mut orphan_check = OrphanCheck::default();
    let began = Instant::now();
    while is_under_way(row.status) {
        orphan_check.check(&queries, &row).await?;
        let left = args.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(still_running(row.id, row.status, args.timeout.unwrap_or_default()));
        }
        tokio::time::sleep(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL))).await;
        row = queries.task_row(row.id).await?;
    }
    present(&app.options, &queries.load_task(row.id).await?)
}

/// Shows the steps of a task until it ends or awaits a review.
async fn follow(
    queries: &HomeQueries,
    mut row: TaskRow,
    view: &mut LiveView,
) -> Result<TaskRow, CliError> {
    let mut seen = StreamSequence::default();
    let mut orphan_check = OrphanCheck::default();
    loop {
        // The row is read before the events, so a final row implies that all events are read.
        let over = !is_under_way(row.status);
        for recorded in queries.events(row.id, seen).await? {
            seen = recorded.sequence;
            view.see(&recorded);
        }
        if over {
            view.clear();
            return Ok(row);
        }
        orphan_check.check(queries, &row).await.inspect_err(|_| view.clear())?;
        view.tick(SystemClock.now());
        tokio::time::sleep(POLL_INTERVAL).await;
        row = queries.task_row(row.id).await?;
    }
}

/// The error about a task that has not ended in time.
pub(crate) fn still_running(id: TaskId, status: TaskStatus, timeout: Duration) -> CliError {
    let (status, seconds) = (status.label(), timeout.as_secs());
    CliError::timed_out(format!("task {id} is still {status} after {seconds} s, and goes on"))
        .hint(format!("wait longer, or stop it with `polity task cancel {id}`"))
}

/// True if a task will change by itself.
pub(crate) fn is_under_way(status: TaskStatus) -> bool {
    match status {
        TaskStatus::Pending | TaskStatus::Running => true,
        TaskStatus::AwaitingHuman
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled => false,
    }
}

/// Notices that a task has had no live owner for too long.
#[derive(Default)]
struct OrphanCheck {
    orphaned_since: Option<Instant>,
}

impl OrphanCheck {
    async fn check(&mut self, queries: &HomeQueries, row: &TaskRow) -> Result<(), CliError> {
        if !queries.is_interrupted(row).await? {
            self.orphaned_since = None;
            return Ok(());
        }
        let since = *self.orphaned_since.get_or_insert_with(Instant::now);
        if since.elapsed() < ORPHAN_GRACE {
            return Ok(());
        }
        Err(CliError::conflict(format!("task {} was interrupted: its process has ended", row.id))
            .hint(format!("continue with `polity task resume {}`", row.id)))
    }
}

//! Follows a task that this process runs.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{EngineError, LiveEvent, TaskHandle};
use polity_host::{HomeQueries, Host};
use polity_model::event::{JournalPosition, RecordedEvent, StreamId};
use polity_model::ids::TaskId;
use polity_model::task::Task;
use polity_model::trace::ITEMS_SHOWN;
use tokio::sync::broadcast;

use crate::app::AppContext;
use crate::error::CliError;
use crate::signals::{StopRequest, StopSignals, quit, stop_programs_and_quit};
use crate::terminal::note;
use crate::view::live::LiveView;
use crate::view::style;

/// The refresh interval of the line of the current step.
const TICK: Duration = Duration::from_millis(100);

/// Shows a task's steps until it ends or awaits a review. Ctrl-C cancels it; a second one quits at
/// once and leaves it interrupted. SIGTERM does so, too, after programs were stopped. Steps up to
/// the position `seen` are not shown.
pub(crate) async fn follow(
    app: &AppContext,
    host: &Host,
    mut handle: TaskHandle,
    mut live: broadcast::Receiver<LiveEvent>,
    seen: JournalPosition,
) -> Result<Task, CliError> {
    let id = handle.id;
    let mut signals = StopSignals::listen()?;
    let mut views = TaskViews::new(app, host, id, seen);
    if app.shows_progress() {
        note!("{} {id}", style::label("task"));
    }
    let mut tick = tokio::time::interval(TICK);
    let mut asked_to_stop = false;
    views.catch_up().await?;
    let outcome = loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                views.top.clear();
                match signal {
                    StopRequest::Terminate => {
                        let left = left_interrupted(id);
                        stop_programs_and_quit(app, host, &mut signals, &left).await;
                    }
                    StopRequest::Interrupt if asked_to_stop => quit(&app.options, &left_interrupted(id)),
                    StopRequest::Interrupt => {}
                }
                asked_to_stop = true;
                note!("cancelling; press Ctrl-C again to quit and leave the task interrupted");
                match host.runtime().cancel(id).await {
                    // The task ended before it could be cancelled; its outcome comes next.
                    Ok(_) | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            event = live.recv() => match event {
                Ok(LiveEvent::Event(event)) => views.see(&event).await?,
                Ok(LiveEvent::Text { task, piece }) if task == id => views.top.append_output(&piece),
                Ok(LiveEvent::Text { .. }) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    views.catch_up().await?;
                }
                Err(broadcast::error::RecvError::Closed) => break handle.wait().await,
            },
            outcome = handle.wait() => break outcome,
            _ = tick.tick() => views.top.tick(SystemClock.now()),
        }
    };
    views.catch_up().await?;
    views.top.clear();
    outcome?;
    Ok(host.queries().load_task(id).await?)
}

/// The report of a task that this process leaves.
pub(super) fn left_interrupted(id: TaskId) -> CliError {
    CliError::conflict(format!("left task {id} interrupted"))
        .hint(format!("continue with `polity task resume {id}`"))
}

/// The live views of a task and of its parts.
struct TaskViews<'a> {
    app: &'a AppContext,
    queries: &'a HomeQueries,
    id: TaskId,
    /// The position up to which steps are known.
    seen: JournalPosition,
    top: LiveView,
    /// The parts, each with its depth below the task.
    nested: HashMap<TaskId, (usize, LiveView)>,
    /// Tasks of this process that are not parts of the followed task, or not shown.
    others: HashSet<TaskId>,
}

impl<'a> TaskViews<'a> {
    fn new(app: &'a AppContext, host: &'a Host, id: TaskId, seen: JournalPosition) -> Self {
        let (top, queries) = (LiveView::new(&app.options).after(seen), host.queries());
        Self { app, queries, id, seen, top, nested: HashMap::new(), others: HashSet::new() }
    }

    /// Shows the events of the task and its parts that were not shown yet.
    async fn catch_up(&mut self) -> Result<(), CliError> {
        for recorded in self.queries.events(self.id, self.top.seen()).await? {
            self.top.see(&recorded);
        }
        for (task, (_, view)) in &mut self.nested {
            for recorded in self.queries.events(*task, view.seen()).await? {
                self.top.clear();
                view.see(&recorded);
            }
        }
        Ok(())
    }

    async fn see(&mut self, recorded: &RecordedEvent) -> Result<(), CliError> {
        let StreamId::Task(task) = recorded.stream else { return Ok(()) };
        let seen = match self.nested.get(&task) {
            Some((_, view)) => Some(view.seen()),
            None => (task == self.id).then(|| self.top.seen()),
        };
        if let Some(seen) = seen {
            // Events of other processes are only in the journal.
            if recorded.sequence > seen.plus(1) {
                return self.catch_up().await;
            }
            match self.nested.get_mut(&task) {
                Some((_, view)) => {
                    self.top.clear();
                    view.see(recorded);
                }
                None => self.top.see(recorded),
            }
            return Ok(());
        }
        if self.others.contains(&task) {
            return Ok(());
        }
        let Some(row) = self.queries.store().task_row(task).await? else { return Ok(()) };
        let above = row.parent_task_id.and_then(|parent| {
            let of_top = (parent == self.id).then_some(0);
            of_top.or_else(|| self.nested.get(&parent).map(|(depth, _)| *depth))
        });
        // The step of the map counts the others.
        let is_folded = row.map_item.is_some_and(|item| item >= ITEMS_SHOWN);
        let Some(above) = above.filter(|_| !is_folded) else {
            self.others.insert(task);
            return Ok(());
        };
        let view =
            LiveView::nested(&self.app.options, above + 1, &row.assigned_agent).after(self.seen);
        self.nested.insert(task, (above + 1, view));
        self.catch_up().await
    }
}

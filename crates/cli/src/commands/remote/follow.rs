//! Follows a task that a server runs.

use std::collections::HashMap;
use std::time::Duration;

use polity_engine::clock::{Clock, SystemClock};
use polity_host::ReportKind;
use polity_model::event::{Event, JournalPosition, RecordedEvent, StreamId};
use polity_model::ids::{CheckpointId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::review::Review;
use polity_model::task::Task;
use polity_model::trace::ITEMS_SHOWN;
use serde_json::{Value, json};

use crate::args::GlobalOptions;
use crate::client::{ApiClient, ServerLink, TaskEvents};
use crate::error::CliError;
use crate::signals::{StopRequest, StopSignals, quit};
use crate::terminal::note;
use crate::view::live::LiveView;
use crate::view::style;

/// The refresh interval of the line of the current step.
const TICK: Duration = Duration::from_millis(100);

/// The position after every event.
const NEVER: JournalPosition = JournalPosition(u64::MAX);

/// The first step that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStep {
    /// The creation of the task.
    Creation,
    /// The answer to the review of this task at this checkpoint.
    Answer(TaskId, CheckpointId),
}

/// Shows the steps of a task until it ends or awaits a review. Ctrl-C cancels it; a second one, and
/// SIGTERM, only stop to watch, because the server goes on.
pub(super) async fn follow(
    link: &ServerLink,
    id: TaskId,
    first: FirstStep,
) -> Result<Task, CliError> {
    let (client, options) = (&link.client, &link.options);
    let mut signals = StopSignals::listen()?;
    let mut views = TreeViews::new(options, id, first);
    if options.shows_progress() {
        note!("{} {id}", style::label("task"));
    }
    let mut events = TaskEvents::open(client, id, true);
    let mut tick = tokio::time::interval(TICK);
    let mut asked_to_stop = false;
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                views.top.clear();
                if signal == StopRequest::Terminate || asked_to_stop {
                    quit(options, &left_running(id));
                }
                asked_to_stop = true;
                note!("cancelling; press Ctrl-C again to stop watching");
                tokio::select! {
                    cancelled = request_cancel(client, id) => cancelled?,
                    _ = signals.next() => quit(options, &left_running(id)),
                }
            }
            event = events.next() => {
                let event = event.inspect_err(|_| views.top.clear())?;
                let may_be_over = views.see(&event);
                if may_be_over && let Some(task) = ended(client, id).await? {
                    views.top.clear();
                    return Ok(task);
                }
            }
            _ = tick.tick() => views.top.tick(SystemClock.now()),
        }
    }
}

/// Requests the cancellation of a task. One that has ended is left as it is.
pub(super) async fn request_cancel(client: &ApiClient, id: TaskId) -> Result<(), CliError> {
    let cancelled: Result<Value, _> =
        client.post(&["tasks", &id.to_string(), "cancel"], &json!({})).await;
    match cancelled {
        Err(error) if error.code() != "conflict" => Err(error),
        // The outcome comes next.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The task, if it has ended or a person must decide before it goes on.
pub(super) async fn ended(client: &ApiClient, id: TaskId) -> Result<Option<Task>, CliError> {
    let text = id.to_string();
    let task: Task = client.get_patiently(&["tasks", &text], &[]).await?;
    match task.status {
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => Ok(Some(task)),
        TaskStatus::Pending | TaskStatus::Running => Ok(None),
        TaskStatus::AwaitingHuman => {
            let review: Result<Review, _> = client.get_patiently(&["reviews", &text], &[]).await;
            match review {
                Ok(_) => Ok(Some(task)),
                // Several reviews are open.
                Err(error) if error.kind() == ReportKind::Usage => Ok(Some(task)),
                // All are answered, and the server is about to continue.
                Err(error) if error.code() == "conflict" => Ok(None),
                Err(error) => Err(error),
            }
        }
    }
}

/// The report of a task that goes on without this process.
fn left_running(id: TaskId) -> CliError {
    CliError::conflict(format!("stopped watching task {id}, which goes on at the server"))
        .hint(format!("watch it again with `polity task watch {id}`"))
}

/// The views of a task and of its parts.
struct TreeViews<'a> {
    options: &'a GlobalOptions,
    id: TaskId,
    first: FirstStep,
    /// True once the review that the first step answers was opened.
    is_asked: bool,
    /// The position up to which steps are not shown.
    seen: JournalPosition,
    top: LiveView,
    /// The parts, each with its depth below the task.
    nested: HashMap<TaskId, (usize, LiveView)>,
}

impl<'a> TreeViews<'a> {
    fn new(options: &'a GlobalOptions, id: TaskId, first: FirstStep) -> Self {
        let seen = match first {
            FirstStep::Creation => JournalPosition::default(),
            FirstStep::Answer(..) => NEVER,
        };
        let top = LiveView::new(options).after(seen);
        Self { options, id, first, is_asked: false, seen, top, nested: HashMap::new() }
    }

    /// Shows an event. Returns true if the task may have ended with it, or may wait for a person.
    fn see(&mut self, recorded: &RecordedEvent) -> bool {
        let StreamId::Task(task) = recorded.stream else { return false };
        self.find_first_step(task, recorded);
        if task == self.id {
            self.top.see(recorded);
            return recorded.position > self.seen && may_be_over(&recorded.event);
        }
        if let Event::TaskCreated(created) = &recorded.event {
            let above = created.parent_task_id.and_then(|parent| {
                let of_top = (parent == self.id).then_some(0);
                of_top.or_else(|| self.nested.get(&parent).map(|(depth, _)| *depth))
            });
            // The step of the map counts the others.
            let is_folded = created.map_item.is_some_and(|item| item >= ITEMS_SHOWN);
            if let Some(above) = above.filter(|_| !is_folded) {
                let view = LiveView::nested(self.options, above + 1, &created.assigned_agent);
                self.nested.insert(task, (above + 1, view.after(self.seen)));
            }
        }
        if let Some((_, view)) = self.nested.get_mut(&task) {
            self.top.clear();
            view.see(recorded);
        }
        false
    }

    /// Begins to show steps once the answer is there.
    fn find_first_step(&mut self, task: TaskId, recorded: &RecordedEvent) {
        let FirstStep::Answer(asking, checkpoint) = self.first else { return };
        if self.seen != NEVER || task != asking {
            return;
        }
        if let Event::ReviewOpened { checkpoint_id, .. } = &recorded.event {
            self.is_asked = *checkpoint_id == checkpoint;
        }
        if self.is_asked && matches!(recorded.event, Event::ReviewAnswered { .. }) {
            self.seen = JournalPosition(recorded.position.0.saturating_sub(1));
            self.top.show_after(self.seen);
            for (_, view) in self.nested.values_mut() {
                view.show_after(self.seen);
            }
        }
    }
}

/// True for the events with which a task ends, or waits for a person.
pub(super) fn may_be_over(event: &Event) -> bool {
    matches!(
        event,
        Event::TaskCompleted { .. }
            | Event::TaskFailed { .. }
            | Event::TaskCancelled
            | Event::TaskPaused
            | Event::ReviewOpened { .. }
    )
}

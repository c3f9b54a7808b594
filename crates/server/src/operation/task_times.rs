//! The durations of tasks that ended while the server ran, for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use polity_model::event::Event;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use tokio::sync::broadcast::error::RecvError;

use super::metrics::Histogram;
use crate::state::ServerState;

/// The upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 10] = [0.01, 0.1, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21_600.0, 86_400.0];

/// Histograms of the time from the creation of a task to its end, by status.
#[derive(Debug, Default)]
pub(crate) struct TaskTimes {
    by_status: Mutex<BTreeMap<String, Histogram<{ BOUNDS.len() }>>>,
}

impl TaskTimes {
    fn record(&self, status: TaskStatus, took: Duration) {
        let mut by_status = self.by_status.lock().unwrap_or_else(PoisonError::into_inner);
        by_status.entry(status.to_string()).or_default().record(took, BOUNDS);
    }

    pub(crate) fn write(&self, out: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        let name = "polity_task_duration_seconds";
        writeln!(out, "# HELP {name} The time from the creation of a task to its end.")?;
        writeln!(out, "# TYPE {name} histogram")?;
        let by_status = self.by_status.lock().unwrap_or_else(PoisonError::into_inner);
        for (status, times) in &*by_status {
            times.write(out, name, &format!("status=\"{status}\""), BOUNDS)?;
        }
        Ok(())
    }
}

/// Records the duration of each task that ends.
pub(crate) async fn record_task_times(state: Weak<ServerState>) {
    let Some(mut live) = state.upgrade().map(|state| state.hub.subscribe()) else { return };
    loop {
        let frame = match live.recv().await {
            Ok(frame) => frame,
            Err(RecvError::Lagged(missed)) => {
                tracing::debug!(missed, "durations of tasks may be missing from the metrics");
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let (Some(task), Some(status)) = (frame.task(), ended(&frame.recorded.event)) else {
            continue;
        };
        let Some(state) = state.upgrade() else { return };
        if let Some(took) = duration_of(&state, task).await {
            state.metrics.task_times.record(status, took);
        }
    }
}

/// The status that an event ends a task with.
fn ended(event: &Event) -> Option<TaskStatus> {
    if matches!(event, Event::TaskCompleted { .. }) {
        Some(TaskStatus::Completed)
    } else if matches!(event, Event::TaskFailed { .. }) {
        Some(TaskStatus::Failed)
    } else {
        matches!(event, Event::TaskCancelled).then_some(TaskStatus::Cancelled)
    }
}

async fn duration_of(state: &ServerState, task: TaskId) -> Option<Duration> {
    match state.host.queries().store().task_row(task).await {
        Ok(row) => {
            let row = row?;
            let took = row.completed_at?.duration_since(row.created_at);
            // A clock that was set back gives no negative duration.
            Some(Duration::try_from(took).unwrap_or_default())
        }
        Err(error) => {
            tracing::debug!(%error, "the duration of a task is missing from the metrics");
            None
        }
    }
}

//! Ends the sub-tasks of tasks that have ended.

use polity_model::ids::TaskId;

use super::CHECK_INTERVAL;
use crate::decide::CommandRejection;
use crate::runtime::control::{CancelOutcome, cancel_except_own};
use crate::runtime::orphans::active_sub_tasks;
use crate::runtime::{EngineError, RuntimeInner};
use crate::state::TaskState;

/// The maximum number of times that a sub-task is asked to end.
const ATTEMPTS_MAX: u32 = 100;

/// Ends the sub-tasks of a task, if the task has ended.
pub(in crate::runtime) async fn end_sub_tasks(inner: &RuntimeInner, state: &TaskState) {
    let id = state.id();
    if state.status().is_final()
        && let Err(error) = end_all(inner, id).await
    {
        // The process that adopts them ends them.
        tracing::warn!(%id, %error, "cannot end the sub-agents of a task");
    }
}

async fn end_all(inner: &RuntimeInner, parent: TaskId) -> Result<(), EngineError> {
    // A sub-task that has just opened a review, or that another process owns, may need several.
    for _ in 0..ATTEMPTS_MAX {
        let active = active_sub_tasks(&*inner.deps.store, parent).await?;
        if active.is_empty() {
            return Ok(());
        }
        for row in active {
            try_end(inner, row.id).await?;
        }
    }
    Err(EngineError::Contended(parent))
}

/// Ends a sub-task, and waits until it has ended.
pub(in crate::runtime) async fn end_sub_task(
    inner: &RuntimeInner,
    id: TaskId,
) -> Result<(), EngineError> {
    for _ in 0..ATTEMPTS_MAX {
        let row = inner.deps.store.task_row(id).await?;
        if row.is_none_or(|row| row.status.is_final()) {
            return Ok(());
        }
        try_end(inner, id).await?;
    }
    Err(EngineError::Contended(id))
}

async fn try_end(inner: &RuntimeInner, id: TaskId) -> Result<(), EngineError> {
    if let Some(done) = inner.scheduler.cancel_and_watch(id) {
        let _ = done.await;
        return Ok(());
    }
    match cancel_except_own(&inner.deps.control(), Some(inner.deps.instance()), id).await {
        Ok(CancelOutcome::Done(_))
        | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
        Ok(CancelOutcome::Requested) => tokio::time::sleep(CHECK_INTERVAL).await,
        Err(error) => return Err(error),
    }
    Ok(())
}

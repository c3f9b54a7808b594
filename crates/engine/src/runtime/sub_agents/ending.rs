//! Ends the sub-tasks of tasks that have ended.

use std::pin::Pin;
use std::sync::Arc;

use polity_model::ids::TaskId;

use super::CHECK_INTERVAL;
use crate::decide::CommandRejection;
use crate::runtime::control::{CancelOutcome, cancel_except_own};
use crate::runtime::history::load_task;
use crate::runtime::lifecycle::claim_task;
use crate::runtime::orphans::active_sub_tasks;
use crate::runtime::scheduler::enqueue;
use crate::runtime::{EngineError, RuntimeInner};
use crate::state::TaskState;

/// The maximum number of times that a sub-task is asked to end.
const ATTEMPTS_MAX: u32 = 100;

/// Ends the sub-tasks of a task, if the task has ended.
pub(in crate::runtime) async fn end_sub_tasks(inner: &Arc<RuntimeInner>, state: &TaskState) {
    let id = state.id();
    if state.status().is_final()
        && let Err(error) = end_all(inner, id).await
    {
        // The process that adopts them ends them.
        tracing::warn!(%id, %error, "cannot end the sub-agents of a task");
    }
}

async fn end_all(inner: &Arc<RuntimeInner>, parent: TaskId) -> Result<(), EngineError> {
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
    inner: &Arc<RuntimeInner>,
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

async fn try_end(inner: &Arc<RuntimeInner>, id: TaskId) -> Result<(), EngineError> {
    if let Some(done) = inner.scheduler.cancel_and_watch(id) {
        let _ = done.await;
        return Ok(());
    }
    match cancel_except_own(&inner.deps.control(), Some(inner.deps.instance()), id).await {
        Ok(CancelOutcome::Done(_))
        | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
        Ok(CancelOutcome::Requested) => tokio::time::sleep(CHECK_INTERVAL).await,
        Ok(CancelOutcome::Compensating) => compensate(inner, id).await?,
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Runs the compensations of a sub-task that no process runs, and waits until it has ended or waits
/// for a person. Boxed, because the worker that it starts may end sub-tasks in turn.
fn compensate(
    inner: &Arc<RuntimeInner>,
    id: TaskId,
) -> Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send + '_>> {
    Box::pin(async move {
        let session = load_task(&*inner.deps.store, id).await?.assignee.name().as_str().into();
        match claim_task(inner, id).await {
            Ok(loaded) => {
                enqueue(inner, loaded, Some(session)).await.wait().await?;
                Ok(())
            }
            // Another process adopted it.
            Err(EngineError::Rejected(_) | EngineError::TakenOver(_)) => Ok(()),
            Err(error) => Err(error),
        }
    })
}

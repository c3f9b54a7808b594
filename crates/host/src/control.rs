//! Control of tasks that other processes may run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_definition::Home;
use polity_engine::clock::SystemClock;
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{ControlDeps, EngineError, cancel};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus::Cancelled;
use polity_store::{Store, TaskRow};

use crate::context::HostContext;
use crate::error::HostError;
use crate::queries::HomeQueries;

/// The time that an owner has to carry out a cancellation. It notices within a fifth of a second.
const OWNER_SECONDS_MAX: u64 = 10;

/// The interval between two reads of a task that is being cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Cancels a task, whichever process runs it, and waits until it has ended.
pub async fn cancel_task(
    context: &HostContext,
    home: &Home,
    queries: &HomeQueries,
    id: TaskId,
) -> Result<TaskRow, HostError> {
    let store: Arc<dyn Store> = Arc::new(context.open_writer(home)?);
    let (leases, remotes) = (context.leases(), context.remotes(home));
    let control =
        ControlDeps { store: &store, leases: &leases, clock: &SystemClock, remotes: &remotes };
    match cancel(&control, id).await {
        // Another process may have cancelled it first.
        Ok(_)
        | Err(EngineError::Rejected(CommandRejection::Finished { status: Cancelled, .. })) => {}
        Err(error) => return Err(error.into()),
    }
    let began = Instant::now();
    loop {
        let row = queries.task_row(id).await?;
        if row.status.is_final() {
            return Ok(row);
        }
        // If the owner ended before it noticed the request, this process ends the task.
        if queries.is_interrupted(&row).await? {
            match cancel(&control, id).await {
                // The task has ended since the row was read; the next read shows it.
                Ok(_) | Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if began.elapsed() > Duration::from_secs(OWNER_SECONDS_MAX) {
            return Err(HostError::OwnerUnresponsive { task: id, seconds: OWNER_SECONDS_MAX });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

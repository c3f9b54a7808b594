//! Waiting for a task to end or to ask a person.

use std::time::Duration;

use polity_engine::runtime::{EngineError, TaskHandle};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::http::Problem;
use crate::state::ServerState;

/// Waits for a task that this process has just started.
pub(super) async fn wait_for_handle(mut handle: TaskHandle, time: Duration) -> Result<(), Problem> {
    match tokio::time::timeout(time, handle.wait()).await {
        // It goes on; the answer shows its current status.
        Err(_) | Ok(Ok(_) | Err(EngineError::Left(_) | EngineError::TakenOver(_))) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Waits for a task of any process.
pub(super) async fn wait_for_end(
    state: &ServerState,
    id: TaskId,
    time: Duration,
) -> Result<(), Problem> {
    let deadline = Instant::now() + time;
    let mut live = state.hub.subscribe();
    loop {
        let row = state.host.queries().task_row(id).await?;
        if row.status.is_final() || row.status == TaskStatus::AwaitingHuman {
            return Ok(());
        }
        loop {
            match tokio::time::timeout_at(deadline, live.recv()).await {
                Err(_) | Ok(Err(RecvError::Closed)) => return Ok(()),
                Ok(Err(RecvError::Lagged(_))) => break,
                Ok(Ok(frame)) if frame.task() == Some(id) => break,
                Ok(Ok(_)) => {}
            }
        }
    }
}

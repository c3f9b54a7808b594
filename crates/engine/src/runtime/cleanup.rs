//! Cleanup after processes that died: processes and files of their CLI agents and services.
//!
//! Runs when a runtime starts, and after a process has cancelled tasks without a runtime.

use std::sync::Arc;

use polity_store::{Leases, Store, StoreError};
use tokio::runtime::Handle;

use super::RuntimeDeps;
use super::liveness::is_owner_alive;
use crate::driver::RunCleanup;

/// Starts the cleanup on a thread for blocking work: it walks folders and waits for processes.
pub(super) fn start(deps: &RuntimeDeps) {
    let store = Arc::clone(&deps.store);
    let (programs, leases) = (Arc::clone(&deps.programs), Arc::clone(&deps.leases));
    let tokio = Handle::current();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = tokio.block_on(clean_up_runs(&*store, &*programs, &*leases)) {
            // The next process tries again.
            tracing::warn!(%error, "cannot look up remaining processes of CLI agents");
        }
    });
}

/// Kills what services and executions of dead owners left running, and removes the files of those
/// that are over.
/// Blocks while it waits for processes.
pub async fn clean_up_runs(
    store: &dyn Store,
    runs: &dyn RunCleanup,
    leases: &dyn Leases,
) -> Result<(), StoreError> {
    runs.end_leftover_services();
    for id in runs.leftover_executions() {
        let Some(execution) = store.execution(id).await? else {
            // An older store may lack it, and its workspace may hold work of the user.
            runs.remove_leftovers(id, true);
            continue;
        };
        let Some(task) = store.task_row(execution.task_id).await? else { continue };
        if is_owner_alive(leases, task.owner).await {
            continue;
        }
        // A process that adopts the task from here on makes another attempt.
        runs.kill_leftovers(id, execution.retry_count + 1);
        // A reviewer may have declared the run lost, and a new run may have followed.
        if execution.is_over() || task.status.is_final() {
            runs.remove_leftovers(id, execution.has_succeeded());
        }
    }
    Ok(())
}

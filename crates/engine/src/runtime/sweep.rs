//! What programs left behind when the process that ran them died: processes, if their shims were
//! killed too, and files. It is looked for when a process begins its work.

use std::sync::Arc;

use polity_store::{Store, StoreError};

use super::{Owners, Parts, Shared};
use crate::driver::Programs;

impl Shared {
    /// Removes what programs left behind when the process that ran them died, on a thread of its own.
    pub(super) fn sweep(&self) {
        let Parts { store, programs, owners, .. } = &self.parts;
        let (store, programs, owners) =
            (Arc::clone(store), Arc::clone(programs), Arc::clone(owners));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = sweep(&*store, &*programs, &*owners) {
                // The next process tries again.
                tracing::warn!(%error, "what programs left behind could not be looked up");
            }
        });
    }
}

/// Ends what executions left running whose owners are gone, and removes what those left behind that are
/// over.
fn sweep(
    store: &dyn Store,
    programs: &dyn Programs,
    owners: &dyn Owners,
) -> Result<(), StoreError> {
    for id in programs.left_behind() {
        let Some(execution) = store.execution(id)? else {
            // The store does not know it, perhaps because it is an older one. What it was to bring
            // about is someone's work.
            programs.sweep(id, true);
            continue;
        };
        let Some(task) = store.task_row(execution.task_id)? else { continue };
        let is_owned = task.owner.is_some_and(|owner| owners.is_alive(owner));
        // One that a person has taken for lost may have been followed by another.
        let is_over = execution.is_over() || task.status.is_final();
        if is_owned {
            continue;
        }
        // Who takes the task up from here on makes another attempt.
        programs.end(id, execution.retry_count + 1);
        if is_over {
            programs.sweep(id, execution.has_succeeded());
        }
    }
    Ok(())
}

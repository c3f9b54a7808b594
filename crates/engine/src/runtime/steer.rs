//! Steering a task from outside: by a process that does not run it.

use std::sync::Arc;

use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_store::instances::Instances;
use polity_store::{Commit, CommitError, Store, StoreError, TaskFilter, TaskRow};

use super::{CONFLICTS_MAX, EngineError, load};
use crate::clock::Clock;
use crate::commands::{CancelTask, Canceller};
use crate::decide::{Command, Given, decide};
use crate::entropy::Entropy;

/// Who knows which processes are alive.
pub trait Owners: Send + Sync {
    /// Whether that process is alive.
    fn is_alive(&self, instance: InstanceId) -> bool;
}

impl Owners for Instances {
    fn is_alive(&self, instance: InstanceId) -> bool {
        // Where it cannot be told, the owner counts as alive: nothing is taken from the living.
        Instances::is_alive(self, instance).unwrap_or_else(|error| {
            tracing::warn!(%instance, %error, "it cannot be told whether a process is alive");
            true
        })
    }
}

/// What came of steering a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steered {
    /// It is done.
    Done(TaskStatus),
    /// The task's owner has been asked, and will notice.
    Requested,
}

/// Ends a task that this process does not run.
pub async fn cancel(
    store: &Arc<dyn Store>,
    owners: &dyn Owners,
    clock: &dyn Clock,
    id: TaskId,
) -> Result<Steered, EngineError> {
    for _ in 0..CONFLICTS_MAX {
        let state = load(store, id).await?.state;
        let owner_alive = state.owner().is_some_and(|owner| owners.is_alive(owner));
        let by = Canceller::Other { owner_alive };
        // Nothing about a cancel is left to chance.
        let mut given = Given {
            now: clock.now(),
            entropy: Entropy::from_seed([0; 16]),
            toolbox: Arc::default(),
        };
        let decision = decide(&state, &Command::CancelTask(CancelTask { by }), &mut given)?;
        if decision.events.is_empty() {
            return Ok(Steered::Requested);
        }
        let ends = decision.events.contains(&polity_model::event::Event::TaskCancelled);
        let commit = Commit {
            stream: state.stream(),
            expected_sequence: state.sequence(),
            owner_epoch: None,
            at: given.now,
            events: decision.events,
            definitions: Vec::new(),
        };
        match store.commit(commit).await {
            Ok(_) if ends => return Ok(Steered::Done(TaskStatus::Cancelled)),
            Ok(_) => return Ok(Steered::Requested),
            Err(CommitError::Conflict { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(EngineError::Contended(id))
}

/// The tasks that no one works on although someone should: their owner is gone. Oldest first.
pub fn orphans(store: &dyn Store, owners: &dyn Owners) -> Result<Vec<TaskRow>, StoreError> {
    let unfinished = TaskFilter {
        statuses: vec![TaskStatus::Pending, TaskStatus::Running],
        ..TaskFilter::default()
    };
    let mut rows = store.task_rows(&unfinished)?;
    rows.retain(|row| !row.owner.is_some_and(|owner| owners.is_alive(owner)));
    rows.reverse();
    Ok(rows)
}

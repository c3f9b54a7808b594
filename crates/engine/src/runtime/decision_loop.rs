//! The loop of every change: decide, commit, and after a conflict decide again.

use std::future::Future;

use jiff::Timestamp;
use polity_model::event::Event;
use polity_store::{CommitError, Leases};

use super::EngineError;
use super::journal::{CommitMode, TaskJournal};
use super::liveness::is_owner_alive;
use crate::state::TaskState;

/// The maximum number of attempts while other processes keep changing the same stream.
const CONFLICTS_MAX: u32 = 100;

/// The events that a decision proposes, with its result.
pub(super) struct ProposedEvents<T> {
    /// The time of the events.
    pub(super) at: Timestamp,
    /// The events. Without any, nothing is committed.
    pub(super) events: Vec<Event>,
    /// The result, once the events are durable.
    pub(super) output: T,
}

/// A stream that a decision is made on.
pub(super) trait DecisionTarget: Send {
    /// The result of the decision.
    type Output: Send;

    /// Decides on the current state.
    fn propose(
        &mut self,
    ) -> impl Future<Output = Result<ProposedEvents<Self::Output>, EngineError>> + Send;

    /// Commits the events and applies them.
    fn commit(
        &mut self,
        at: Timestamp,
        events: Vec<Event>,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Applies the events that others have committed.
    fn catch_up(&mut self) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// The error after too many conflicts.
    fn contended(&self, conflict: CommitError) -> EngineError;
}

/// Decides and commits. After a conflict, catches up and decides again.
pub(super) async fn decide_and_commit<D: DecisionTarget>(
    target: &mut D,
) -> Result<D::Output, EngineError> {
    let mut conflicts = 0;
    loop {
        let ProposedEvents { at, events, output } = target.propose().await?;
        if events.is_empty() {
            return Ok(output);
        }
        match target.commit(at, events).await {
            Err(EngineError::Commit(conflict @ CommitError::Conflict { .. })) => {
                conflicts += 1;
                if conflicts == CONFLICTS_MAX {
                    return Err(target.contended(conflict));
                }
                target.catch_up().await?;
            }
            committed => return committed.map(|()| output),
        }
    }
}

/// A decision on a task without a worker.
pub(super) struct TaskDecision<'a, F> {
    /// The journal.
    pub(super) journal: &'a TaskJournal,
    /// The task.
    pub(super) state: &'a mut TaskState,
    /// Set if the decision depends on whether the task's owner is alive.
    pub(super) leases: Option<&'a dyn Leases>,
    /// True if the commit must fail once the task has another owner.
    pub(super) is_fenced: bool,
    /// Decides, given the state and whether the owner is alive.
    pub(super) decide: F,
}

impl<F, T> DecisionTarget for TaskDecision<'_, F>
where
    F: FnMut(&TaskState, bool) -> Result<ProposedEvents<T>, EngineError> + Send,
    T: Send,
{
    type Output = T;

    async fn propose(&mut self) -> Result<ProposedEvents<T>, EngineError> {
        let is_alive = match self.leases {
            Some(leases) => is_owner_alive(leases, self.state.owner()).await,
            None => false,
        };
        (self.decide)(self.state, is_alive)
    }

    async fn commit(&mut self, at: Timestamp, events: Vec<Event>) -> Result<(), EngineError> {
        if self.is_fenced {
            self.journal.commit_as_owner(self.state, at, events, CommitMode::Grouped).await
        } else {
            self.journal.commit_unfenced(self.state, at, events).await
        }
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.journal.catch_up(self.state).await
    }

    fn contended(&self, _: CommitError) -> EngineError {
        EngineError::Contended(self.state.id())
    }
}

//! What a failure of the store, or of this program, left undone, and how it is made good.

use std::sync::Arc;

use polity_model::ids::TaskId;
use polity_store::CommitError;

use super::{CONFLICTS_MAX, EngineError, Shared, load};
use crate::budget::BudgetStatus;
use crate::commands::ReleaseTask;
use crate::decide::{Command, CommandRejection, decide};

/// How often it is tried to let go of a task that was given up.
const RELEASE_TRIES_MAX: u32 = 50;

impl Shared {
    /// Tries again what the store's failures left undone.
    pub(super) async fn finish_business(self: &Arc<Self>) {
        if !self.has_unfinished_business() {
            return;
        }
        let given_up: Vec<TaskId> = self.desk.inner().given_up.keys().copied().collect();
        for id in given_up {
            self.release(id).await;
        }
    }

    /// Lets go of a task that was given up, so that others can go on with it or end it.
    pub(super) async fn release(self: &Arc<Self>, id: TaskId) {
        match self.desk.inner().given_up.get_mut(&id) {
            Some(tries) if *tries < RELEASE_TRIES_MAX => *tries += 1,
            // A journal that cannot be read will not be readable by trying on.
            Some(_) | None => return,
        }
        match self.let_go(id).await {
            Ok(()) => {
                self.desk.inner().given_up.remove(&id);
            }
            // It stays given up, and the next look at the journal tries again.
            Err(error) => tracing::warn!(%id, %error, "a task could not be let go of"),
        }
    }

    async fn let_go(&self, id: TaskId) -> Result<(), EngineError> {
        let mut state = load::load(&self.parts.store, id).await?.state;
        for _ in 0..CONFLICTS_MAX {
            let mut ctx = self.decision_context(&Arc::default(), BudgetStatus::default());
            let command = Command::ReleaseTask(ReleaseTask { instance: self.parts.instance });
            let decision = match decide(&state, &command, &mut ctx) {
                Ok(decision) => decision,
                // Someone has ended it.
                Err(CommandRejection::Finished { .. }) => return Ok(()),
                Err(other) => return Err(other.into()),
            };
            match self.write(&mut state, &ctx, decision.events).await {
                Err(EngineError::Commit(CommitError::Conflict { .. })) => {
                    self.catch_up(&mut state).await?;
                }
                // Someone else owns it by now.
                Err(EngineError::Commit(CommitError::Fenced { .. })) => return Ok(()),
                written => return written,
            }
        }
        Err(EngineError::Contended(id))
    }

    fn has_unfinished_business(&self) -> bool {
        let inner = self.desk.inner();
        !inner.closed && inner.given_up.values().any(|tries| *tries < RELEASE_TRIES_MAX)
    }
}

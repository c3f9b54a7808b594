//! Work on other servers that no one waits for any more is ended there, as far as that can be done.

use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_store::{Commit, CommitError};

use super::{Pace, Shared};
use crate::clock::Clock;
use crate::commands::RecordRemoteCancel;
use crate::driver::Remotes;
use crate::state::TaskState;

/// How long a server is waited for that is asked to end a task.
pub(super) const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Asks the server to end what works for a task that has ended, if anything does. What came of it is
/// to be committed.
pub(super) async fn end_remote(
    remotes: &dyn Remotes,
    clock: &dyn Clock,
    agent: &AgentDefinition,
    state: &TaskState,
) -> Option<Commit> {
    let task = state.open_remote().filter(|_| state.status().is_final())?;
    let asked = tokio::time::timeout(CANCEL_WAIT, remotes.cancel(agent, task)).await;
    let refusal = asked.unwrap_or_else(|_| {
        Err(format!("the server did not answer within {} seconds", CANCEL_WAIT.as_secs()))
    });
    // It has an end to tell of, or there would be nothing to ask.
    let decision = RecordRemoteCancel { refusal: refusal.err() }.decide(state).ok()?;
    Some(Commit {
        stream: state.stream(),
        expected_sequence: state.sequence(),
        owner_epoch: None,
        at: clock.now(),
        events: decision.events,
        definitions: Vec::new(),
        sealed_input: None,
    })
}

impl Shared {
    /// Ends what works on another server for a task that has ended.
    pub(super) async fn end_remote_of(&self, agent: &AgentDefinition, state: &mut TaskState) {
        let parts = &self.parts;
        let ended = end_remote(&*parts.remotes, &*parts.clock, agent, state).await;
        let Some(commit) = ended else { return };
        let id = state.id();
        match self.commit(commit, Pace::Together).await {
            Ok(told) => {
                for recorded in told {
                    if let Err(error) = state.apply(recorded) {
                        tracing::warn!(%id, %error, "a task cannot follow its own journal");
                    }
                }
            }
            // Someone else has asked too, and told of it.
            Err(CommitError::Conflict { .. }) => {}
            // The task has ended all the same.
            Err(error) => tracing::warn!(%id, %error, "it could not be told what a server said"),
        }
    }
}

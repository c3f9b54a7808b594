//! Cancels the work of remote agents for tasks that have ended.

use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_store::CommitError;

use super::EngineError;
use super::journal::TaskJournal;
use crate::clock::Clock;
use crate::commands::RecordRemoteCancel;
use crate::driver::RemoteDriver;
use crate::state::TaskState;

/// The time that a server has to answer a cancel.
pub(super) const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the server to cancel its work for a task that has ended, and records the answer.
pub(super) async fn cancel_remote_work(
    journal: &TaskJournal,
    remotes: &dyn RemoteDriver,
    clock: &dyn Clock,
    agent: &AgentDefinition,
    state: &mut TaskState,
) -> Result<(), EngineError> {
    // An imported task that nobody trusts names a server that gets no request and no credentials.
    let may_ask = state.status().is_final() && !state.needs_trust();
    let Some(task) = state.open_remote().filter(|_| may_ask) else { return Ok(()) };
    let asked = tokio::time::timeout(CANCEL_TIMEOUT, remotes.cancel(agent, task)).await;
    let refusal = asked.unwrap_or_else(|_| {
        Err(format!("the server did not answer within {} seconds", CANCEL_TIMEOUT.as_secs()))
    });
    // Rejected only if there is no open work, which was checked.
    let Ok(decision) = (RecordRemoteCancel { refusal: refusal.err() }).decide(state) else {
        return Ok(());
    };
    match journal.commit_unfenced(state, clock.now(), decision.events).await {
        // Another process has asked too, and recorded the answer.
        Err(EngineError::Commit(CommitError::Conflict { .. })) => Ok(()),
        committed => committed,
    }
}

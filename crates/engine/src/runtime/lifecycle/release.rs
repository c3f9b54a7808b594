//! Releases tasks that this process gave up after an error, so that others can adopt them.

use std::sync::Weak;
use std::time::Duration;

use polity_model::ids::TaskId;
use polity_store::CommitError;

use crate::commands::ReleaseTask;
use crate::decide::{Command, CommandRejection, decide};
use crate::runtime::decision_loop::{ProposedEvents, TaskDecision, decide_and_commit};
use crate::runtime::history::load_task;
use crate::runtime::{EngineError, RuntimeInner};

/// The maximum number of attempts: an unreadable journal does not become readable.
const ATTEMPTS_MAX: u32 = 50;

/// The interval of the attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Retries failed releases until the runtime is dropped.
pub(in crate::runtime) async fn retry_releases(inner: Weak<RuntimeInner>) {
    let Some(abandoned) = inner.upgrade().map(|inner| inner.scheduler.abandoned()) else { return };
    loop {
        abandoned.notified().await;
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let Some(inner) = inner.upgrade() else { return };
            let tasks = inner.scheduler.tasks_to_release(ATTEMPTS_MAX);
            if tasks.is_empty() {
                break;
            }
            for id in tasks {
                release_task(&inner, id).await;
            }
        }
    }
}

/// Releases a task that was given up.
pub(in crate::runtime) async fn release_task(inner: &RuntimeInner, id: TaskId) {
    if !inner.scheduler.count_release_attempt(id, ATTEMPTS_MAX) {
        return;
    }
    match try_release(inner, id).await {
        Ok(()) => inner.scheduler.forget_abandoned(id),
        Err(error) => tracing::warn!(%id, %error, "cannot release a task"),
    }
}

async fn try_release(inner: &RuntimeInner, id: TaskId) -> Result<(), EngineError> {
    let mut state = load_task(&*inner.deps.store, id).await?.state;
    let mut release = TaskDecision {
        journal: &inner.journal,
        state: &mut state,
        leases: None,
        is_fenced: true,
        decide: |state: &_, _| {
            let mut context = inner.plain_context();
            let command = ReleaseTask { instance: inner.deps.instance() };
            let decision = decide(state, &Command::ReleaseTask(command), &mut context)?;
            Ok(ProposedEvents { at: context.now, events: decision.events, output: () })
        },
    };
    match decide_and_commit(&mut release).await {
        // The task has ended, or another process owns it.
        Err(
            EngineError::Rejected(CommandRejection::Finished { .. })
            | EngineError::Commit(CommitError::Fenced { .. }),
        ) => Ok(()),
        released => released,
    }
}

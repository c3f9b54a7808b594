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

/// The delay before the second attempt. It doubles after each pass, up to the maximum.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);

/// The longest delay between two attempts. A full disk may take hours to be noticed.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Retries failed releases until the runtime is dropped.
pub(in crate::runtime) async fn retry_releases(inner: Weak<RuntimeInner>) {
    let Some(abandoned) = inner.upgrade().map(|inner| inner.scheduler.abandoned()) else { return };
    loop {
        abandoned.notified().await;
        let mut delay = RETRY_DELAY_MIN;
        loop {
            tokio::time::sleep(delay).await;
            let Some(inner) = inner.upgrade() else { return };
            let tasks = inner.scheduler.tasks_to_release();
            if tasks.is_empty() {
                break;
            }
            for id in tasks {
                release_task(&inner, id).await;
            }
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }
}

/// Releases a task that was given up.
pub(in crate::runtime) async fn release_task(inner: &RuntimeInner, id: TaskId) {
    if !inner.scheduler.is_abandoned(id) {
        return;
    }
    match try_release(inner, id).await {
        Ok(()) => inner.scheduler.forget_abandoned(id),
        Err(error) if is_permanent(&error) => {
            tracing::error!(%id, %error, "this process keeps a task that it cannot release");
            inner.scheduler.forget_abandoned(id);
        }
        Err(error) => tracing::warn!(%id, %error, "cannot release a task yet"),
    }
}

/// True if another attempt would fail too: an unreadable journal does not become readable.
fn is_permanent(error: &EngineError) -> bool {
    match error {
        EngineError::Broken { .. } | EngineError::Pinned(_) | EngineError::NotFound(_) => true,
        EngineError::Rejected(_)
        | EngineError::NotReady(_)
        | EngineError::TakenOver(_)
        | EngineError::Contended(_)
        | EngineError::Left(_)
        | EngineError::Panicked { .. }
        | EngineError::Fork(_)
        | EngineError::Retry(_)
        | EngineError::Schedule(_)
        | EngineError::Store(_)
        | EngineError::Commit(_) => false,
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

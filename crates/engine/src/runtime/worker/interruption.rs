//! Interruptions of a worker that waits for an effect.

use polity_model::event::Event;
use tokio::sync::mpsc;

use crate::decide::Command;
use crate::runtime::RuntimeInner;
use crate::runtime::scheduler::WorkerSignal;
use crate::state::TaskState;

/// The reason why a worker stopped waiting for an effect.
pub(super) enum Interruption {
    /// This process was asked to cancel the task.
    Cancelled,
    /// Another process has changed the task in a way that ends the effect.
    Changed,
    /// The runtime was dropped.
    Abandoned,
}

/// The command that records an effect, or its interruption.
pub(super) type EffectOutcome = Result<Command, Interruption>;

/// Returns when the current effect must be abandoned.
pub(super) async fn interruption(
    inner: &RuntimeInner,
    state: &TaskState,
    signals: &mut mpsc::UnboundedReceiver<WorkerSignal>,
) -> Interruption {
    loop {
        match signals.recv().await {
            None => return Interruption::Abandoned,
            Some(WorkerSignal::Cancel) => return Interruption::Cancelled,
            Some(WorkerSignal::Changed(sequence)) if sequence <= state.sequence() => {}
            Some(WorkerSignal::Changed(_)) => match inner.journal.events_after(state).await {
                Ok(news) if news.iter().any(|recorded| interrupts(&recorded.event)) => {
                    return Interruption::Changed;
                }
                Ok(_) => {}
                // The next commit conflicts and catches up; the effect goes on.
                Err(error) => tracing::warn!(%error, "cannot read new events of a task"),
            },
        }
    }
}

/// True if an event of another process interrupts an effect. Others wait until the effect is over.
fn interrupts(event: &Event) -> bool {
    matches!(event, Event::CancelRequested | Event::TaskCancelled | Event::TaskClaimed { .. })
}

//! Signals workers about commits of other processes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use polity_model::event::StreamId;
use polity_store::{ChangeFeed, EventHeader};

use super::RuntimeInner;
use super::scheduler::{WorkerSignal, check_queued};

/// The wait after a failed read.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Follows the change feed until the runtime is dropped.
pub(super) async fn watch(inner: Weak<RuntimeInner>, mut changes: Box<dyn ChangeFeed>) {
    loop {
        let batch = changes.next().await;
        let Some(inner) = inner.upgrade() else { return };
        match batch {
            Ok(headers) => {
                for header in headers {
                    notify(&inner, header).await;
                }
            }
            // The next read may succeed; commits report errors in any case.
            Err(error) => {
                drop(inner);
                tracing::warn!(%error, "the journal could not be read");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

async fn notify(inner: &Arc<RuntimeInner>, header: EventHeader) {
    match header.stream {
        StreamId::Task(id) => {
            if !inner.scheduler.signal(id, WorkerSignal::Changed(header.sequence)) {
                check_queued(inner, id).await;
            }
        }
        StreamId::Agent(name) => inner.toggles.reload(&*inner.deps.store, name).await,
        StreamId::Session(_) | StreamId::Schedule(_) => {}
    }
}

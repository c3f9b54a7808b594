//! The trace contexts of the calls that this process makes.

use std::sync::Arc;

use polity_engine::driver::{BoxFuture, TraceContexts, TracedStep};
use polity_model::event::JournalPosition;
use polity_model::ids::InstanceId;
use polity_store::Store;
use tokio::sync::Mutex;

use super::span_builder::SpanBuilder;

/// Derives trace contexts from the journal, as the exporter derives spans.
pub(super) struct JournalTraceContexts(Mutex<SpanBuilder>);

impl JournalTraceContexts {
    /// The contexts of tasks in this store.
    pub(super) fn new(store: &Arc<dyn Store>, instance: InstanceId) -> Self {
        let start = JournalPosition::default();
        Self(Mutex::new(SpanBuilder::new(Arc::clone(store), instance, start)))
    }
}

impl TraceContexts for JournalTraceContexts {
    fn traceparent(&self, step: TracedStep) -> BoxFuture<'_, Option<Arc<str>>> {
        Box::pin(async move {
            let found = self.0.lock().await.traceparent(step).await;
            // A call without a trace context is better than none.
            let found = found.unwrap_or_else(|error| {
                tracing::debug!(id = %step.task, %error, "cannot find the trace context of a call");
                None
            });
            found.map(Arc::from)
        })
    }
}

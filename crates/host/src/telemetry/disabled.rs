//! The stand-in for telemetry in a build without the feature `otel`.

use std::sync::Arc;

use polity_engine::driver::TraceContexts;
use polity_engine::runtime::LiveEvent;
use polity_model::ids::InstanceId;
use polity_store::Store;
use tokio::sync::broadcast;

use crate::context::HostContext;

/// No telemetry.
pub(crate) struct DisabledTelemetry;

impl DisabledTelemetry {
    /// No call has a trace context.
    pub(crate) fn trace_contexts(
        _: &HostContext,
        _: &Arc<dyn Store>,
        _: InstanceId,
    ) -> Option<Arc<dyn TraceContexts>> {
        None
    }

    /// Starts nothing.
    #[expect(clippy::unused_async, reason = "it has the signature of the exporter's")]
    pub(crate) async fn start(
        _: &HostContext,
        _: broadcast::Receiver<LiveEvent>,
        _: &Arc<dyn Store>,
        _: InstanceId,
    ) -> Self {
        Self
    }

    /// Waits for nothing.
    #[expect(clippy::unused_async, reason = "it has the signature of the exporter's")]
    pub(crate) async fn close(self) {}
}

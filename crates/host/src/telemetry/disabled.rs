//! The stand-in for telemetry in a build without the feature `otel`.

use std::sync::Arc;

use polity_engine::runtime::Runtime;
use polity_store::Store;

use crate::context::HostContext;

/// No telemetry.
pub(crate) struct DisabledTelemetry;

impl DisabledTelemetry {
    /// Starts nothing.
    #[expect(clippy::unused_async, reason = "it has the signature of the exporter's")]
    pub(crate) async fn start(_: &HostContext, _: &Runtime, _: &Arc<dyn Store>) -> Self {
        Self
    }

    /// Waits for nothing.
    #[expect(clippy::unused_async, reason = "it has the signature of the exporter's")]
    pub(crate) async fn close(self) {}
}

//! What stands in for telemetry in a program that was built without it.

use std::sync::Arc;

use polity_drivers::Environment;
use polity_engine::runtime::Runtime;
use polity_store::Store;

use crate::app::App;

/// No telemetry.
pub(crate) struct Telemetry;

impl Telemetry {
    /// Starts nothing.
    pub(crate) fn start(_: &App, _: &Runtime, _: &Arc<dyn Store>, _: &Environment) -> Self {
        Self
    }

    /// Waits for nothing.
    #[expect(clippy::unused_async, reason = "it stands in for one that waits")]
    pub(crate) async fn close(self) {}
}

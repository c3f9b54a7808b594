//! The retention policy, applied without a person.

use std::sync::Weak;
use std::time::Duration;

use polity_host::{HostError, remove_expired};

use crate::state::ServerState;

/// The time between two passes.
const INTERVAL: Duration = Duration::from_hours(1);

/// Removes ended tasks at once and at intervals.
pub(crate) async fn apply_retention(state: Weak<ServerState>) {
    loop {
        let Some(strong) = state.upgrade() else { return };
        match pass(&strong).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed tasks by the retention policy"),
            Err(error) => tracing::error!(%error, "cannot apply the retention policy"),
        }
        drop(strong);
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn pass(state: &ServerState) -> Result<usize, HostError> {
    let store = state.host.queries().store();
    remove_expired(&state.context, &state.home(), &**store).await
}

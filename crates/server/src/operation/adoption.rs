//! Adoption: a server continues every task that no live process owns.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use polity_engine::decide::CommandRejection;
use polity_engine::runtime::EngineError;
use polity_model::event::Event;
use polity_model::ids::TaskId;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::state::ServerState;

/// The time between two passes without a reason. A process that dies leaves no event.
const INTERVAL: Duration = Duration::from_secs(30);

/// The time in which reasons for a pass are collected.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// Adopts tasks at once, when an event gives a reason, and at intervals.
pub(crate) async fn adopt_orphans(state: Weak<ServerState>) {
    let mut reported = BTreeSet::new();
    loop {
        let Some(strong) = state.upgrade() else { return };
        if strong.is_draining() {
            return;
        }
        let mut live = strong.hub.subscribe();
        if let Err(error) = adopt_all(&strong, &mut reported).await {
            tracing::error!(error = %error, "cannot look for interrupted tasks");
        }
        drop(strong);
        let deadline = Instant::now() + INTERVAL;
        loop {
            match tokio::time::timeout_at(deadline, live.recv()).await {
                Ok(Ok(frame)) if is_reason(&frame.recorded.event) => {
                    tokio::time::sleep(SETTLE_TIME).await;
                    break;
                }
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Closed)) => return,
                Ok(Err(RecvError::Lagged(_))) | Err(_) => break,
            }
        }
    }
}

/// True if a task may wait for a new owner after this event.
fn is_reason(event: &Event) -> bool {
    matches!(event, Event::ReviewAnswered { .. } | Event::TaskReleased | Event::CancelRequested)
}

async fn adopt_all(
    state: &Arc<ServerState>,
    reported: &mut BTreeSet<TaskId>,
) -> Result<(), polity_host::HostError> {
    let orphans = state.host.queries().orphans().await?;
    for row in &orphans.untrusted {
        if reported.insert(row.id) {
            tracing::warn!(task = %row.id, "imported task waits for trust: `polity task resume ID`");
        }
    }
    for row in orphans.resumable {
        match state.host.runtime().adopt(row.id).await {
            Ok(_) => tracing::info!(task = %row.id, "continued an interrupted task"),
            // Another process was faster, or nothing is left to do.
            Err(
                EngineError::TakenOver(_)
                | EngineError::Rejected(
                    CommandRejection::OwnerAlive { .. }
                    | CommandRejection::Finished { .. }
                    | CommandRejection::AwaitingHuman { .. },
                ),
            ) => {}
            Err(error) => {
                if reported.insert(row.id) {
                    tracing::warn!(task = %row.id, %error, "cannot continue an interrupted task");
                }
            }
        }
    }
    Ok(())
}

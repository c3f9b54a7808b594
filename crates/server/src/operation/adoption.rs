//! Adoption: a server continues every task that no live process owns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use polity_engine::decide::CommandRejection;
use polity_engine::runtime::EngineError;
use polity_host::HostError;
use polity_model::event::Event;
use polity_model::ids::TaskId;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::state::ServerState;

/// The time between two passes without a reason. A process that dies leaves no event.
const INTERVAL: Duration = Duration::from_secs(30);

/// The time in which reasons for a pass are collected.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// The delay before a task whose work failed here is adopted again. It doubles with each failure.
const FAILURE_DELAY_MIN: Duration = Duration::from_secs(1);

/// The longest delay before a task whose work failed here is adopted again.
const FAILURE_DELAY_MAX: Duration = Duration::from_mins(10);

/// Adopts tasks at once, when an event gives a reason, and at intervals.
pub(crate) async fn adopt_orphans(state: Weak<ServerState>) {
    let mut adopter = OrphanAdopter::default();
    loop {
        let Some(strong) = state.upgrade() else { return };
        if strong.is_draining() {
            return;
        }
        let mut live = strong.hub.subscribe();
        if let Err(error) = adopter.adopt_all(&strong).await {
            tracing::error!(error = %error, "cannot look for interrupted tasks");
        }
        drop(strong);
        let deadline = adopter.next_pass();
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

/// Adopts orphans, and leaves those alone whose work has just failed here.
#[derive(Default)]
struct OrphanAdopter {
    /// Tasks that were named in the log.
    reported: BTreeSet<TaskId>,
    /// Tasks whose work stopped with an error of this process.
    failures: BTreeMap<TaskId, WorkFailure>,
    /// The work on adopted tasks: whether it came to an end that the journal knows.
    adopted: JoinSet<(TaskId, bool)>,
}

/// The failures of a task's work since it last succeeded.
#[derive(Debug, Clone, Copy)]
struct WorkFailure {
    count: u32,
    /// The time from which the task may be adopted again.
    next: Instant,
}

impl WorkFailure {
    /// A failure after earlier ones.
    fn after(before: Option<Self>, now: Instant) -> Self {
        let count = before.map_or(0, |failure| failure.count);
        let delay = FAILURE_DELAY_MIN.saturating_mul(1_u32.checked_shl(count).unwrap_or(u32::MAX));
        Self { count: count.saturating_add(1), next: now + delay.min(FAILURE_DELAY_MAX) }
    }
}

impl OrphanAdopter {
    async fn adopt_all(&mut self, state: &ServerState) -> Result<(), HostError> {
        self.note_ended_work();
        let orphans = state.host.queries().orphans().await?;
        for row in &orphans.untrusted {
            if self.reported.insert(row.id) {
                tracing::warn!(
                    task = %row.id,
                    "imported task waits for trust: `polity task resume ID`"
                );
            }
        }
        let resumable: BTreeSet<_> = orphans.resumable.iter().map(|row| row.id).collect();
        // A task that is being continued keeps its failures until it succeeds.
        let now = Instant::now();
        let is_recent = |failure: &WorkFailure| now < failure.next + FAILURE_DELAY_MAX;
        self.failures.retain(|id, failure| resumable.contains(id) || is_recent(failure));
        for id in resumable {
            if self.failures.get(&id).is_none_or(|failure| failure.next <= Instant::now()) {
                self.adopt(state, id).await;
            }
        }
        Ok(())
    }

    async fn adopt(&mut self, state: &ServerState, id: TaskId) {
        match state.host.runtime().adopt(id).await {
            Ok(mut handle) => {
                tracing::info!(task = %id, "continued an interrupted task");
                self.adopted.spawn(async move { (id, handle.wait().await.is_ok()) });
            }
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
                if self.reported.insert(id) {
                    tracing::warn!(task = %id, %error, "cannot continue an interrupted task");
                }
            }
        }
    }

    /// Counts the failures among the work that has ended since the last pass.
    fn note_ended_work(&mut self) {
        while let Some(ended) = self.adopted.try_join_next() {
            match ended {
                Ok((id, true)) => {
                    self.failures.remove(&id);
                }
                Ok((id, false)) => {
                    let failure =
                        WorkFailure::after(self.failures.get(&id).copied(), Instant::now());
                    self.failures.insert(id, failure);
                }
                // Waiting for work does not panic, and the set ends with this process.
                Err(_) => {}
            }
        }
    }

    /// The time of the next pass without another reason.
    fn next_pass(&self) -> Instant {
        let now = Instant::now();
        let waiting = self.failures.values().map(|failure| failure.next).filter(|next| *next > now);
        waiting.fold(now + INTERVAL, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_maximum() {
        let now = Instant::now();
        let mut failure = None;
        let mut delays = Vec::new();
        for _ in 0..12 {
            let next = WorkFailure::after(failure, now);
            delays.push((next.next - now).as_secs());
            failure = Some(next);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_work_is_counted_until_it_succeeds() {
        let mut adopter = OrphanAdopter::default();
        let id = TaskId::from_random_bytes([1; 16]);
        for (succeeds, count) in [(false, Some(1)), (false, Some(2)), (true, None)] {
            adopter.adopted.spawn(async move { (id, succeeds) });
            while !adopter.adopted.is_empty() {
                tokio::task::yield_now().await;
                adopter.note_ended_work();
            }
            assert_eq!(adopter.failures.get(&id).map(|failure| failure.count), count);
        }
    }
}

//! Deduplication: shares the run of a task with the same request.

use std::time::Duration;

use polity_model::machine::task::TaskStatus;
use polity_store::TaskFilter;
use tokio::time::Instant;

use super::Worker;
use super::interruption::{EffectOutcome, Interruption, interruption};
use crate::commands::RecordDuplicate;
use crate::decide::Command;
use crate::decide::duplicate_tasks::DuplicateTasks;
use crate::runtime::EngineError;
use crate::runtime::liveness::{OwnerLiveness, is_owner_alive};

/// The interval at which the original task is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The time that the original task has to start. One of this process may be waiting for a slot that
/// this task holds.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// The status of the task whose run is shared.
enum OriginalStatus {
    /// It has completed with this result.
    Done(String),
    /// It has not started, or shares a run itself.
    Pending,
    /// It is running.
    Running,
    /// It has failed, or waits for something else.
    Unusable,
}

impl Worker {
    /// Looks for a task whose run this one can share. A task that was queued runs on its own.
    pub(super) async fn find_original(&mut self) -> Result<(), EngineError> {
        self.slot.duplicate_of = None;
        let agent = self.cli_agent();
        let (Some(dedup_key), Some(cli), None) = (
            self.state.task().order().request,
            agent.as_ref().and_then(|agent| agent.program()),
            self.state.execution(),
        ) else {
            return Ok(());
        };
        let since = DuplicateTasks::since(cli, self.state.task().order().created_at);
        let (dedup_key, created_since) = (Some(dedup_key), Some(since));
        let filter = TaskFilter { dedup_key, created_since, ..TaskFilter::default() };
        let rows = self.inner.deps.store.task_rows(&filter).await?;
        let leases = &*self.inner.deps.leases;
        let owners = rows.iter().map(|row| row.owner).collect();
        let owners = OwnerLiveness::of(leases, owners).await;
        let duplicates = DuplicateTasks { rows: &rows, with_pending: !self.slot.ignores_pending };
        let is_alive = |owner| owners.is_alive(Some(owner));
        self.slot.duplicate_of = duplicates.original_of(self.state.id(), cli, is_alive);
        Ok(())
    }

    /// Waits for the result of the task whose run is shared.
    pub(super) async fn wait_for_duplicate(&mut self) -> Result<EffectOutcome, EngineError> {
        let began = Instant::now();
        loop {
            match self.original_status().await? {
                OriginalStatus::Done(result) => return Ok(Ok(record(Some(result)))),
                OriginalStatus::Pending if began.elapsed() < START_TIMEOUT => {}
                OriginalStatus::Pending => {
                    self.slot.ignores_pending = true;
                    break;
                }
                OriginalStatus::Running => {}
                OriginalStatus::Unusable => break,
            }
            if self.state.cancel_requested() {
                return Ok(Err(Interruption::Cancelled));
            }
            let Self { inner, state, signals, .. } = self;
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                interrupted = interruption(inner, state, signals) => return Ok(Err(interrupted)),
            }
            // The select may have consumed a signal.
            self.catch_up().await?;
        }
        self.prepare_slot().await?;
        Ok(Ok(record(None)))
    }

    async fn original_status(&self) -> Result<OriginalStatus, EngineError> {
        let Some(id) = self.state.task().shared_with() else {
            return Ok(OriginalStatus::Unusable);
        };
        let deps = &self.inner.deps;
        let Some(row) = deps.store.task_row(id).await? else {
            return Ok(OriginalStatus::Unusable);
        };
        let is_original = row.shared_with.is_none();
        Ok(match row.status {
            TaskStatus::Completed if is_original => {
                OriginalStatus::Done(deps.store.task(&row).await?.result.unwrap_or_default())
            }
            TaskStatus::Pending | TaskStatus::Running
                if is_owner_alive(&*deps.leases, row.owner).await =>
            {
                let is_running = row.status == TaskStatus::Running && is_original;
                if is_running { OriginalStatus::Running } else { OriginalStatus::Pending }
            }
            TaskStatus::Pending
            | TaskStatus::Running
            | TaskStatus::AwaitingHuman
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled => OriginalStatus::Unusable,
        })
    }
}

fn record(result: Option<String>) -> Command {
    Command::RecordDuplicate(RecordDuplicate { result })
}

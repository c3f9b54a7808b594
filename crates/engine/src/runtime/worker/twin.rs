//! What a worker does for a program whose run may be shared: looking for a task that was given the
//! same, and waiting for what comes of it.

use std::sync::Arc;
use std::time::Duration;

use polity_model::machine::task::TaskStatus;
use polity_store::{Store, StoreError, TaskFilter};
use tokio::time::Instant;

use super::{Interrupted, Worker, interruption};
use crate::commands::RecordDuplicate;
use crate::decide::Command;
use crate::decide::duplicate_tasks::DuplicateTasks;
use crate::runtime::{EngineError, load};

/// How often to look what became of the other task.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long to wait for another task to begin. One of the same process might wait for this one to
/// make room.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);

/// What became of a twin.
enum Twin {
    /// It has succeeded, and this came of it.
    Done(String),
    /// It has not begun, or not yet noticed that the one that it waits for is lost.
    Pending,
    /// It is at work.
    AtWork,
    /// Nothing came of it, or nothing will for a while.
    Lost,
}

impl Worker {
    /// Looks for a task whose run this one can share. One that was in line itself has its own.
    pub(super) async fn look_for_twin(&mut self) -> Result<(), EngineError> {
        self.place.twin = None;
        let agent = self.program();
        let (Some(request), Some(cli), None) = (
            self.state.task().order().request,
            agent.as_ref().and_then(|agent| agent.program()),
            self.state.execution(),
        ) else {
            return Ok(());
        };
        let since = DuplicateTasks::since(cli, self.state.task().order().created_at);
        let (request, created_since) = (Some(request), Some(since));
        let filter = TaskFilter { request, created_since, ..TaskFilter::default() };
        let store = &self.shared.parts.store;
        let rows = load::blocking(store, move |store| store.task_rows(&filter)).await?;
        let twins = DuplicateTasks { rows: &rows, with_pending: !self.place.ignores_pending };
        let owners = &self.shared.parts.owners;
        self.place.twin = twins.original_of(self.state.id(), cli, |owner| owners.is_alive(owner));
        Ok(())
    }

    /// Waits for what comes of the task whose run is shared.
    pub(super) async fn wait_for_twin(
        &mut self,
    ) -> Result<Result<Command, Interrupted>, EngineError> {
        let began = Instant::now();
        loop {
            match self.twin().await? {
                Twin::Done(result) => return Ok(Ok(record(Some(result)))),
                Twin::Pending if began.elapsed() < BEGINS_WITHIN => {}
                Twin::Pending => {
                    self.place.ignores_pending = true;
                    break;
                }
                Twin::AtWork => {}
                Twin::Lost => break,
            }
            if self.state.cancel_requested() {
                return Ok(Err(Interrupted::Cancelled));
            }
            let Self { shared, state, signals, .. } = self;
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                interrupted = interruption(shared, state, signals) => return Ok(Err(interrupted)),
            }
            // A signal may have been taken in just when there was something else to look at.
            self.catch_up().await?;
        }
        self.prepare_program().await?;
        Ok(Ok(record(None)))
    }

    /// What became of the task whose run is shared.
    async fn twin(&self) -> Result<Twin, EngineError> {
        let Some(id) = self.state.task().shared_with() else { return Ok(Twin::Lost) };
        let owners = Arc::clone(&self.shared.parts.owners);
        let look = move |store: &dyn Store| -> Result<Twin, StoreError> {
            let Some(row) = store.task_row(id)? else { return Ok(Twin::Lost) };
            let is_at_work = || row.owner.is_some_and(|owner| owners.is_alive(owner));
            Ok(match row.status {
                TaskStatus::Completed if row.shared_with.is_none() => {
                    Twin::Done(store.task(&row)?.result.unwrap_or_default())
                }
                TaskStatus::Running if row.shared_with.is_none() && is_at_work() => Twin::AtWork,
                TaskStatus::Pending | TaskStatus::Running if is_at_work() => Twin::Pending,
                TaskStatus::Pending
                | TaskStatus::Running
                | TaskStatus::AwaitingHuman
                | TaskStatus::Completed
                | TaskStatus::Failed
                | TaskStatus::Cancelled => Twin::Lost,
            })
        };
        Ok(load::blocking(&self.shared.parts.store, look).await?)
    }
}

fn record(result: Option<String>) -> Command {
    Command::RecordDuplicate(RecordDuplicate { result })
}

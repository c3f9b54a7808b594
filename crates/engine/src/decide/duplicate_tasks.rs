//! Deduplication: finds the task whose run a duplicate shares.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::CliAgent;
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_store::TaskRow;

/// The tasks with the same deduplication key.
pub(crate) struct DuplicateTasks<'a> {
    /// The tasks, newest first, including the duplicate itself.
    pub(crate) rows: &'a [TaskRow],
    /// True if a pending task counts, and a duplicate whose original is lost.
    pub(crate) with_pending: bool,
}

/// The agent's deduplication window, if it has one.
fn window(cli: &CliAgent) -> Option<SignedDuration> {
    let window = Duration::from_secs(cli.deduplicate_seconds?.get());
    Some(SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX))
}

impl DuplicateTasks<'_> {
    /// The earliest creation time of tasks that matter: possible originals, and the originals of
    /// those.
    pub(crate) fn since(cli: &CliAgent, created_at: Timestamp) -> Timestamp {
        let window = window(cli).unwrap_or_default();
        let back = window.checked_add(window).unwrap_or(SignedDuration::MAX);
        created_at.checked_sub(back).unwrap_or(Timestamp::MIN)
    }

    /// Finds the original of a duplicate: the oldest earlier task within the agent's window that
    /// has its own run and has completed or is running. All processes see the same order, so no two
    /// tasks wait for each other.
    pub(crate) fn original_of(
        &self,
        task: TaskId,
        cli: &CliAgent,
        is_alive: impl Fn(InstanceId) -> bool,
    ) -> Option<TaskId> {
        let window = window(cli)?;
        let own = self.rows.iter().position(|row| row.id == task)?;
        let (own, older) = self.rows.get(own..)?.split_first()?;
        let is_shared = |row: &&TaskRow| {
            let is_at_work = row.owner.is_some_and(&is_alive);
            let counts = match (row.status, row.shared_with) {
                (TaskStatus::Completed, None) => true,
                (TaskStatus::Running, None) => is_at_work,
                (TaskStatus::Pending, _) => is_at_work && self.with_pending,
                // It is about to start its own run.
                (TaskStatus::Running, Some(with)) => {
                    is_at_work && self.with_pending && self.is_lost(with, &is_alive)
                }
                (TaskStatus::Completed, Some(_))
                | (TaskStatus::AwaitingHuman | TaskStatus::Failed | TaskStatus::Cancelled, _) => {
                    false
                }
            };
            // The clock may have been set back since the other was created.
            counts && own.created_at.duration_since(row.created_at).abs() <= window
        };
        older.iter().rev().find(is_shared).map(|row| row.id)
    }

    /// True if a task will never have a result to share.
    fn is_lost(&self, task: TaskId, is_alive: impl Fn(InstanceId) -> bool) -> bool {
        let row = self.rows.iter().find(|row| row.id == task);
        row.is_none_or(|row| match row.status {
            TaskStatus::Completed => false,
            TaskStatus::Pending | TaskStatus::Running => !row.owner.is_some_and(is_alive),
            TaskStatus::AwaitingHuman | TaskStatus::Failed | TaskStatus::Cancelled => true,
        })
    }
}

#[cfg(test)]
#[path = "duplicate_tasks_tests.rs"]
mod tests;

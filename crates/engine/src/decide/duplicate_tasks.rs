//! Deduplication: finds the task whose run a duplicate shares.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::CliAgent;
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_store::TaskRow;

/// Those that are looked at for a twin.
pub(crate) struct DuplicateTasks<'a> {
    /// The tasks that were given the same, the newest first. The task itself is among them.
    pub(crate) rows: &'a [TaskRow],
    /// Whether one counts that has not begun, or that waits for one of which nothing comes.
    pub(crate) with_pending: bool,
}

/// For how long the same input gives the earlier result, if it does.
fn window(cli: &CliAgent) -> Option<SignedDuration> {
    let window = Duration::from_secs(cli.deduplicate_seconds?.get());
    Some(SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX))
}

impl DuplicateTasks<'_> {
    /// Since when tasks must have been created to matter to one that was created then: those that it
    /// could share a run with, and those that these wait for.
    pub(crate) fn since(cli: &CliAgent, created_at: Timestamp) -> Timestamp {
        let window = window(cli).unwrap_or_default();
        let back = window.checked_add(window).unwrap_or(SignedDuration::MAX);
        created_at.checked_sub(back).unwrap_or(Timestamp::MIN)
    }

    /// The task whose run a task shares, if there is one: the oldest of those that were given the
    /// same before it, within the time that its agent allows, that has a run of its own and has
    /// succeeded or is at work. Everyone sees the same order, so that no two wait for each other.
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
                // It is about to have a run of its own.
                (TaskStatus::Running, Some(with)) => {
                    is_at_work && self.with_pending && self.is_lost(with, &is_alive)
                }
                (TaskStatus::Completed, Some(_))
                | (TaskStatus::AwaitingHuman | TaskStatus::Failed | TaskStatus::Cancelled, _) => {
                    false
                }
            };
            counts && own.created_at.duration_since(row.created_at) <= window
        };
        older.iter().rev().find(is_shared).map(|row| row.id)
    }

    /// Whether nothing comes of a task that someone waits for.
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

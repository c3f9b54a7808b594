//! Filters of list reads.

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::JournalPosition;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;

/// Conditions on listed tasks, all of which must hold. Rows are listed newest first.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only tasks in one of these statuses; empty for any.
    pub statuses: Vec<TaskStatus>,
    /// Only tasks of this agent or workflow.
    pub assigned_agent: Option<String>,
    /// Only direct sub-tasks of this task.
    pub parent: Option<TaskId>,
    /// Only tasks without a parent.
    pub roots_only: bool,
    /// Only tasks with a parent.
    pub sub_tasks_only: bool,
    /// Only forks of this task.
    pub forked_from: Option<TaskId>,
    /// Only tasks with this deduplication key.
    pub dedup_key: Option<Digest>,
    /// Only tasks created at this time or later.
    pub created_since: Option<Timestamp>,
    /// Only tasks created before this position.
    pub created_before: Option<JournalPosition>,
    /// Only tasks whose review deadline is at or before this time.
    pub overdue_at: Option<Timestamp>,
    /// The maximum number of rows.
    pub limit: Option<u32>,
}

/// Conditions on listed executions, all of which must hold. Rows are listed newest first.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Only executions of this agent.
    pub agent: Option<String>,
    /// Only executions that are queued or running.
    pub open_only: bool,
    /// Only executions that hold or wait for a slot of this pool.
    pub pool: Option<String>,
    /// The maximum number of rows.
    pub limit: Option<u32>,
}

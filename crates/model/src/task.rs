//! Tasks: the frozen order, the live run and the snapshot that is stored and shown.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::digest::Digest;
use crate::event::{ForkPoint, RaisedLimits, ScheduledFor, TaskCreated};
use crate::failure::ErrorCode;
use crate::ids::{ExecutionId, TaskId};
use crate::machine::task::{TaskStatus, TaskTransition};
use crate::machine::{IllegalTransition, Machine};
use crate::name::Name;
use crate::usage::{Usage, UsageReport};

/// The request: set when a task is created, never changed.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskOrder {
    /// The task's id.
    pub id: TaskId,
    /// The input.
    pub description: String,
    /// The agent or workflow that does it.
    pub assigned_agent: Name,
    /// The parameters of the task.
    pub parameters: Map<String, Value>,
    /// A class of the retention policy.
    pub class: Option<String>,
    /// The task's own retention period after its end.
    pub retention_days: Option<u32>,
    /// The task that this one is a part of.
    pub parent_task_id: Option<TaskId>,
    /// The node of its parent's workflow that it performs.
    pub parent_node: Option<Name>,
    /// The index of the item of its parent's map that it performs.
    pub map_item: Option<u32>,
    /// The budget from the request.
    pub budget: Option<Budget>,
    /// The point in another task's history from which it continues, if it is a fork or retry.
    pub forked_from: Option<ForkedFrom>,
    /// The task that it continues, if it is a retry.
    pub retry_of: Option<TaskId>,
    /// The run that the retry repeats, if that run was cut off and may have had its effect.
    pub doubted_run: Option<ExecutionId>,
    /// The limits that the retry raises.
    pub raised: RaisedLimits,
    /// The working directory from the request.
    pub working_directory: Option<String>,
    /// True if the raw input contains secrets, which the journal does not hold.
    pub has_private: bool,
    /// The deduplication key of the request, if duplicates share a run.
    pub request: Option<Digest>,
    /// The schedule and due time that started it.
    pub scheduled: Option<Box<ScheduledFor>>,
    /// The time it was created.
    pub created_at: Timestamp,
}

impl TaskOrder {
    /// Builds the order from a task's first event.
    pub fn of(id: TaskId, created: TaskCreated, created_at: Timestamp) -> Self {
        Self {
            id,
            description: created.description,
            assigned_agent: created.assigned_agent,
            parameters: created.parameters,
            class: created.class,
            retention_days: created.retention_days,
            parent_task_id: created.parent_task_id,
            parent_node: created.parent_node,
            map_item: created.map_item,
            budget: created.budget,
            forked_from: created.forked_from.map(ForkedFrom::from),
            retry_of: created.retry_of,
            doubted_run: created.doubted_run,
            raised: created.raised,
            working_directory: created.working_directory,
            has_private: created.has_private,
            request: created.request,
            scheduled: created.scheduled,
            created_at,
        }
    }
}

/// The point of another task from which a fork or retry continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkedFrom {
    /// The other task.
    pub task_id: TaskId,
    /// The checkpoint, counted from 0; none if a retry continues between checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u32>,
}

impl From<ForkPoint> for ForkedFrom {
    fn from(point: ForkPoint) -> Self {
        Self { task_id: point.task_id, checkpoint: point.checkpoint }
    }
}

/// Distinguishes the ids of retries from other derived ids.
const RETRY_LABEL: &[u8] = b"polity retry";

/// The id of the retry of a task. A task has one retry, so two processes cannot both retry it.
pub fn retry_id(task: TaskId) -> TaskId {
    TaskId::derived_from(&[RETRY_LABEL, task.as_bytes()].concat())
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    /// It is done.
    Completed {
        /// The result.
        result: String,
    },
    /// It failed.
    Failed {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
        /// The partial result.
        partial_result: Option<String>,
    },
    /// It was cancelled.
    Cancelled {
        /// The compensations that failed or did not run, if there are any.
        error: Option<String>,
    },
}

/// A running task: the live state machine and its usage.
///
/// It shares its frozen order and changes in place. A transition is a match and a store to a
/// field; a [`Task`] snapshot is taken only to store or to show it.
#[derive(Debug, Clone)]
pub struct TaskExecution {
    order: Arc<TaskOrder>,
    status: TaskStatus,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    usage: Usage,
    end: Option<TaskEnd>,
    shared_with: Option<TaskId>,
}

/// The error of charging usage to a task that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("task {task_id} is {status}: no cost can be added to a finished run")]
pub struct RunFinished {
    /// The task.
    pub task_id: TaskId,
    /// The final status.
    pub status: TaskStatus,
}

impl TaskExecution {
    /// A queued task.
    pub fn new(order: Arc<TaskOrder>) -> Self {
        Self {
            order,
            status: TaskStatus::Pending,
            started_at: None,
            completed_at: None,
            usage: Usage::default(),
            end: None,
            shared_with: None,
        }
    }

    /// The task that this one is a duplicate of, if any.
    pub fn shared_with(&self) -> Option<TaskId> {
        self.shared_with
    }

    /// Makes this task a duplicate of another, or of none.
    pub fn share(&mut self, with: Option<TaskId>) {
        self.shared_with = with;
    }

    /// The request.
    pub fn order(&self) -> &Arc<TaskOrder> {
        &self.order
    }

    /// The current status.
    #[inline]
    pub fn status(&self) -> TaskStatus {
        self.status
    }

    /// The usage so far.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The end, if it has ended.
    pub fn end(&self) -> Option<&TaskEnd> {
        self.end.as_ref()
    }

    /// Makes one transition that does not end the task.
    #[inline]
    pub fn advance(
        &mut self,
        on: TaskTransition,
        at: Timestamp,
    ) -> Result<TaskStatus, IllegalTransition<TaskStatus>> {
        let next = self.status.transition(on)?;
        if next == TaskStatus::Running && self.started_at.is_none() {
            self.started_at = Some(at);
        }
        if next.is_final() {
            self.completed_at = Some(at);
        }
        self.status = next;
        Ok(next)
    }

    /// Ends the task.
    pub fn finish(
        &mut self,
        end: TaskEnd,
        at: Timestamp,
    ) -> Result<TaskStatus, IllegalTransition<TaskStatus>> {
        let on = match end {
            TaskEnd::Completed { .. } => TaskTransition::Complete,
            TaskEnd::Failed { .. } => TaskTransition::Fail,
            TaskEnd::Cancelled { .. } => TaskTransition::Cancel,
        };
        let status = self.advance(on, at)?;
        self.end = Some(end);
        Ok(status)
    }

    /// Adds the usage of one call.
    #[inline]
    pub fn add_usage(&mut self, used: Usage) -> Result<(), RunFinished> {
        if self.status.is_final() {
            return Err(RunFinished { task_id: self.order.id, status: self.status });
        }
        self.usage += used;
        Ok(())
    }

    /// The task as it is now, to be stored or shown.
    pub fn snapshot(&self) -> Task {
        let order = &*self.order;
        let (result, error, error_code) = match &self.end {
            None => (None, None, None),
            Some(TaskEnd::Cancelled { error }) => (None, error.clone(), None),
            Some(TaskEnd::Completed { result }) => (Some(result.clone()), None, None),
            Some(TaskEnd::Failed { code, error, partial_result }) => {
                (partial_result.clone(), Some(error.clone()), Some(*code))
            }
        };
        Task {
            id: order.id,
            description: order.description.clone(),
            status: self.status,
            assigned_agent: order.assigned_agent.clone(),
            result,
            error,
            error_code,
            created_at: order.created_at,
            started_at: self.started_at,
            completed_at: self.completed_at,
            retention_days: order.retention_days,
            parent_task_id: order.parent_task_id,
            forked_from: order.forked_from,
            retry_of: order.retry_of,
            scheduled: order.scheduled.clone(),
            shared_with: self.shared_with,
            class: order.class.clone(),
            parameters: order.parameters.clone(),
            usage: self.usage.report(),
            total_usage: self.usage.report(),
            interrupted: false,
            released: false,
            undone: false,
            needs_trust: false,
        }
    }
}

/// A task at one moment, as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent marks of a snapshot")]
pub struct Task {
    /// The task's id.
    pub id: TaskId,
    /// The input.
    pub description: String,
    /// The current status.
    pub status: TaskStatus,
    /// The agent or workflow that does it.
    pub assigned_agent: Name,
    /// The result; for a failed task, the partial result.
    pub result: Option<String>,
    /// Why it failed, for people.
    pub error: Option<String>,
    /// Why it failed, for programs.
    pub error_code: Option<ErrorCode>,
    /// The time it was created.
    pub created_at: Timestamp,
    /// The time it started.
    pub started_at: Option<Timestamp>,
    /// The time it ended.
    pub completed_at: Option<Timestamp>,
    /// The task's own retention period.
    pub retention_days: Option<u32>,
    /// The task that this one is a part of.
    pub parent_task_id: Option<TaskId>,
    /// The point in another task's history from which it continues, if it is a fork or retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The failed or cancelled task that this one continues, if it is a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// The schedule and due time that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Box<ScheduledFor>>,
    /// The task that this one is a duplicate of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_with: Option<TaskId>,
    /// A class of the retention policy.
    pub class: Option<String>,
    /// Named values that came with the input.
    pub parameters: Map<String, Value>,
    /// The usage so far.
    pub usage: UsageReport,
    /// The usage so far, sub-agents included.
    pub total_usage: UsageReport,
    /// True if the owner process died and the task waits to be resumed.
    pub interrupted: bool,
    /// True if it waits to be resumed although no process died: a review was answered, or its owner
    /// released it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// True if finished nodes of its workflow were undone, so that it cannot be retried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// True if it was imported, has not ended, and waits for a person's trust.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_trust: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Cost;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn task() -> TaskExecution {
        TaskExecution::new(Arc::new(TaskOrder {
            id: TaskId::from_random_bytes([1; 16]),
            description: "Ada".into(),
            assigned_agent: "greeter".parse().unwrap(),
            parameters: Map::new(),
            class: None,
            retention_days: None,
            parent_task_id: None,
            parent_node: None,
            map_item: None,
            budget: None,
            forked_from: None,
            retry_of: None,
            doubted_run: None,
            scheduled: None,
            raised: RaisedLimits::default(),
            working_directory: None,
            has_private: false,
            request: None,
            created_at: at(0),
        }))
    }

    #[test]
    fn a_run_keeps_its_times_usage_and_result() {
        let mut run = task();
        run.advance(TaskTransition::Start, at(1)).unwrap();
        let used = Usage::reported(Some(3), Some(2), Some(Cost::of_tokens(5, 1.0)));
        run.add_usage(used).unwrap();
        run.add_usage(used).unwrap();
        run.finish(TaskEnd::Completed { result: "Hello.".into() }, at(2)).unwrap();

        let task = run.snapshot();
        assert_eq!(task.status, TaskStatus::Completed);
        assert_eq!(task.result.as_deref(), Some("Hello."));
        assert_eq!((task.started_at, task.completed_at), (Some(at(1)), Some(at(2))));
        assert_eq!((task.usage.input_tokens, task.usage.output_tokens), (Some(6), Some(4)));
    }

    #[test]
    fn waiting_for_a_person_keeps_the_first_start() {
        let mut run = task();
        run.advance(TaskTransition::Start, at(1)).unwrap();
        run.advance(TaskTransition::Ask, at(2)).unwrap();
        run.advance(TaskTransition::Resume, at(3)).unwrap();
        assert_eq!(run.snapshot().started_at, Some(at(1)));
    }

    #[test]
    fn nothing_is_added_to_a_finished_run() {
        let mut run = task();
        run.finish(TaskEnd::Cancelled { error: None }, at(1)).unwrap();
        let refused = run.add_usage(Usage { input_tokens: 1, ..Usage::default() }).unwrap_err();
        insta::assert_snapshot!(refused, @"task 01010101-0101-4101-8101-010101010101 is cancelled: no cost can be added to a finished run");
        assert_eq!(run.usage(), &Usage::default());
    }

    #[test]
    fn a_refused_end_leaves_the_run_as_it_was() {
        let mut run = task();
        run.finish(TaskEnd::Completed { result: "early".into() }, at(1)).unwrap_err();
        assert_eq!((run.status(), run.end()), (TaskStatus::Pending, None));
        assert_eq!(run.snapshot().completed_at, None);
    }
}

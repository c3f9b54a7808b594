//! Tasks: lookup by id prefix, views, traces, checkpoints and parts.

use polity_engine::checkpoints::{CheckpointSummary, checkpoints, summaries};
use polity_engine::clock::{Clock, SystemClock};
use polity_engine::comparison::ComparedRun;
use polity_engine::runtime::{
    OrphanedTasks, TaskHistory, active_root, can_continue, find_orphans, is_owner_alive, is_queued,
    is_undone, needs_trust,
};
use polity_engine::state::TaskState;
use polity_model::checkpoint::Checkpoint;
use polity_model::event::{RecordedEvent, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::session::session_of_task;
use polity_model::task::Task;
use polity_model::trace::{SubAgentSessionInfo, TraceLog};
use polity_store::{CheckpointRow, SpendingRow, TaskFilter, TaskRow};

use super::HomeQueries;
use crate::error::{HostError, LookupError, RecordKind};

impl HomeQueries {
    /// Finds a task by its id, by the beginning of one, or the newest by `last`.
    pub async fn find_task(&self, id: &str) -> Result<TaskRow, HostError> {
        let kind = RecordKind::Task;
        if id == "last" {
            let newest = TaskFilter { limit: Some(1), roots_only: true, ..TaskFilter::default() };
            let row = self.store.task_rows(&newest).await?.pop();
            return row.ok_or_else(|| LookupError::NoneYet(kind).into());
        }
        let id = id.to_lowercase();
        if id.is_empty() {
            return Err(LookupError::EmptyId(kind).into());
        }
        match self.store.task_ids_by_prefix(&id, 2).await?.as_slice() {
            [] => Err(LookupError::NotFound { kind, id }.into()),
            [found] => self
                .store
                .task_row(*found)
                .await?
                .ok_or_else(|| LookupError::NotFound { kind, id: found.to_string() }.into()),
            _ => Err(LookupError::Ambiguous { kind, prefix: id }.into()),
        }
    }

    /// The row of a task that exists.
    pub async fn task_row(&self, id: TaskId) -> Result<TaskRow, HostError> {
        self.store.task_row(id).await?.ok_or(HostError::TaskRemoved(id))
    }

    /// The rows of the tasks that match a filter, newest first.
    pub async fn task_rows(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, HostError> {
        Ok(self.store.task_rows(filter).await?)
    }

    /// A task with its texts, marked as interrupted if its owner is dead, and as undone if it cannot be
    /// retried because its compensations have run.
    pub async fn load_task(&self, id: TaskId) -> Result<Task, HostError> {
        let row = self.task_row(id).await?;
        let mut task = self.task_of(&row).await?;
        let could_be_retried = match task.status {
            TaskStatus::Failed | TaskStatus::Cancelled => task.parent_task_id.is_none(),
            TaskStatus::Pending
            | TaskStatus::Running
            | TaskStatus::AwaitingHuman
            | TaskStatus::Completed => false,
        };
        // Only a hint depends on it: a task with a damaged history is shown all the same.
        task.undone = could_be_retried && is_undone(&*self.store, id).await.unwrap_or(false);
        Ok(task)
    }

    /// A task of which the row has been read.
    pub async fn task_of(&self, row: &TaskRow) -> Result<Task, HostError> {
        // The owner may have finished and exited after the row was read. A dead owner writes nothing,
        // so the row that is read now stays true.
        let newer =
            if self.is_interrupted(row).await? { self.store.task_row(row.id).await? } else { None };
        let row = newer.as_ref().unwrap_or(row);
        let mut task = self.store.task(row).await?;
        task.status = self.shown_status(row).await?;
        task.interrupted = self.is_interrupted(row).await?;
        task.released = task.interrupted && row.owner.is_none();
        task.needs_trust = !row.status.is_final() && needs_trust(&*self.store, row.id).await?;
        Ok(task)
    }

    /// True if a task could be at work and has no live owner.
    pub async fn is_interrupted(&self, row: &TaskRow) -> Result<bool, HostError> {
        Ok(match row.status {
            TaskStatus::Pending | TaskStatus::Running => !self.has_live_owner(row).await,
            // Nothing is left to answer, and nobody continues it.
            TaskStatus::AwaitingHuman => {
                let can_continue = can_continue(&*self.store, row, SystemClock.now()).await?;
                can_continue && !self.has_live_owner(row).await
            }
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => false,
        })
    }

    /// The status of a task for people and programs: a task that waits in line is pending, although
    /// it may have run before.
    async fn shown_status(&self, row: &TaskRow) -> Result<TaskStatus, HostError> {
        let is_queued = is_queued(&*self.store, row).await? && self.has_live_owner(row).await;
        Ok(if is_queued { TaskStatus::Pending } else { row.status })
    }

    /// The rows of the tasks that match a filter, by the status that they show, newest first.
    pub async fn rows_by_shown_status(
        &self,
        mut filter: TaskFilter,
    ) -> Result<Vec<TaskRow>, HostError> {
        let wanted = filter.statuses.clone();
        let [pending, running] =
            [TaskStatus::Pending, TaskStatus::Running].map(|status| wanted.contains(&status));
        if pending == running {
            return self.task_rows(&filter).await;
        }
        filter.statuses.extend([TaskStatus::Pending, TaskStatus::Running]);
        let limit = filter.limit.take();
        let mut rows = Vec::new();
        for row in self.task_rows(&filter).await? {
            if wanted.contains(&self.shown_status(&row).await?) {
                rows.push(row);
            }
        }
        rows.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        Ok(rows)
    }

    /// True if a live process owns a task.
    pub async fn has_live_owner(&self, row: &TaskRow) -> bool {
        is_owner_alive(&*self.leases, row.owner).await
    }

    /// The tasks that no live process owns and that can be resumed, or need trust first.
    pub async fn orphans(&self) -> Result<OrphanedTasks, HostError> {
        Ok(find_orphans(&*self.store, &*self.leases, SystemClock.now()).await?)
    }

    /// The task at the top of the tree that a task is a part of.
    pub async fn top_task(&self, row: TaskRow) -> Result<TaskRow, HostError> {
        Ok(active_root(&*self.store, row).await?)
    }

    /// The events of a task after a sequence number.
    pub async fn events(
        &self,
        id: TaskId,
        after: StreamSequence,
    ) -> Result<Vec<RecordedEvent>, HostError> {
        Ok(self.store.events(&StreamId::Task(id), after).await?)
    }

    /// The parts of a task, oldest first: the tasks of its sub-agents and nodes.
    pub async fn parts(&self, parent: TaskId) -> Result<Vec<TaskRow>, HostError> {
        let filter = TaskFilter { parent: Some(parent), ..TaskFilter::default() };
        let mut rows = self.store.task_rows(&filter).await?;
        rows.reverse();
        Ok(rows)
    }

    /// The number of tasks in the tree below a task.
    pub async fn count_parts(&self, id: TaskId) -> Result<u64, HostError> {
        Ok(self.store.task_tree(id).await?.task_count.saturating_sub(1))
    }

    /// The steps of a task, and the sessions of its sub-agents.
    pub async fn trace(&self, row: &TaskRow) -> Result<TraceLog, HostError> {
        let events = self.events(row.id, StreamSequence::default()).await?;
        let mut trace =
            TraceLog::from_events(row.id, &events).ok_or(HostError::EmptyJournal(row.id))?;
        let parts = self.parts(row.id).await?;
        trace.sub_agent_sessions =
            parts.iter().map(|part| (session_of_task(part.id), session_info(part))).collect();
        Ok(trace)
    }

    /// The rows of a task's checkpoints.
    pub async fn checkpoint_rows(&self, id: TaskId) -> Result<Vec<CheckpointRow>, HostError> {
        Ok(self.store.checkpoints(id).await?)
    }

    /// The checkpoints of a task without their States.
    pub async fn checkpoint_summaries(
        &self,
        id: TaskId,
    ) -> Result<Vec<CheckpointSummary>, HostError> {
        summaries(TaskHistory::load(&*self.store, id).await?)
            .map_err(|broken| HostError::BrokenTask { task: id, reason: broken.to_string() })
    }

    /// The checkpoints of a task with these numbers, each with its State.
    pub async fn checkpoints(
        &self,
        id: TaskId,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<Vec<Checkpoint>, HostError> {
        checkpoints(TaskHistory::load(&*self.store, id).await?, is_wanted)
            .map_err(|broken| HostError::BrokenTask { task: id, reason: broken.to_string() })
    }

    /// The state of a task after its newest event.
    pub async fn task_state(&self, id: TaskId) -> Result<TaskState, HostError> {
        let TaskHistory { state, rest, .. } = TaskHistory::load(&*self.store, id).await?;
        state
            .following(rest)
            .map_err(|broken| HostError::BrokenTask { task: id, reason: broken.to_string() })
    }

    /// The run of a task, for a comparison with another.
    pub async fn comparison_run(&self, id: TaskId) -> Result<ComparedRun, HostError> {
        Ok(ComparedRun::of(&*self.store, id).await?)
    }

    /// The model usage of every agent on every day.
    pub async fn spending(&self) -> Result<Vec<SpendingRow>, HostError> {
        Ok(self.store.spending().await?)
    }
}

/// The session of a sub-agent, as its parent's trace lists it.
fn session_info(row: &TaskRow) -> SubAgentSessionInfo {
    SubAgentSessionInfo {
        session_id: session_of_task(row.id),
        agent: row.assigned_agent.clone(),
        message_count: row.message_count.into(),
        status: row.status.into(),
    }
}

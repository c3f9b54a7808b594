//! Tasks that go on from a checkpoint of another.

use polity_model::event::{Event, ForkPoint, RecordedEvent};
use polity_model::ids::TaskId;
use polity_model::state::StateUpdates;
use polity_store::Store;

use super::{Beginning, EngineError, Runtime, TaskHandle};
use crate::commands::{CreateTask, TaskOrigin};
use crate::decide::CommandRejection;
use crate::driver::RunOverrides;
use crate::pinned::Assignee;
use crate::state::{CannotFork, TaskState};

/// A task at one of its checkpoints.
struct AtCheckpoint {
    assignee: Assignee,
    state: TaskState,
    point: ForkPoint,
}

/// Why a task cannot go on from a checkpoint of another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// There is no such checkpoint.
    #[error("task {task} has no checkpoint {checkpoint}; it has {count}, from 0 on")]
    NoCheckpoint {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: u32,
        /// How many there are.
        count: u32,
    },
    /// What is under way there belongs to the other task.
    #[error("task {task} cannot be forked at checkpoint {checkpoint}: {reason}")]
    AtWork {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: u32,
        /// What is under way.
        reason: CannotFork,
    },
}

impl Runtime {
    /// Creates a task that goes on from a checkpoint of another, with a changed State. It shares the
    /// other's history up to there.
    pub async fn fork(
        &self,
        task: TaskId,
        checkpoint: u32,
        updates: StateUpdates,
    ) -> Result<TaskHandle, EngineError> {
        let store = std::sync::Arc::clone(&self.shared.parts.store);
        let read = move || AtCheckpoint::of(&*store, task, checkpoint);
        let read = tokio::task::spawn_blocking(read).await;
        let AtCheckpoint { assignee, state, point } =
            read.unwrap_or(Err(EngineError::Left(task)))?;
        let metadata = state.state().metadata;
        updates.check_metadata(&metadata).map_err(CommandRejection::from)?;
        let order = state.task().order();
        let create = CreateTask {
            description: order.description.clone(),
            parameters: order.parameters.clone(),
            class: order.class.clone(),
            retention_days: order.retention_days,
            budget: order.budget,
            overrides: RunOverrides {
                working_directory: order.working_directory.clone(),
                ..RunOverrides::default()
            },
            assignee,
            origin: TaskOrigin::Fork { from: point, updates },
        };
        self.create(create).await
    }
}

impl AtCheckpoint {
    fn of(store: &dyn Store, task: TaskId, checkpoint: u32) -> Result<Self, EngineError> {
        let Beginning { assignee, state, rest } = Beginning::of(store, task)?;
        let taken = |recorded: &RecordedEvent| {
            let Event::CheckpointTaken { sequence, .. } = &recorded.event else { return None };
            Some((recorded.sequence, *sequence))
        };
        let sequences: Vec<_> = rest.iter().filter_map(taken).collect();
        let found = sequences.iter().find(|(_, number)| *number == checkpoint);
        let Some((sequence, _)) = found.copied() else {
            let count = u32::try_from(sequences.len()).unwrap_or(u32::MAX);
            return Err(ForkError::NoCheckpoint { task, checkpoint, count }.into());
        };
        let until = rest.into_iter().filter(|recorded| recorded.sequence <= sequence);
        let state = state.following(until).map_err(|broken| EngineError::broken(task, &broken))?;
        let at_work = |reason| ForkError::AtWork { task, checkpoint, reason };
        state.check_fork().map_err(at_work)?;
        Ok(Self { assignee, state, point: ForkPoint { task_id: task, sequence, checkpoint } })
    }
}

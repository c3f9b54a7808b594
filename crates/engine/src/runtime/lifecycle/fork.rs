//! Forks: tasks that continue from a checkpoint of another.

use polity_model::event::{Event, ForkPoint, RecordedEvent};
use polity_model::ids::TaskId;
use polity_model::state::StateUpdates;
use polity_store::Store;

use crate::commands::{CreateTask, TaskOrigin};
use crate::decide::CommandRejection;
use crate::driver::RunOverrides;
use crate::runtime::{EngineError, TaskHistory};
use crate::state::CannotFork;

/// The reason why a task cannot be forked at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// The checkpoint does not exist.
    #[error("task {task} has no checkpoint {checkpoint}; it has {count}, from 0 on")]
    NoCheckpoint {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: u32,
        /// The number of checkpoints.
        count: u32,
    },
    /// Work is in progress there, and belongs to the origin.
    #[error("task {task} cannot be forked at checkpoint {checkpoint}: {reason}")]
    AtWork {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: u32,
        /// The work in progress.
        reason: CannotFork,
    },
}

/// The command that creates a fork of a task at a checkpoint. The fork shares the history up to it.
pub(in crate::runtime) async fn prepare_fork(
    store: &dyn Store,
    task: TaskId,
    checkpoint: u32,
    updates: StateUpdates,
) -> Result<CreateTask, EngineError> {
    let TaskHistory { assignee, state, rest } = TaskHistory::load(store, task).await?;
    if rest.iter().rev().find_map(|recorded| recorded.event.needs_trust()) == Some(true) {
        return Err(CommandRejection::NeedsTrust { task }.into());
    }
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
    updates.check_metadata(&state.state().metadata).map_err(CommandRejection::from)?;
    let order = state.task().order();
    let from = ForkPoint { task_id: task, sequence, checkpoint };
    Ok(CreateTask {
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
        origin: TaskOrigin::Fork { from, updates },
    })
}

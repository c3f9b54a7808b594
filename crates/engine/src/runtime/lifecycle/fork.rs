//! Forks: tasks that continue from a checkpoint of another.

use polity_model::digest::Digest;
use polity_model::event::{ForkPoint, RecordedEvent, StreamSequence};
use polity_model::ids::TaskId;
use polity_model::state::StateUpdates;
use polity_store::Store;

use crate::commands::{CreateTask, TaskOrigin};
use crate::decide::CommandRejection;
use crate::driver::RunOverrides;
use crate::pinned::Assignee;
use crate::runtime::{EngineError, TaskHistory};
use crate::state::{CannotFork, CorruptJournal, TaskState};

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
    /// The definitions do not fit the checkpoint.
    #[error(
        "task {task} cannot go on from checkpoint {checkpoint} with the definitions as they are \
         now: {reason}"
    )]
    Unfit {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: u32,
        /// The part that does not fit.
        reason: CannotFork,
    },
}

/// A request to fork a task.
#[derive(Debug, Clone)]
pub struct ForkRequest {
    /// The task.
    pub task: TaskId,
    /// The checkpoint, counted from 0.
    pub checkpoint: u32,
    /// Updates of the State.
    pub updates: StateUpdates,
    /// Definitions in place of the pinned ones.
    pub definitions: Option<Assignee>,
    /// The id of the fork and the digest of the request, if it may be repeated.
    pub request: Option<(TaskId, Digest)>,
}

impl ForkRequest {
    /// A fork with the pinned definitions.
    pub fn new(task: TaskId, checkpoint: u32, updates: StateUpdates) -> Self {
        Self { task, checkpoint, updates, definitions: None, request: None }
    }
}

/// A task to be created that continues from a point in another task's history.
pub(in crate::runtime) struct ContinuedTask {
    /// The new task.
    pub(in crate::runtime) create: CreateTask,
    /// The state of the other task at that point.
    pub(in crate::runtime) at_fork: TaskState,
}

/// Prepares a fork of a task at a checkpoint. The fork shares the history up to it.
pub(in crate::runtime) async fn prepare_fork(
    store: &dyn Store,
    request: ForkRequest,
) -> Result<ContinuedTask, EngineError> {
    let ForkRequest { task, checkpoint, updates, definitions, request } = request;
    let TaskHistory { assignee, state, rest } = TaskHistory::load(store, task).await?;
    expect_trusted(task, &rest)?;
    let numbers = rest.iter().filter_map(|recorded| recorded.event.checkpoint());
    let count = u32::try_from(numbers.count()).unwrap_or(u32::MAX);
    let found = rest.iter().find(|recorded| recorded.event.checkpoint() == Some(checkpoint));
    let Some(sequence) = found.map(|recorded| recorded.sequence) else {
        return Err(ForkError::NoCheckpoint { task, checkpoint, count }.into());
    };
    let (state, _) = point_at(task, state, rest, sequence)?;
    let at_work = |reason| ForkError::AtWork { task, checkpoint, reason };
    state.check_fork().map_err(at_work)?;
    let assignee = match definitions {
        Some(current) => {
            let unfit = |reason| ForkError::Unfit { task, checkpoint, reason };
            state.check_definitions(&current).map_err(unfit)?;
            current
        }
        None => assignee,
    };
    state.check_updates(&updates).map_err(|invalid| match invalid {
        CorruptJournal::Update(invalid) => CommandRejection::from(invalid).into(),
        broken => EngineError::broken(task, &broken),
    })?;
    let order = state.task().order();
    let from = ForkPoint { task_id: task, sequence, checkpoint: Some(checkpoint) };
    let create = CreateTask {
        description: order.description.clone(),
        parameters: order.parameters.clone(),
        class: order.class.clone(),
        retention_days: order.retention_days,
        budget: order.budget,
        raised: order.raised,
        overrides: RunOverrides {
            working_directory: order.working_directory.clone(),
            ..RunOverrides::default()
        },
        assignee,
        origin: TaskOrigin::Fork { from, updates, request },
    };
    Ok(ContinuedTask { create, at_fork: state })
}

/// Fails if a task was imported and no person has trusted it since.
pub(super) fn expect_trusted(task: TaskId, rest: &[RecordedEvent]) -> Result<(), CommandRejection> {
    match rest.iter().rev().find_map(|recorded| recorded.event.needs_trust()) {
        Some(true) => Err(CommandRejection::NeedsTrust { task }),
        Some(false) | None => Ok(()),
    }
}

/// The state of a task after an event, and the number of the checkpoint that the event takes.
pub(super) fn point_at(
    task: TaskId,
    first: TaskState,
    rest: Vec<RecordedEvent>,
    sequence: StreamSequence,
) -> Result<(TaskState, Option<u32>), EngineError> {
    let mut checkpoint = None;
    let shared = rest.into_iter().take_while(|recorded| recorded.sequence <= sequence);
    let shared = shared.inspect(|recorded| checkpoint = recorded.event.checkpoint());
    let state = first.following(shared).map_err(|broken| EngineError::broken(task, &broken))?;
    Ok((state, checkpoint))
}

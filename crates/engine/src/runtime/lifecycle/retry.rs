//! Retries: tasks that continue a failed or cancelled one from the point before its failure.

use polity_model::digest::Digest;
use polity_model::event::{ForkPoint, RaisedLimits};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::task::retry_id;
use polity_model::usage::Usage;
use polity_store::Store;

use super::fork::{ContinuedTask, expect_trusted, point_at};
use crate::budget::{BudgetAccount, BudgetStatus};
use crate::commands::{CreateTask, ParentStep, TaskOrigin};
use crate::decide::doubted_run::find_doubted_run;
use crate::decide::retry_point::{is_undone, retry_point};
use crate::driver::RunOverrides;
use crate::pinned::Assignee;
use crate::runtime::sub_agents::budget_of;
use crate::runtime::{EngineError, TaskHistory};
use crate::state::CannotFork;

/// The longest chain of retries that is followed for what they have spent.
const CHAIN_MAX: usize = 10_000;

/// A request to retry a task.
#[derive(Debug, Clone)]
pub struct RetryRequest {
    /// The failed or cancelled task.
    pub task: TaskId,
    /// Limits in place of those of the task and its definitions.
    pub raised: RaisedLimits,
    /// Definitions in place of the pinned ones.
    pub definitions: Option<Assignee>,
    /// The digest of the request, if it may be repeated.
    pub request: Option<Digest>,
}

/// The reason why a task cannot be retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    /// The task has not ended.
    #[error("task {task} is {status}, and only a failed or cancelled task can be retried")]
    NotEnded {
        /// The task.
        task: TaskId,
        /// Its status.
        status: TaskStatus,
    },
    /// The task is completed.
    #[error("task {task} is completed, and there is nothing to retry")]
    Completed {
        /// The task.
        task: TaskId,
    },
    /// The task was retried already, maybe by another process at the same time.
    #[error("task {task} was retried as {retry}, which is {status}")]
    Retried {
        /// The task.
        task: TaskId,
        /// Its retry.
        retry: TaskId,
        /// The status of the retry.
        status: TaskStatus,
    },
    /// The task is a part of another.
    #[error("task {task} is a part of task {whole}, and is retried with it")]
    Part {
        /// The task.
        task: TaskId,
        /// The task that it belongs to.
        whole: TaskId,
    },
    /// The task and those before it have spent what the retry may spend.
    #[error("task {task} cannot go on: {reason}")]
    BudgetUsedUp {
        /// The task.
        task: TaskId,
        /// The limit that is reached.
        reason: String,
    },
    /// The secrets of the input were destroyed when the task ended.
    #[error(
        "task {task} had secrets in its input or environment, which were destroyed when it ended"
    )]
    SecretsGone {
        /// The task.
        task: TaskId,
    },
    /// Finished nodes of the workflow were undone.
    #[error(
        "finished nodes of task {task} were undone when it ended, so it cannot go on from there"
    )]
    Undone {
        /// The task.
        task: TaskId,
    },
    /// The definitions do not fit the task.
    #[error("task {task} cannot go on with the definitions as they are now: {reason}")]
    Unfit {
        /// The task.
        task: TaskId,
        /// The part that does not fit.
        reason: CannotFork,
    },
}

/// The identity of a retry: derived for a task from outside, given by its call for a part.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct RetryIdentity {
    /// The id of the new task.
    pub(in crate::runtime) id: TaskId,
    /// Its parent, if it is a part.
    pub(in crate::runtime) parent: Option<TaskId>,
    /// The step of its parent's workflow that it performs.
    pub(in crate::runtime) step: ParentStep,
}

/// Prepares the retry of a task that a person asks for.
pub(in crate::runtime) async fn prepare_retry(
    store: &dyn Store,
    request: RetryRequest,
) -> Result<ContinuedTask, EngineError> {
    let task = request.task;
    let row = store.task_row(task).await?.ok_or(EngineError::NotFound(task))?;
    match row.status {
        TaskStatus::Failed | TaskStatus::Cancelled => {}
        TaskStatus::Completed => return Err(RetryError::Completed { task }.into()),
        status @ (TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman) => {
            return Err(RetryError::NotEnded { task, status }.into());
        }
    }
    if let Some(parent) = row.parent_task_id {
        let mut whole = parent;
        while let Some(above) = store.task_row(whole).await?.and_then(|row| row.parent_task_id) {
            whole = above;
        }
        return Err(RetryError::Part { task, whole }.into());
    }
    check_not_retried(store, task).await?;
    let identity = RetryIdentity { id: retry_id(task), parent: None, step: ParentStep::default() };
    let RetryRequest { raised, definitions, request, .. } = request;
    let mut prepared = continue_ended(store, task, definitions, raised, identity).await?;
    prepared.create.origin = prepared.create.origin.requested_by(request);
    check_budget(store, task, &prepared.create).await?;
    Ok(prepared)
}

/// Fails if a task was retried already.
pub(in crate::runtime) async fn check_not_retried(
    store: &dyn Store,
    task: TaskId,
) -> Result<(), EngineError> {
    match store.task_row(retry_id(task)).await? {
        Some(row) => Err(RetryError::Retried { task, retry: row.id, status: row.status }.into()),
        None => Ok(()),
    }
}

/// Prepares the task that continues a failed or cancelled one.
pub(in crate::runtime) async fn continue_ended(
    store: &dyn Store,
    task: TaskId,
    definitions: Option<Assignee>,
    raised: RaisedLimits,
    identity: RetryIdentity,
) -> Result<ContinuedTask, EngineError> {
    let TaskHistory { assignee, state, rest } = TaskHistory::load(store, task).await?;
    expect_trusted(task, &rest)?;
    let order = std::sync::Arc::clone(state.task().order());
    if order.has_private {
        return Err(RetryError::SecretsGone { task }.into());
    }
    if is_undone(&assignee, &rest) {
        return Err(RetryError::Undone { task }.into());
    }
    let sequence = retry_point(&assignee, &rest);
    let doubted_run = find_doubted_run(&assignee, &state, &rest);
    let (state, checkpoint) = point_at(task, state, rest, sequence)?;
    let assignee = match definitions {
        Some(current) => {
            let unfit = |reason| RetryError::Unfit { task, reason };
            state.check_definitions(&current).map_err(unfit)?;
            current
        }
        None => assignee,
    };
    let from = ForkPoint { task_id: task, sequence, checkpoint };
    let RetryIdentity { id, parent, step } = identity;
    let create = CreateTask {
        description: order.description.clone(),
        parameters: order.parameters.clone(),
        class: order.class.clone(),
        retention_days: order.retention_days,
        budget: order.budget,
        raised: raised.or(order.raised),
        overrides: RunOverrides {
            working_directory: order.working_directory.clone(),
            ..RunOverrides::default()
        },
        assignee,
        origin: TaskOrigin::Retry { id, parent, from, doubted_run, step, request: None },
    };
    Ok(ContinuedTask { create, at_fork: state })
}

/// Fails if the retry could not make a single model call.
async fn check_budget(
    store: &dyn Store,
    task: TaskId,
    create: &CreateTask,
) -> Result<(), EngineError> {
    let Some(budget) = budget_of(&create.assignee, create.budget, create.raised) else {
        return Ok(());
    };
    let spent = spent_by_chain(store, Some(task)).await?;
    let agent = create.assignee.name().clone();
    match BudgetStatus::of(&[BudgetAccount { agent, budget, spent }]).reached() {
        Some(reason) => Err(RetryError::BudgetUsedUp { task, reason: reason.to_owned() }.into()),
        None => Ok(()),
    }
}

/// The usage of a task and of those that it continues as a retry, with all their parts.
pub(in crate::runtime) async fn spent_by_chain(
    store: &dyn Store,
    newest: Option<TaskId>,
) -> Result<Usage, EngineError> {
    let (mut spent, mut next) = (Usage::default(), newest);
    for _ in 0..CHAIN_MAX {
        // An earlier task may have been removed since.
        let Some(row) = (match next {
            Some(task) => store.task_row(task).await?,
            None => None,
        }) else {
            break;
        };
        spent += store.task_tree(row.id).await?.usage;
        next = store.task(&row).await?.retry_of;
    }
    Ok(spent)
}

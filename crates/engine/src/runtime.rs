//! The runtime: commits decisions, performs effects, and turns outcomes into commands.
//!
//! ```text
//! create, adopt ──> queue ──> worker: decide ─> commit ─> effect ─> outcome ─┐
//!                    ^          ^      ^────────────────────────────────────┘
//!                    │          └─ signals: cancel, "another process changed this task"
//!                    └─ a worker that ends frees a slot for the oldest queued task
//! ```
//! Each running task has one worker, which owns the task's state. Workers share no lock except the
//! scheduler's. A queued task is a row in the store.

mod cleanup;
mod control;
mod decision_loop;
mod history;
mod journal;
mod journal_watcher;
mod lifecycle;
mod liveness;
mod orphans;
mod remote_cancel;
mod scheduler;
mod schedules;
mod slot_lines;
mod sub_agents;
mod toggles;
mod worker;

use std::sync::Arc;

use polity_definition::Limits;
use polity_model::event::RecordedEvent;
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_store::{CommitError, DedicatedThread, Lease, Leases, SlotPools, Store, StoreError};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::task::JoinSet;

pub use cleanup::clean_up_runs;
pub use control::{CancelOutcome, ControlDeps, cancel};
pub use history::{LoadedTask, TaskHistory, is_undone, load_task, pins_of};
pub use lifecycle::{ForkError, ForkRequest, RetryError, RetryRequest};
pub use liveness::is_owner_alive;
pub use orphans::{
    OrphanedTasks, active_root, can_continue, find_orphans, is_queued, needs_trust, task_to_adopt,
};
pub use schedules::{ScheduleRecord, ScheduleSubject, decide_schedule, remove_schedule};
pub use toggles::toggle_agent;

use crate::budget::{BudgetLedger, BudgetStatus};
use crate::clock::Clock;
use crate::commands::{AnswerReview, CreateTask, ToggleAgent};
use crate::decide::preconditions::expect_trust;
use crate::decide::{CommandRejection, DecisionContext, SlotContext};
use crate::driver::{
    ModelDriver, NotReady, ProgramDriver, RemoteDriver, ToolDriver, Toolbox, TraceContexts,
};
use crate::entropy::{Entropy, EntropySource};
use crate::pinned::PinnedError;
use crate::schedule::ScheduleRejection;
use crate::state::{CorruptJournal, TaskState};
use journal::TaskJournal;
use lifecycle::ContinuedTask;
use scheduler::Scheduler;
use slot_lines::SlotLines;
use toggles::ToggleCache;

/// The dependencies of a runtime.
pub struct RuntimeDeps {
    /// The journal.
    pub store: Arc<dyn Store>,
    /// The driver of language models.
    pub models: Arc<dyn ModelDriver>,
    /// The driver of tools.
    pub tools: Arc<dyn ToolDriver>,
    /// The driver of CLI agents.
    pub programs: Arc<dyn ProgramDriver>,
    /// The driver of remote agents.
    pub remotes: Arc<dyn RemoteDriver>,
    /// The concurrency slots of CLI agents.
    pub slots: Arc<dyn SlotPools>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub entropy: Arc<dyn EntropySource>,
    /// The leases of all processes.
    pub leases: Arc<dyn Leases>,
    /// The lease of this process, under which it owns tasks.
    pub lease: Arc<dyn Lease>,
    /// The thread that only this runtime uses, if there is one. A single worker then commits on it
    /// without thread changes.
    pub dedicated_thread: Option<DedicatedThread>,
    /// Configured limits.
    pub limits: Limits,
    /// The trace contexts of calls, if traces are exported.
    pub trace_contexts: Option<Arc<dyn TraceContexts>>,
}

impl RuntimeDeps {
    fn control(&self) -> ControlDeps<'_> {
        ControlDeps {
            store: &self.store,
            leases: &*self.leases,
            clock: &*self.clock,
            remotes: &*self.remotes,
        }
    }

    fn instance(&self) -> InstanceId {
        self.lease.instance()
    }
}

/// Runs tasks. Dropping it abandons the running tasks, which can be resumed.
pub struct Runtime {
    inner: Arc<RuntimeInner>,
    /// The watcher of the journal, the retries of releases, the renewal of the lease.
    _background: JoinSet<()>,
}

/// The state that all workers share.
struct RuntimeInner {
    deps: RuntimeDeps,
    scheduler: Scheduler,
    journal: TaskJournal,
    ledger: Arc<BudgetLedger>,
    /// Notified when a CLI agent frees its slot.
    slot_freed: Notify,
    /// The tasks that wait for a slot of a CLI agent.
    slot_lines: Arc<SlotLines>,
    toggles: ToggleCache,
}

impl RuntimeInner {
    fn context(&self, toolbox: &Arc<Toolbox>, budget: BudgetStatus) -> DecisionContext {
        DecisionContext {
            now: self.deps.clock.now(),
            entropy: Entropy::from_seed(self.deps.entropy.seed()),
            toolbox: Arc::clone(toolbox),
            limits: self.deps.limits,
            budget,
            slot: SlotContext::default(),
            agent_toggles: self.toggles.current(),
        }
    }

    /// A context for decisions that need neither tools nor budget.
    fn plain_context(&self) -> DecisionContext {
        self.context(&Arc::default(), BudgetStatus::default())
    }
}

/// A message to subscribers.
#[derive(Debug, Clone)]
pub enum LiveEvent {
    /// A durable event.
    Event(Arc<RecordedEvent>),
    /// Partial output of an agent. It is not a fact until its message is an event.
    Text {
        /// The task.
        task: TaskId,
        /// The output since the last piece.
        piece: Arc<str>,
    },
}

/// A task that this runtime runs or has queued.
#[derive(Debug)]
pub struct TaskHandle {
    /// The task.
    pub id: TaskId,
    done: oneshot::Receiver<TaskOutcome>,
}

type TaskOutcome = Result<TaskStatus, EngineError>;

/// The reason why the engine could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// A rule of the task forbids it.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// A driver is not ready for the agent.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The task does not exist.
    #[error("there is no task {0}")]
    NotFound(TaskId),
    /// Another process has adopted the task.
    #[error("task {0} was taken over by another process")]
    TakenOver(TaskId),
    /// Other processes kept changing the task.
    #[error("task {0} was changed by others each time this process tried to")]
    Contended(TaskId),
    /// The runtime ended before the task.
    #[error("task {0} was left before it ended")]
    Left(TaskId),
    /// A worker panicked.
    #[error("the work on task {task} ended in an error of this program: {panic}")]
    Panicked {
        /// The task.
        task: TaskId,
        /// The message of the panic.
        panic: String,
    },
    /// The task cannot be forked there.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The task cannot be retried.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// A rule of schedules forbids it.
    #[error(transparent)]
    Schedule(#[from] ScheduleRejection),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pinned definitions of the task are incomplete.
    #[error(transparent)]
    Pinned(#[from] PinnedError),
    /// The store refused the commit.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The journal contradicts itself.
    #[error("the journal of task {task} makes no sense: {reason}")]
    Broken {
        /// The task.
        task: TaskId,
        /// The contradiction.
        reason: String,
    },
}

impl EngineError {
    pub(crate) fn broken(task: TaskId, reason: &CorruptJournal) -> Self {
        Self::Broken { task, reason: reason.to_string() }
    }
}

impl TaskHandle {
    /// Waits until the task has ended or waits for a review.
    pub async fn wait(&mut self) -> Result<TaskStatus, EngineError> {
        (&mut self.done).await.unwrap_or(Err(EngineError::Left(self.id)))
    }
}

impl Runtime {
    /// Starts a runtime without tasks. Must be called within a Tokio runtime.
    pub async fn start(mut deps: RuntimeDeps) -> Result<Self, EngineError> {
        let changes = deps.store.changes(deps.store.last_position().await?);
        // Later toggles arrive through the change feed.
        let toggles = ToggleCache::load(&*deps.store).await?;
        let journal = TaskJournal::new(Arc::clone(&deps.store), deps.dedicated_thread.take());
        let scheduler = Scheduler::new(deps.limits.concurrent_tasks);
        let (ledger, slot_lines, slot_freed) = (Arc::default(), Arc::default(), Notify::new());
        cleanup::start(&deps);
        let lease = Arc::clone(&deps.lease);
        let inner =
            RuntimeInner { deps, scheduler, journal, ledger, slot_freed, slot_lines, toggles };
        let inner = Arc::new(inner);
        let mut background = JoinSet::new();
        background.spawn(journal_watcher::watch(Arc::downgrade(&inner), changes));
        background.spawn(lifecycle::retry_releases(Arc::downgrade(&inner)));
        background.spawn(liveness::keep_lease(lease));
        Ok(Self { inner, _background: background })
    }

    /// Creates a task. It is durable and queued when this returns.
    pub async fn create(&self, create: CreateTask) -> Result<TaskHandle, EngineError> {
        self.create_from(create, None).await
    }

    async fn create_from(
        &self,
        create: CreateTask,
        at_fork: Option<TaskState>,
    ) -> Result<TaskHandle, EngineError> {
        let deps = &self.inner.deps;
        lifecycle::check_ready(deps, &create.assignee, &create.overrides)?;
        lifecycle::check_prices(&*deps.models, &create)?;
        let inner = Arc::clone(&self.inner);
        to_completion(async move {
            let loaded = lifecycle::create_task(&inner, create, at_fork).await?;
            Ok(scheduler::enqueue(&inner, loaded, None).await)
        })
        .await
    }

    /// Creates a task that continues from a checkpoint of another.
    pub async fn fork(&self, request: ForkRequest) -> Result<TaskHandle, EngineError> {
        let store = &*self.inner.deps.store;
        let ContinuedTask { create, at_fork } = lifecycle::prepare_fork(store, request).await?;
        self.create_from(create, Some(at_fork)).await
    }

    /// Creates a task that continues a failed or cancelled one from the point before its failure. A
    /// task has one retry; a second request is refused with the id of the first.
    pub async fn retry(&self, request: RetryRequest) -> Result<TaskHandle, EngineError> {
        let (store, task) = (&*self.inner.deps.store, request.task);
        let ContinuedTask { create, at_fork } = lifecycle::prepare_retry(store, request).await?;
        let created = self.create_from(create, Some(at_fork)).await;
        if let Err(EngineError::Commit(CommitError::Conflict { .. })) = &created {
            // Another process was faster.
            lifecycle::check_not_retried(store, task).await?;
        }
        created
    }

    /// Adopts a task whose owner is dead, and continues it.
    pub async fn adopt(&self, id: TaskId) -> Result<TaskHandle, EngineError> {
        let inner = Arc::clone(&self.inner);
        to_completion(async move {
            let loaded = lifecycle::claim_task(&inner, id).await?;
            let order = loaded.state.task().order();
            // The call that opened a sub-task is unknown if the sub-task is adopted alone.
            let session = order.parent_task_id.map(|_| order.assigned_agent.as_str().into());
            Ok(scheduler::enqueue(&inner, loaded, session).await)
        })
        .await
    }

    /// Records that a person trusts an imported task, its ancestors that have not ended, and every
    /// task below them. Changes nothing if none of them needs trust.
    pub async fn trust(&self, id: TaskId, by: &str) -> Result<(), EngineError> {
        let store = &*self.inner.deps.store;
        let row = store.task_row(id).await?.ok_or(EngineError::NotFound(id))?;
        let top = active_root(store, row).await?.id;
        lifecycle::trust_task(&self.inner, top, by).await
    }

    /// Checks that this runtime could continue a task: its drivers are ready.
    pub async fn ready(&self, id: TaskId) -> Result<(), EngineError> {
        let deps = &self.inner.deps;
        let loaded = load_task(&*deps.store, id).await?;
        expect_trust(&loaded.state)?;
        Ok(lifecycle::check_ready(deps, &loaded.assignee, &crate::driver::RunOverrides::default())?)
    }

    /// Records the answer to a review. The task continues when a process adopts it.
    pub async fn answer(&self, id: TaskId, answer: AnswerReview) -> Result<(), EngineError> {
        let inner = Arc::clone(&self.inner);
        to_completion(async move { lifecycle::answer_review(&inner, id, answer).await }).await
    }

    /// Cancels a task: at once if no process or this one owns it, else by asking its owner.
    pub async fn cancel(&self, id: TaskId) -> Result<CancelOutcome, EngineError> {
        if self.inner.scheduler.cancel(id) {
            return Ok(CancelOutcome::Requested);
        }
        let cancelled = control::cancel(&self.inner.deps.control(), id).await?;
        scheduler::check_queued(&self.inner, id).await;
        if cancelled == CancelOutcome::Compensating {
            // This process undoes the finished nodes.
            self.adopt(id).await?;
            return Ok(CancelOutcome::Requested);
        }
        Ok(cancelled)
    }

    /// Enables or disables an agent, for this process at once. Returns true if that is a change.
    pub async fn toggle_agent(
        &self,
        agent: &Name,
        toggle: &ToggleAgent,
    ) -> Result<bool, EngineError> {
        let RuntimeInner { deps, toggles, .. } = &*self.inner;
        let changed = toggles::toggle_agent(&*deps.store, &*deps.clock, agent, toggle).await?;
        toggles.reload(&*deps.store, agent.clone()).await;
        Ok(changed)
    }

    /// Stops the programs of CLI agents as their definitions say, because this process is about to
    /// exit. Their tasks stay interrupted and can be resumed.
    pub async fn stop_programs(&self) {
        self.inner.deps.programs.stop_all().await;
    }

    /// Starts no more queued tasks, because this process is about to exit. Running tasks and their
    /// parts continue.
    pub fn drain(&self) {
        self.inner.scheduler.drain();
    }

    /// True if no task runs here, and none waits for its turn or will get it.
    pub fn is_idle(&self) -> bool {
        self.inner.scheduler.is_idle()
    }

    /// The instance id of this process.
    pub fn instance(&self) -> InstanceId {
        self.inner.deps.instance()
    }

    /// Subscribes to events as they become durable. A slow subscriber loses events and reads the
    /// journal instead.
    pub fn subscribe(&self) -> broadcast::Receiver<LiveEvent> {
        self.inner.journal.subscribe()
    }
}

/// Performs a change of several steps in a Tokio task of its own, so that it is completed even if the
/// caller stops waiting.
async fn to_completion<T: Send + 'static>(
    change: impl Future<Output = Result<T, EngineError>> + Send + 'static,
) -> Result<T, EngineError> {
    tokio::spawn(change).await.unwrap_or_else(|stopped| match stopped.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(StoreError::Closed.into()),
    })
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.inner.scheduler.close();
    }
}

//! The runtime: commits what was decided, performs effects, and brings outcomes back as commands.
//!
//! ```text
//! create, adopt ──> queue ──> worker: decide ─> commit ─> effect ─> outcome ─┐
//!                    ^          ^      ^────────────────────────────────────┘
//!                    │          └─ signals: cancel, "another process changed this task"
//!                    └─ a worker that ends makes room for the oldest that waits
//! ```
//! Each running task has one worker, which owns the task's state; workers share no lock but that of
//! the desk, which says who is at work. A task that waits in the queue is a row of the store.

mod desk;
mod fork;
mod load;
mod mend;
mod ready;
mod remote;
mod session;
mod steer;
mod sweep;
mod switch;
mod watch;
mod worker;

use std::sync::{Arc, RwLock};

use polity_definition::Limits;
use polity_model::event::{Event, RecordedEvent, StreamId, StreamSequence};
use polity_model::ids::{CheckpointId, InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_store::{Commit, CommitError, Store, StoreError};
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, oneshot};

pub use fork::ForkError;
pub use load::{Beginning, Loaded, load};
pub use steer::{Owners, Steered, Steering, cancel, orphans, resumed_with, top_of};
pub use switch::toggle_agent;

use crate::agent_toggles::AgentToggles;
use crate::budget::{BudgetLedger, BudgetStatus};
use crate::clock::Clock;
use crate::commands::{AnswerReview, ClaimTask, CreateTask, ExpireReview, NewTask, TaskOrigin};
use crate::decide::{Command, CommandRejection, DecisionContext, SlotContext, decide};
use crate::driver::{
    CallSite, Models, NotReady, Programs, Remotes, RunIdentity, RunOverrides, Toolbox, Tools,
};
use crate::entropy::{Entropy, EntropySource};
use crate::pinned::PinnedError;
use crate::sealed_input::SealedInput;
use crate::state::{CorruptJournal, TaskState};
use desk::Desk;
use session::sub_agent_tools;

/// How many events a slow subscriber may fall behind before it must read the journal instead.
const LIVE_EVENTS_MAX: usize = 1024;

/// How often a decision is made anew because others keep changing the same task.
const CONFLICTS_MAX: u32 = 100;

/// What a runtime is made of.
pub struct Parts {
    /// The journal.
    pub store: Arc<dyn Store>,
    /// Who calls models.
    pub models: Arc<dyn Models>,
    /// Who calls tools.
    pub tools: Arc<dyn Tools>,
    /// Who runs programs.
    pub programs: Arc<dyn Programs>,
    /// Who has agents on other servers do work.
    pub remotes: Arc<dyn Remotes>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub entropy: Arc<dyn EntropySource>,
    /// Who knows which processes are alive.
    pub owners: Arc<dyn Owners>,
    /// This process.
    pub instance: InstanceId,
    /// The most of everything, as the settings say.
    pub limits: Limits,
}

impl Parts {
    /// What it takes to steer tasks, with these as the living.
    fn steering<'a>(&'a self, owners: &'a dyn Owners) -> Steering<'a> {
        Steering { store: &self.store, owners, clock: &*self.clock, remotes: &*self.remotes }
    }
}

/// Runs tasks. Dropping it abandons what is running: those tasks can be resumed.
pub struct Runtime {
    shared: Arc<Shared>,
}

/// How a commit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// With those of others, while this thread goes on with something else.
    Together,
    /// At once and in this thread, which has nothing else to go on with.
    Alone,
}

struct Shared {
    parts: Parts,
    desk: Desk,
    live: broadcast::Sender<Live>,
    ledger: Arc<BudgetLedger>,
    /// Told whenever a program makes room for another.
    room: Notify,
    /// Which agents take work, as far as this process has noticed.
    agent_toggles: RwLock<Arc<AgentToggles>>,
}

/// What subscribers are told.
#[derive(Debug, Clone)]
pub enum Live {
    /// Something happened, and is durable.
    Event(Arc<RecordedEvent>),
    /// A model is saying something. It is not fact until its answer is an event.
    Text {
        /// The task.
        task: TaskId,
        /// What was said since the last piece.
        piece: Arc<str>,
    },
}

/// A task that this runtime runs or has queued.
#[derive(Debug)]
pub struct TaskHandle {
    /// The task.
    pub id: TaskId,
    done: oneshot::Receiver<Outcome>,
}

type Outcome = Result<TaskStatus, EngineError>;

/// Why the engine could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The task's own rules are against it.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// The agent's model cannot be called.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// There is no such task.
    #[error("there is no task {0}")]
    NotFound(TaskId),
    /// Another process has taken the task over.
    #[error("task {0} was taken over by another process")]
    TakenOver(TaskId),
    /// Others kept changing the task.
    #[error("task {0} was changed by others each time this process tried to")]
    Contended(TaskId),
    /// The runtime ended before the task did.
    #[error("task {0} was left before it ended")]
    Left(TaskId),
    /// The program has an error of its own.
    #[error("the work on task {task} ended in an error of this program: {panic}")]
    Panicked {
        /// The task.
        task: TaskId,
        /// What the error said.
        panic: String,
    },
    /// The task cannot go on from there.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task's definitions cannot be put together.
    #[error(transparent)]
    Pinned(#[from] PinnedError),
    /// The store refused the events.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The journal makes no sense.
    #[error("the journal of task {task} makes no sense: {reason}")]
    Broken {
        /// The task.
        task: TaskId,
        /// Why.
        reason: String,
    },
}

impl EngineError {
    pub(crate) fn broken(task: TaskId, reason: &CorruptJournal) -> Self {
        Self::Broken { task, reason: reason.to_string() }
    }
}

impl TaskHandle {
    /// Waits until no one works on the task any more: it has ended, or it waits for a person.
    pub async fn wait(&mut self) -> Result<TaskStatus, EngineError> {
        (&mut self.done).await.unwrap_or(Err(EngineError::Left(self.id)))
    }
}

impl Runtime {
    /// A runtime with nothing to do yet. Must be called within a Tokio runtime.
    pub fn start(parts: Parts) -> Result<Self, EngineError> {
        let (live, _) = broadcast::channel(LIVE_EVENTS_MAX);
        let desk = Desk::new(parts.limits.concurrent_tasks);
        let from = parts.store.last_position()?;
        // What is said after this is noticed by whoever watches the journal.
        let agent_toggles = RwLock::new(Arc::new(AgentToggles::read(&*parts.store)?));
        let (ledger, room) = (Arc::default(), Notify::new());
        let shared = Arc::new(Shared { parts, desk, live, ledger, room, agent_toggles });
        tokio::spawn(watch::watch(Arc::downgrade(&shared), from));
        shared.sweep();
        Ok(Self { shared })
    }

    /// Creates a task. It is durable, and in the queue, when this returns.
    pub async fn create(&self, create: CreateTask) -> Result<TaskHandle, EngineError> {
        self.shared.ready_with(&create.assignee, &create.overrides)?;
        self.shared.check_prices(&create)?;
        let shared = Arc::clone(&self.shared);
        // On a task of its own: whoever asked may stop listening, but what is written is also run.
        let created = tokio::spawn(async move {
            let loaded = shared.create(create).await?;
            Ok(shared.enqueue(loaded, None).await)
        });
        created.await.unwrap_or_else(|stopped| match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closed.into()),
        })
    }

    /// Takes over a task whose owner is gone, and goes on with it.
    pub async fn adopt(&self, id: TaskId) -> Result<TaskHandle, EngineError> {
        let loaded = self.shared.claim(id).await?;
        let order = loaded.state.task().order();
        // A sub-agent that is taken over alone does not know by which call its parent opened it.
        let session = order.parent_task_id.map(|_| order.assigned_agent.as_str().into());
        Ok(self.shared.enqueue(loaded, session).await)
    }

    /// Whether this runtime could go on with a task: its model can be called, its servers are known.
    pub async fn ready(&self, id: TaskId) -> Result<(), EngineError> {
        let assignee = load(&self.shared.parts.store, id).await?.assignee;
        Ok(self.shared.ready(&assignee)?)
    }

    /// Records what a person decided about a task that waits for that. It goes on when someone
    /// adopts it.
    pub async fn answer(&self, id: TaskId, answer: AnswerReview) -> Result<(), EngineError> {
        let parts = &self.shared.parts;
        let mut loaded = load(&parts.store, id).await?;
        // Arguments that a person gives are held against the tool's schema at once, where the tool
        // can be asked for it.
        let toolbox = match (&answer.verdict, loaded.assignee.llm()) {
            (ReviewVerdict::Modify { .. }, Some(llm)) => {
                let listed = parts.tools.toolbox(&llm.tools, CallSite::OUTSIDE).await;
                let listed = listed.unwrap_or_else(|error| {
                    tracing::warn!(%id, %error, "the new arguments are checked when they are used");
                    Arc::default()
                });
                Arc::new(listed.joined(&sub_agent_tools(&loaded.assignee)))
            }
            (ReviewVerdict::Modify { .. }, None)
            | (
                ReviewVerdict::Approve
                | ReviewVerdict::Reject
                | ReviewVerdict::Retry
                | ReviewVerdict::SkipWith { .. },
                _,
            ) => Arc::default(),
        };
        for _ in 0..CONFLICTS_MAX {
            let mut ctx = self.shared.decision_context(&toolbox, BudgetStatus::default());
            let command = Command::AnswerReview(answer.clone());
            let decision = match decide(&loaded.state, &command, &mut ctx) {
                Err(CommandRejection::AnotherQuestion { .. })
                    if !self.shared.has_checkpoint(id, answer.checkpoint_id).await? =>
                {
                    let checkpoint = answer.checkpoint_id;
                    return Err(CommandRejection::NoSuchCheckpoint { task: id, checkpoint }.into());
                }
                decided => decided?,
            };
            match self.shared.write(&mut loaded.state, &ctx, decision.events).await {
                Err(EngineError::Commit(CommitError::Conflict { .. })) => {
                    self.shared.catch_up(&mut loaded.state).await?;
                }
                written => {
                    written?;
                    self.shared.end_parts_of(&loaded.state).await;
                    let Loaded { assignee, state } = &mut loaded;
                    if let Some(agent) = assignee.agent() {
                        self.shared.end_remote_of(agent, state).await;
                    }
                    return Ok(());
                }
            }
        }
        Err(EngineError::Contended(id))
    }

    /// Ends a task: at once where it is this runtime's own or no one's, else by asking its owner.
    pub async fn cancel(&self, id: TaskId) -> Result<Steered, EngineError> {
        if self.shared.desk.cancel(id) {
            return Ok(Steered::Requested);
        }
        let parts = &self.shared.parts;
        let steered = steer::cancel(&parts.steering(&*parts.owners), id).await?;
        self.shared.look_after_waiting(id).await;
        Ok(steered)
    }

    /// This process.
    pub fn instance(&self) -> InstanceId {
        self.shared.parts.instance
    }

    /// What is committed from now on, as it becomes durable. One that falls behind is told so and
    /// reads the journal.
    pub fn subscribe(&self) -> broadcast::Receiver<Live> {
        self.shared.live.subscribe()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.desk.close();
    }
}

impl Shared {
    /// Whether a task was ever at that checkpoint.
    async fn has_checkpoint(
        &self,
        id: TaskId,
        checkpoint: CheckpointId,
    ) -> Result<bool, StoreError> {
        let rows = load::blocking(&self.parts.store, move |store| store.checkpoints(id)).await?;
        Ok(rows.iter().any(|row| row.checkpoint_id == checkpoint))
    }

    fn decision_context(&self, toolbox: &Arc<Toolbox>, budget: BudgetStatus) -> DecisionContext {
        let entropy = Entropy::from_seed(self.parts.entropy.seed());
        let (now, limits) = (self.parts.clock.now(), self.parts.limits);
        let (toolbox, slot) = (Arc::clone(toolbox), SlotContext::default());
        DecisionContext {
            now,
            entropy,
            toolbox,
            limits,
            budget,
            slot,
            agent_toggles: self.agent_toggles(),
        }
    }

    /// Puts what must not be seen aside: from here on the task shows what is left.
    fn put_aside(&self, create: &mut CreateTask) -> Option<String> {
        let agent = create.assignee.agent().filter(|agent| agent.program().is_some())?;
        let overrides = &create.overrides;
        let original = json!({"input": create.description, "parameters": create.parameters});
        let mut masked = self.parts.programs.masked(agent, overrides, original);
        let (Value::String(description), Value::Object(parameters)) =
            (masked["input"].take(), masked["parameters"].take())
        else {
            return None;
        };
        let is_plain = description == create.description && parameters == create.parameters;
        if is_plain && overrides.envs.is_empty() {
            return None;
        }
        let sealed_input = SealedInput {
            description: std::mem::replace(&mut create.description, description),
            parameters: std::mem::replace(&mut create.parameters, parameters),
            envs: create.overrides.envs.clone(),
        };
        serde_json::to_string(&sealed_input).ok()
    }

    /// Makes a task durable.
    async fn create(&self, create: CreateTask) -> Result<Loaded, EngineError> {
        let mut ctx = self.decision_context(&Arc::default(), BudgetStatus::default());
        let mut create = create;
        if let Some(agent) = create.assignee.agent()
            && let Some(cli) = agent.program()
        {
            let programs = &self.parts.programs;
            let folder = programs.folder(agent, &create.overrides);
            create.overrides.working_directory = Some(folder);
            ctx.slot.pool = programs.pool(agent, &create.overrides).into();
            let CreateTask { description: input, parameters, overrides, .. } = &create;
            let identity = RunIdentity { agent, input, parameters, overrides };
            ctx.slot.dedup_key = cli.deduplicate_seconds.and_then(|_| programs.request(&identity));
        }
        let sealed_input = self.put_aside(&mut create);
        let assignee = create.assignee.clone();
        let is_fork = matches!(create.origin, TaskOrigin::Fork { .. });
        let (instance, limits) = (self.parts.instance, &self.parts.limits);
        let new = create.decide(instance, limits, &mut ctx, sealed_input.is_some())?;
        let id = new.id;
        let written = self.write_first(&ctx, new, sealed_input).await?;
        if is_fork {
            return load(&self.parts.store, id).await;
        }
        let state = TaskState::load(&assignee, written)
            .map_err(|broken| EngineError::broken(id, &broken))?;
        Ok(Loaded { assignee, state })
    }

    /// Makes a task that no one works on one's own.
    async fn claim(&self, id: TaskId) -> Result<Loaded, EngineError> {
        let parts = &self.parts;
        let mut loaded = load(&parts.store, id).await?;
        self.refuse_stray(&loaded.state).await?;
        if !loaded.state.status().is_final() && !loaded.state.cancel_requested() {
            // A task that could not go on is left as it is, for someone who can.
            let working_directory = loaded.state.task().order().working_directory.clone();
            let overrides = RunOverrides { working_directory, ..RunOverrides::default() };
            self.ready_with(&loaded.assignee, &overrides)?;
        }
        self.expire(&mut loaded.state).await?;
        for _ in 0..CONFLICTS_MAX {
            let state = &loaded.state;
            let owner_alive = state.owner().is_some_and(|owner| parts.owners.is_alive(owner));
            let claim = ClaimTask { instance: parts.instance, owner_alive };
            let mut ctx = self.decision_context(&Arc::default(), BudgetStatus::default());
            let decision = decide(state, &Command::ClaimTask(claim), &mut ctx)?;
            match self.write(&mut loaded.state, &ctx, decision.events).await {
                Ok(()) => return Ok(loaded),
                Err(EngineError::Commit(CommitError::Conflict { .. })) => {
                    self.catch_up(&mut loaded.state).await?;
                }
                Err(other) => return Err(other),
            }
        }
        Err(EngineError::Contended(id))
    }

    /// Takes the default action where no one has answered in time.
    async fn expire(&self, state: &mut TaskState) -> Result<(), EngineError> {
        for _ in 0..CONFLICTS_MAX {
            let mut ctx = self.decision_context(&Arc::default(), BudgetStatus::default());
            let deadline = state.review().and_then(|review| review.deadline);
            if deadline.is_none_or(|deadline| ctx.now < deadline) {
                return Ok(());
            }
            let command = Command::ExpireReview(ExpireReview);
            let decision = decide(state, &command, &mut ctx)?;
            match self.write(state, &ctx, decision.events).await {
                Err(EngineError::Commit(CommitError::Conflict { .. })) => {
                    self.catch_up(state).await?;
                }
                written => {
                    written?;
                    self.end_parts_of(state).await;
                    return Ok(());
                }
            }
        }
        Err(EngineError::Contended(state.id()))
    }

    async fn write_first(
        &self,
        ctx: &DecisionContext,
        new: NewTask,
        sealed_input: Option<String>,
    ) -> Result<Vec<RecordedEvent>, EngineError> {
        let NewTask { id, events, definitions } = new;
        let commit = Commit {
            stream: StreamId::Task(id),
            expected_sequence: StreamSequence::default(),
            owner_epoch: None,
            at: ctx.now,
            events,
            definitions,
            sealed_input,
        };
        let pace = if self.desk.has_workers() { Pace::Together } else { Pace::Alone };
        Ok(self.commit(commit, pace).await?)
    }

    /// Commits events in the name of the task's owner, and applies them once they are durable.
    async fn write(
        &self,
        state: &mut TaskState,
        ctx: &DecisionContext,
        events: Vec<Event>,
    ) -> Result<(), EngineError> {
        self.write_at(state, ctx, events, Pace::Together).await
    }

    async fn write_at(
        &self,
        state: &mut TaskState,
        ctx: &DecisionContext,
        events: Vec<Event>,
        pace: Pace,
    ) -> Result<(), EngineError> {
        if events.is_empty() {
            return Ok(());
        }
        // A claim is made in the name of the epoch that it opens.
        let opened = events.iter().find_map(Event::opens_epoch);
        let commit = Commit {
            stream: state.stream(),
            expected_sequence: state.sequence(),
            owner_epoch: opened.or(Some(state.epoch())),
            at: ctx.now,
            events,
            definitions: Vec::new(),
            sealed_input: None,
        };
        for recorded in self.commit(commit, pace).await? {
            state.apply(recorded).map_err(|broken| EngineError::broken(state.id(), &broken))?;
        }
        Ok(())
    }

    /// Makes the events durable, and only then tells subscribers.
    async fn commit(&self, commit: Commit, pace: Pace) -> Result<Vec<RecordedEvent>, CommitError> {
        let (stream, at) = (commit.stream.clone(), commit.at);
        let (before, events) = (commit.expected_sequence, commit.events.clone());
        let store = &self.parts.store;
        let committed = match pace {
            Pace::Together => store.commit(commit).await?,
            Pace::Alone => store.commit_here(commit).await?,
        };
        let recorded: Vec<RecordedEvent> = (0..)
            .zip(events)
            .map(|(index, event)| RecordedEvent {
                position: committed.first_position.plus(index),
                stream: stream.clone(),
                sequence: before.plus(index + 1),
                at,
                event,
            })
            .collect();
        self.publish(&recorded);
        Ok(recorded)
    }

    fn publish(&self, recorded: &[RecordedEvent]) {
        if self.live.receiver_count() > 0 {
            for event in recorded {
                // Without a receiver there is no one to tell.
                let _ = self.live.send(Live::Event(Arc::new(event.clone())));
            }
        }
    }

    fn publish_text(&self, task: TaskId, piece: &str) {
        if self.live.receiver_count() > 0 {
            // Without a receiver there is no one to tell.
            let _ = self.live.send(Live::Text { task, piece: piece.into() });
        }
    }

    /// Reads and applies what others have committed to the task, and tells subscribers of it.
    async fn catch_up(&self, state: &mut TaskState) -> Result<(), EngineError> {
        let news = load::events_after(&self.parts.store, state).await?;
        self.publish(&news);
        for recorded in news {
            state.apply(recorded).map_err(|broken| EngineError::broken(state.id(), &broken))?;
        }
        Ok(())
    }
}

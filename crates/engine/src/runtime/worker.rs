//! A worker: runs one task step by step until it ends or waits for a review.
//!
//! A step decides and commits, then starts the effects: a model call, a wait, or parallel tool
//! calls. Each outcome becomes the command of the next step.

mod call_timer;
mod cli_agent;
mod dedup;
mod effects;
mod interruption;
mod remote_agent;
mod tool_listing;

pub(super) use effects::elapsed_ms;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{WorkflowNode, WorkflowNodeKind};
use polity_model::event::Event;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitError, Slot};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::{AbortHandle, JoinSet};

use super::decision_loop::{DecisionTarget, ProposedEvents, decide_and_commit};
use super::history::LoadedTask;
use super::journal::CommitMode;
use super::orphans::is_stalled;
use super::scheduler::{WorkerActivity, WorkerSignal, give_up_slot, retake_slot};
use super::sub_agents::{end_sub_tasks, open_allowance, sub_agent_tools};
use super::{EngineError, RuntimeInner, TaskOutcome};
use crate::budget::BudgetAllowance;
use crate::commands::{
    AdvanceWorkflow, CancelOrigin, CancelTask, ClaimTask, ResumeTask, StartTask,
};
use crate::decide::{Command, CommandRejection, Effect, SlotContext, decide};
use crate::driver::{ToolSpec, Toolbox};
use crate::pinned::Assignee;
use crate::state::TaskState;
use interruption::{EffectOutcome, Interruption, interruption};

/// The worker of one task.
pub(super) struct Worker {
    inner: Arc<RuntimeInner>,
    assignee: Assignee,
    /// The name of the conversation in call sites.
    session: Arc<str>,
    state: TaskState,
    signals: mpsc::UnboundedReceiver<WorkerSignal>,
    /// The agent's tools as last listed, and its sub-agents.
    toolbox: Arc<Toolbox>,
    /// The agent's sub-agents, as tools.
    sub_agents: Vec<Arc<ToolSpec>>,
    /// The remaining budget.
    allowance: BudgetAllowance,
    /// Tool calls and sub-agents in progress. Dropping them abandons them.
    calls: JoinSet<Result<Command, EngineError>>,
    /// The handles that abort calls in progress.
    abort_handles: HashMap<ToolCallId, AbortHandle>,
    /// The slot of the CLI agent that performs the task.
    slot: SlotHolding,
}

/// The slot and the deduplication of a CLI agent's task.
#[derive(Default)]
struct SlotHolding {
    pool: Arc<str>,
    held: Option<Slot>,
    /// The task whose run this one shares.
    duplicate_of: Option<TaskId>,
    /// True if duplicates that have not started no longer count.
    ignores_pending: bool,
}

/// One step: a command that is decided on the worker's state.
struct WorkerStep<'a> {
    worker: &'a mut Worker,
    command: &'a Command,
}

impl DecisionTarget for WorkerStep<'_> {
    type Output = Vec<Effect>;

    async fn propose(&mut self) -> Result<ProposedEvents<Vec<Effect>>, EngineError> {
        let Worker { inner, state, toolbox, allowance, slot, .. } = &*self.worker;
        let mut context = inner.context(toolbox, allowance.budget_status());
        context.slot = SlotContext {
            pool: Arc::clone(&slot.pool),
            is_held: slot.held.is_some(),
            dedup_key: None,
            duplicate_of: slot.duplicate_of,
        };
        let decision = decide(state, self.command, &mut context)?;
        Ok(ProposedEvents { at: context.now, events: decision.events, output: decision.effects })
    }

    async fn commit(&mut self, at: Timestamp, events: Vec<Event>) -> Result<(), EngineError> {
        let mode = self.worker.commit_mode();
        let Worker { inner, state, .. } = &mut *self.worker;
        inner.journal.commit_as_owner(state, at, events, mode).await
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.worker.catch_up().await
    }

    fn contended(&self, _: CommitError) -> EngineError {
        EngineError::Contended(self.worker.state.id())
    }
}

impl Worker {
    pub(super) fn new(
        inner: Arc<RuntimeInner>,
        loaded: LoadedTask,
        signals: mpsc::UnboundedReceiver<WorkerSignal>,
        session: Option<Arc<str>>,
    ) -> Self {
        let LoadedTask { assignee, state } = loaded;
        let session = session.unwrap_or_else(|| assignee.name().as_str().into());
        let sub_agents = sub_agent_tools(&assignee);
        Self {
            inner,
            assignee,
            session,
            state,
            signals,
            toolbox: Arc::default(),
            sub_agents,
            allowance: BudgetAllowance::default(),
            calls: JoinSet::new(),
            abort_handles: HashMap::new(),
            slot: SlotHolding::default(),
        }
    }

    pub(super) async fn run(mut self) -> TaskOutcome {
        let (store, ledger) = (&*self.inner.deps.store, &self.inner.ledger);
        self.allowance = open_allowance(store, ledger, &self.assignee, &self.state).await?;
        let mut outcome = self.work().await;
        // A review of a sub-task may have been answered at the moment in which this task was paused
        // for it, when it still had a worker.
        while outcome.is_ok() && self.state.is_paused() && self.reclaim().await? {
            self.calls = JoinSet::new();
            outcome = self.work().await;
        }
        let id = self.state.id();
        let is_alone = match &self.assignee {
            Assignee::Agent(_) => self.sub_agents.is_empty(),
            Assignee::Workflow(flow) => !flow.has_parts(),
        };
        if outcome.is_ok() && !is_alone {
            // No call may start for a task that has ended.
            self.calls.shutdown().await;
            end_sub_tasks(&self.inner, &self.state).await;
        }
        self.free_slot();
        if outcome.is_ok() {
            self.forget_runs();
            self.cancel_remote().await;
        }
        // After an error, sub-tasks may go on, and its budget still limits them.
        if outcome.is_ok() || is_alone {
            self.inner.ledger.close(id);
        }
        outcome
    }

    async fn work(&mut self) -> TaskOutcome {
        let mut next = self.first_command().await?;
        loop {
            let effects = match self.step(&next).await {
                Ok(effects) => effects,
                // Another process has ended it or opened a review: nothing is left to do.
                Err(EngineError::Rejected(
                    CommandRejection::Finished { .. } | CommandRejection::AwaitingHuman { .. },
                )) => break,
                Err(error) => return Err(error),
            };
            // Calls in progress are dropped with the worker.
            if self.state.status() != TaskStatus::Running {
                break;
            }
            // After a cancel during the commit, no effect starts.
            if self.state.cancel_requested() {
                next = self.cancel();
                continue;
            }
            let Some(outcome) = self.perform(effects).await? else { break };
            next = match outcome {
                Ok(command) => command,
                Err(interrupted) => self.interrupted(interrupted).await?,
            };
        }
        Ok(self.state.status())
    }

    /// Claims the paused task again if it can go on. Returns false if it cannot.
    async fn reclaim(&mut self) -> Result<bool, EngineError> {
        let store = &*self.inner.deps.store;
        let can_go_on = match store.task_row(self.state.id()).await? {
            Some(row) => is_stalled(store, &row).await?,
            None => false,
        };
        if !can_go_on {
            return Ok(false);
        }
        let claim = ClaimTask { instance: self.inner.deps.instance(), owner_alive: false };
        match self.step(&Command::ClaimTask(claim)).await {
            Ok(_) => Ok(true),
            // Another process claimed the task first.
            Err(EngineError::TakenOver(_) | EngineError::Rejected(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn first_command(&mut self) -> Result<Command, EngineError> {
        self.prepare_slot().await?;
        if self.state.status() == TaskStatus::Pending {
            // A workflow needs its tools before the first node, and a fork those of its open calls.
            let acts = self.state.workflow_run().is_some() || !self.state.calls().all().is_empty();
            if acts && let Some(interrupted) = self.list_tools().await {
                return self.interrupted(interrupted).await;
            }
            return Ok(Command::StartTask(StartTask));
        }
        if (self.state.doing() == LoopState::Acting || self.state.is_paused())
            && let Some(interrupted) = self.list_tools().await
        {
            return self.interrupted(interrupted).await;
        }
        self.end_unneeded_sub_tasks().await?;
        Ok(Command::ResumeTask(ResumeTask))
    }

    async fn interrupted(&mut self, why: Interruption) -> Result<Command, EngineError> {
        match why {
            Interruption::Abandoned => Err(EngineError::Left(self.state.id())),
            Interruption::Cancelled => Ok(self.cancel()),
            Interruption::Changed => {
                self.catch_up().await?;
                Ok(self.cancel())
            }
        }
    }

    /// Decides on a command and commits it. Returns the effects to perform.
    async fn step(&mut self, command: &Command) -> Result<Vec<Effect>, EngineError> {
        match decide_and_commit(&mut WorkerStep { worker: self, command }).await {
            Err(EngineError::Commit(CommitError::Fenced { .. })) => {
                Err(EngineError::TakenOver(self.state.id()))
            }
            stepped => stepped,
        }
    }

    /// Inline only if nothing else in this runtime could go on during the commit.
    fn commit_mode(&self) -> CommitMode {
        let is_alone = self.calls.is_empty()
            && self.slot.held.is_none()
            && self.inner.scheduler.has_single_worker();
        if is_alone { CommitMode::Inline } else { CommitMode::Grouped }
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.inner.journal.catch_up(&mut self.state).await?;
        match self.state.owner() {
            Some(owner) if owner == self.inner.deps.instance() => Ok(()),
            // A task with an open review has no owner; another worker of this process may have
            // opened the review.
            None if self.state.status() == TaskStatus::AwaitingHuman => Ok(()),
            Some(_) | None => Err(EngineError::TakenOver(self.state.id())),
        }
    }

    /// Abandons the calls in progress and cancels the task.
    fn cancel(&mut self) -> Command {
        self.calls.abort_all();
        self.calls = JoinSet::new();
        Command::CancelTask(CancelTask { by: CancelOrigin::Owner })
    }

    /// Starts the effects, and waits for the first outcome of those in progress. Returns none if
    /// nothing is in progress.
    async fn perform(
        &mut self,
        effects: Vec<Effect>,
    ) -> Result<Option<EffectOutcome>, EngineError> {
        let mut advances = false;
        for effect in effects {
            match effect {
                Effect::CallModel => return Ok(Some(self.call_model().await)),
                Effect::WaitUntil(time) => {
                    self.park(WorkerActivity::Parked);
                    let outcome = self.wait_until(time).await;
                    return Ok(Some(self.unpark(outcome).await));
                }
                Effect::WaitForSlot => {
                    self.park(WorkerActivity::Parked);
                    let outcome = self.wait_for_slot().await?;
                    return Ok(Some(self.unpark(outcome).await));
                }
                Effect::WaitForOriginal => {
                    self.park(WorkerActivity::Parked);
                    let outcome = self.wait_for_duplicate().await?;
                    return Ok(Some(self.unpark(outcome).await));
                }
                Effect::RunCliAgent => return Ok(Some(self.run_cli_agent().await?)),
                Effect::SendMessage => return Ok(Some(self.send_message().await?)),
                Effect::FollowRemote => return Ok(Some(self.follow_remote().await)),
                Effect::RecoverRun => return Ok(Some(self.recover_run().await?)),
                Effect::CallTool { call_id, timeout } => self.call_tool(call_id, timeout),
                Effect::OpenSession { call_id, deadline } => self.open_sub_agent(call_id, deadline),
                Effect::WatchSession { call_id } => self.watch_sub_agent(call_id),
                Effect::WaitForTool { call_id, until } => self.wait_for_tool(call_id, until),
                Effect::AbandonCall { call_id } => self.abandon(call_id).await?,
                Effect::AdvanceWorkflow => advances = true,
            }
        }
        if advances {
            return Ok(Some(self.advance().await));
        }
        let delegates = self.waits_only_for_sub_tasks();
        if delegates {
            self.park(WorkerActivity::Delegating);
        }
        let outcome = self.next_outcome().await?;
        match outcome {
            Some(outcome) if delegates => Ok(Some(self.unpark(outcome).await)),
            outcome => Ok(outcome),
        }
    }

    /// Gives up the slot among the concurrent tasks while the task waits.
    fn park(&self, activity: WorkerActivity) {
        give_up_slot(&self.inner, self.state.id(), activity);
    }

    /// Takes the slot again after a wait. A task that was interrupted goes on without one, to end.
    async fn unpark<T>(&mut self, outcome: Result<T, Interruption>) -> Result<T, Interruption> {
        let granted = retake_slot(&self.inner, self.state.id());
        let result = outcome?;
        let Some(granted) = granted else { return Ok(result) };
        let Self { inner, state, signals, .. } = self;
        tokio::select! {
            Ok(()) = granted => Ok(result),
            interrupted = interruption(inner, state, signals) => Err(interrupted),
        }
    }

    fn waits_only_for_sub_tasks(&self) -> bool {
        let calls = self.state.calls();
        let is_sub_task = |id: &ToolCallId| {
            let tool = calls.get(*id).and_then(|call| call.tool.as_ref());
            tool.is_some_and(|tool| tool.sub_agent().is_some())
        };
        !self.abort_handles.is_empty() && self.abort_handles.keys().all(is_sub_task)
    }

    /// Waits for the first outcome of the calls in progress. Returns none if there is none.
    async fn next_outcome(&mut self) -> Result<Option<EffectOutcome>, EngineError> {
        let Self { inner, state, signals, calls, abort_handles, .. } = self;
        loop {
            let outcome = tokio::select! {
                biased;
                interrupted = interruption(inner, state, signals), if !calls.is_empty() => {
                    Err(interrupted)
                }
                outcome = calls.join_next_with_id() => match outcome {
                    Some(Ok((id, command))) => {
                        let call = abort_handles.iter().find(|(_, handle)| handle.id() == id);
                        // The outcome of an abandoned call does not count.
                        let Some(call) = call.map(|(call, _)| *call) else { continue };
                        abort_handles.remove(&call);
                        Ok(command?)
                    }
                    Some(Err(stopped)) if stopped.is_cancelled() => continue,
                    Some(Err(panic)) => {
                        let (task, panic) = (state.id(), panic.to_string());
                        return Err(EngineError::Panicked { task, panic });
                    }
                    None => return Ok(None),
                },
            };
            return Ok(Some(outcome));
        }
    }

    /// True if a ready node calls a tool whose server could not be reached.
    fn has_unreachable_tool_next(&self) -> bool {
        self.state.workflow_run().is_some_and(|walk| {
            let mut ready = walk.progress().ready(walk.plan());
            ready.extend(walk.next_compensation().filter(|_| walk.is_ending()));
            let ready = ready.iter().map(|node| &walk.plan().nodes()[*node].node);
            let mut kinds = ready.flat_map(WorkflowNode::with_inner).map(|node| &node.kind);
            kinds.any(|kind| match kind {
                WorkflowNodeKind::Tool { tool, .. } => {
                    // A cancel may have come before the tools were listed.
                    let is_known = || self.toolbox.find(tool.server(), tool.tool()).is_some();
                    self.toolbox.unavailable(tool.server()).is_some()
                        || walk.is_ending() && !is_known()
                }
                WorkflowNodeKind::Agent { .. }
                | WorkflowNodeKind::Condition { .. }
                | WorkflowNodeKind::Human { .. }
                | WorkflowNodeKind::Parallel { .. }
                | WorkflowNodeKind::Workflow { .. }
                | WorkflowNodeKind::Script { .. }
                | WorkflowNodeKind::Map { .. } => false,
            })
        })
    }

    /// Starts the ready nodes, unless the task is to be cancelled.
    async fn advance(&mut self) -> EffectOutcome {
        match self.signals.try_recv() {
            Ok(WorkerSignal::Cancel) => return Err(Interruption::Cancelled),
            Ok(WorkerSignal::Changed(sequence)) if sequence > self.state.sequence() => {
                // The next commit conflicts and catches up.
            }
            Ok(WorkerSignal::Changed(_)) | Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(Interruption::Abandoned),
        }
        // Servers may be reachable by now.
        if self.has_unreachable_tool_next()
            && let Some(interrupted) = self.list_tools().await
        {
            return Err(interrupted);
        }
        Ok(Command::AdvanceWorkflow(AdvanceWorkflow))
    }
}

//! A worker: takes one task from where it is to where no more can be done, one step at a time.
//!
//! A step decides and commits. What is to be done after it is begun at once: a call of the model,
//! or a wait for the next one, or any number of tool calls side by side. Each outcome comes back as
//! the command of the next step.

mod effects;
mod program;
mod remote;
mod twin;

pub(super) use effects::elapsed_ms;

use std::collections::HashMap;
use std::sync::Arc;

use polity_definition::WorkflowNodeKind;
use polity_model::event::Event;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_store::CommitError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::{AbortHandle, JoinSet};

use super::desk::Signal;
use super::load::{self, Loaded};
use super::session::sub_agent_tools;
use super::steer::is_stalled;
use super::{CONFLICTS_MAX, EngineError, Outcome, Pace, Shared};
use crate::budget::BudgetAllowance;
use crate::commands::{
    AdvanceWorkflow, CancelOrigin, CancelTask, ClaimTask, ResumeTask, StartTask,
};
use crate::decide::{Command, CommandRejection, Effect, SlotContext, decide};
use crate::driver::{PlaceTaken, Tool, Toolbox};
use crate::pinned::Assignee;
use crate::state::TaskState;

pub(super) struct Worker {
    shared: Arc<Shared>,
    assignee: Assignee,
    /// The conversation, as [`CallSite`](crate::driver::CallSite) names it.
    session: Arc<str>,
    state: TaskState,
    signals: mpsc::UnboundedReceiver<Signal>,
    /// The agent's tools, as their servers listed them last, and its sub-agents.
    toolbox: Arc<Toolbox>,
    /// The agent's sub-agents, as tools.
    sub_agents: Vec<Arc<Tool>>,
    /// What the task may spend.
    allowance: BudgetAllowance,
    /// The tool calls and sub-agents that are under way. Dropping them abandons them.
    tools: JoinSet<Result<Command, EngineError>>,
    /// How to stop what is under way for a call.
    at_work: HashMap<ToolCallId, AbortHandle>,
    /// The place of the program that does the task, if one does.
    place: HeldPlace,
}

/// The place of a program among those that may run at once.
#[derive(Default)]
struct HeldPlace {
    pool: Arc<str>,
    held: Option<PlaceTaken>,
    /// The task whose run this one shares.
    twin: Option<TaskId>,
    /// Whether a twin that has not begun is waited for no more.
    ignores_pending: bool,
}

/// Why a worker stopped waiting for an effect.
enum Interrupted {
    /// Someone in this process wants the task to end.
    Cancelled,
    /// Others have changed the task in a way that matters now.
    Changed,
    /// The runtime is gone.
    Abandoned,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        loaded: Loaded,
        signals: mpsc::UnboundedReceiver<Signal>,
        session: Option<Arc<str>>,
    ) -> Self {
        let Loaded { assignee, state } = loaded;
        let session = session.unwrap_or_else(|| assignee.name().as_str().into());
        let sub_agents = sub_agent_tools(&assignee);
        Self {
            shared,
            assignee,
            session,
            state,
            signals,
            toolbox: Arc::default(),
            sub_agents,
            allowance: BudgetAllowance::default(),
            tools: JoinSet::new(),
            at_work: HashMap::new(),
            place: HeldPlace::default(),
        }
    }

    pub(super) async fn run(mut self) -> Outcome {
        self.allowance = self.shared.open_allowance(&self.assignee, &self.state).await?;
        let mut outcome = self.work().await;
        // A person may have answered a sub-agent in the moment in which the task was paused for it,
        // and have found that someone was at work.
        while outcome.is_ok() && self.state.is_paused() && self.take_up_again().await? {
            // Those who looked after its sub-agents are asked again where it goes on.
            self.tools = JoinSet::new();
            outcome = self.work().await;
        }
        let id = self.state.id();
        let is_alone = match &self.assignee {
            Assignee::Agent(_) => self.sub_agents.is_empty(),
            Assignee::Workflow(flow) => !flow.has_parts(),
        };
        if outcome.is_ok() && !is_alone {
            // Nothing more is begun for a task that has ended.
            self.tools.shutdown().await;
            self.shared.end_parts_of(&self.state).await;
        }
        self.leave_place();
        if outcome.is_ok() {
            self.forget_program();
            self.end_remote().await;
        }
        // Where the work ended in an error, sub-agents may go on, and are still held to its budget.
        if outcome.is_ok() || is_alone {
            self.shared.ledger.close(id);
        }
        outcome
    }

    async fn work(&mut self) -> Outcome {
        let mut next = self.first_command().await?;
        loop {
            let effects = match self.step(&next).await {
                Ok(effects) => effects,
                // Someone else has ended it, or put it before a person: nothing is left to do.
                Err(EngineError::Rejected(
                    CommandRejection::Finished { .. } | CommandRejection::AwaitingHuman { .. },
                )) => break,
                Err(error) => return Err(error),
            };
            // What is still under way for a task that has ended, or waits for a person, is dropped
            // with the worker.
            if self.state.status() != TaskStatus::Running {
                break;
            }
            // A cancel that came in while the step was written lets nothing more begin.
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

    /// Whether the task, which is paused, has something to do, and is this process's own again.
    async fn take_up_again(&mut self) -> Result<bool, EngineError> {
        let id = self.state.id();
        let is_stalled = load::blocking(&self.shared.parts.store, move |store| {
            store.task_row(id)?.map_or(Ok(false), |row| is_stalled(store, &row))
        });
        if !is_stalled.await? {
            return Ok(false);
        }
        let claim = ClaimTask { instance: self.shared.parts.instance, owner_alive: false };
        match self.step(&Command::ClaimTask(claim)).await {
            Ok(_) => Ok(true),
            // Someone else was faster.
            Err(EngineError::TakenOver(_) | EngineError::Rejected(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn first_command(&mut self) -> Result<Command, EngineError> {
        self.prepare_program().await?;
        if self.state.status() == TaskStatus::Pending {
            // A workflow must know its tools before the first node, and a turn that is taken up from
            // another task, those of its calls.
            let acts = self.state.workflow_run().is_some() || !self.state.calls().all().is_empty();
            if acts && let Some(interrupted) = self.look_for_tools().await {
                return self.interrupted(interrupted).await;
            }
            return Ok(Command::StartTask(StartTask));
        }
        if (self.state.doing() == LoopState::Acting || self.state.is_paused())
            && let Some(interrupted) = self.look_for_tools().await
        {
            return self.interrupted(interrupted).await;
        }
        self.end_given_up().await?;
        Ok(Command::ResumeTask(ResumeTask))
    }

    async fn interrupted(&mut self, why: Interrupted) -> Result<Command, EngineError> {
        match why {
            Interrupted::Abandoned => Err(EngineError::Left(self.state.id())),
            Interrupted::Cancelled => Ok(self.cancel()),
            Interrupted::Changed => {
                self.catch_up().await?;
                Ok(self.cancel())
            }
        }
    }

    /// Decides, and makes what was decided durable. Where others were faster, it decides again on
    /// what they left.
    async fn step(&mut self, command: &Command) -> Result<Vec<Effect>, EngineError> {
        for _ in 0..CONFLICTS_MAX {
            let mut ctx =
                self.shared.decision_context(&self.toolbox, self.allowance.budget_status());
            let HeldPlace { pool, held, twin, ignores_pending: _ } = &self.place;
            ctx.slot = SlotContext {
                pool: Arc::clone(pool),
                is_held: held.is_some(),
                dedup_key: None,
                duplicate_of: *twin,
            };
            let decision = decide(&self.state, command, &mut ctx)?;
            let pace = self.pace();
            match self.shared.write_at(&mut self.state, &ctx, decision.events, pace).await {
                Ok(()) => return Ok(decision.effects),
                Err(EngineError::Commit(CommitError::Conflict { .. })) => {
                    self.catch_up().await?;
                }
                Err(EngineError::Commit(CommitError::Fenced { .. })) => {
                    return Err(EngineError::TakenOver(self.state.id()));
                }
                Err(error) => return Err(error),
            }
        }
        Err(EngineError::Contended(self.state.id()))
    }

    /// Whether anything else goes on in this process that a commit must not hold up.
    fn pace(&self) -> Pace {
        let is_alone =
            self.tools.is_empty() && self.place.held.is_none() && self.shared.desk.has_one_worker();
        if is_alone { Pace::Alone } else { Pace::Together }
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.shared.catch_up(&mut self.state).await?;
        match self.state.owner() {
            Some(owner) if owner == self.shared.parts.instance => Ok(()),
            // It belongs to no one while it waits for a person, and whoever put it there may have been
            // another worker of this process.
            None if self.state.status() == TaskStatus::AwaitingHuman => Ok(()),
            Some(_) | None => Err(EngineError::TakenOver(self.state.id())),
        }
    }

    /// Ends the task. The tools that are at work are abandoned first.
    fn cancel(&mut self) -> Command {
        self.tools.abort_all();
        self.tools = JoinSet::new();
        Command::CancelTask(CancelTask { by: CancelOrigin::Owner })
    }

    /// Begins what is to be done, and waits for the first outcome of all that is under way. With
    /// nothing under way, the work is over.
    async fn perform(
        &mut self,
        effects: Vec<Effect>,
    ) -> Result<Option<Result<Command, Interrupted>>, EngineError> {
        let mut advances = false;
        for effect in effects {
            match effect {
                Effect::CallModel => return Ok(Some(self.call_model().await)),
                Effect::WaitUntil(time) => return Ok(Some(self.wait_until(time).await)),
                Effect::WaitForSlot => return Ok(Some(self.wait_for_place().await?)),
                Effect::WaitForOriginal => return Ok(Some(self.wait_for_twin().await?)),
                Effect::RunCliAgent => return Ok(Some(self.run_program().await?)),
                Effect::SendMessage => return Ok(Some(self.send_message().await?)),
                Effect::FollowRemote => return Ok(Some(self.follow_remote().await)),
                Effect::RecoverRun => return Ok(Some(self.look_for_run().await?)),
                Effect::CallTool { call_id, timeout } => self.call_tool(call_id, timeout),
                Effect::OpenSession { call_id, deadline } => self.open_session(call_id, deadline),
                Effect::WatchSession { call_id } => self.watch_session(call_id),
                Effect::WaitForTool { call_id, until } => self.wait_for_tool(call_id, until),
                Effect::AbandonCall { call_id } => self.abandon(call_id).await?,
                Effect::AdvanceWorkflow => advances = true,
            }
        }
        if advances {
            return Ok(Some(self.advance().await));
        }
        let Self { shared, state, signals, tools, at_work, .. } = self;
        loop {
            let outcome = tokio::select! {
                biased;
                interrupted = interruption(shared, state, signals), if !tools.is_empty() => {
                    Err(interrupted)
                }
                outcome = tools.join_next_with_id() => match outcome {
                    Some(Ok((id, command))) => {
                        let call = at_work.iter().find(|(_, work)| work.id() == id);
                        // What was given up has nothing to tell, even if it has just ended.
                        let Some(call) = call.map(|(call, _)| *call) else { continue };
                        at_work.remove(&call);
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

    /// Whether a node is ready that calls a tool whose server could not be reached.
    fn is_lost_tool_next(&self) -> bool {
        self.state.workflow_run().is_some_and(|walk| {
            let ready = walk.progress().ready(walk.plan());
            let mut kinds = ready.iter().map(|node| &walk.plan().nodes()[*node].node.kind);
            kinds.any(|kind| match kind {
                WorkflowNodeKind::Tool { tool, .. } => {
                    self.toolbox.unavailable(tool.server()).is_some()
                }
                WorkflowNodeKind::Agent { .. }
                | WorkflowNodeKind::Condition { .. }
                | WorkflowNodeKind::Human { .. }
                | WorkflowNodeKind::Parallel { .. }
                | WorkflowNodeKind::Workflow { .. } => false,
            })
        })
    }

    /// Begins the nodes that are ready, unless someone wants the task to end.
    async fn advance(&mut self) -> Result<Command, Interrupted> {
        match self.signals.try_recv() {
            Ok(Signal::Cancel) => return Err(Interrupted::Cancelled),
            Ok(Signal::Changed(sequence)) if sequence > self.state.sequence() => {
                // What others wrote is met by the next commit.
            }
            Ok(Signal::Changed(_)) | Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(Interrupted::Abandoned),
        }
        // Servers that could not be reached before may be there by now.
        if self.is_lost_tool_next()
            && let Some(interrupted) = self.look_for_tools().await
        {
            return Err(interrupted);
        }
        Ok(Command::AdvanceWorkflow(AdvanceWorkflow))
    }
}

/// Returns when the effect that is being waited for must be given up, and not before.
async fn interruption(
    shared: &Shared,
    state: &TaskState,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
) -> Interrupted {
    loop {
        match signals.recv().await {
            None => return Interrupted::Abandoned,
            Some(Signal::Cancel) => return Interrupted::Cancelled,
            Some(Signal::Changed(sequence)) if sequence <= state.sequence() => {}
            Some(Signal::Changed(_)) => {
                match load::events_after(&shared.parts.store, state).await {
                    Ok(news) if news.iter().any(|recorded| matters_now(&recorded.event)) => {
                        return Interrupted::Changed;
                    }
                    Ok(_) => {}
                    // The next commit meets whatever was written, and what is under way goes on.
                    Err(error) => tracing::warn!(%error, "a task's news could not be read"),
                }
            }
        }
    }
}

/// Whether an effect must be given up because of what another process wrote. Anything else is taken
/// in when the effect is over.
fn matters_now(event: &Event) -> bool {
    match event {
        Event::CancelRequested | Event::TaskCancelled | Event::TaskClaimed { .. } => true,
        Event::TaskCreated(_)
        | Event::TaskReleased
        | Event::TaskStarted
        | Event::TaskPaused
        | Event::TaskResumed
        | Event::RunShared { .. }
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::ExecutionChanged { .. }
        | Event::ModelCalled { .. }
        | Event::ModelAnswered { .. }
        | Event::ModelFailed { .. }
        | Event::HistoryShortened { .. }
        | Event::ToolChanged { .. }
        | Event::NodeChanged { .. }
        | Event::StateSet { .. }
        | Event::ReviewOpened { .. }
        | Event::ReviewAnswered { .. }
        | Event::MessageAdded { .. }
        | Event::CheckpointTaken { .. }
        | Event::AgentEnabled
        | Event::AgentDisabled { .. } => false,
    }
}

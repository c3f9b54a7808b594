//! The pure core: maps a task's state and a command to events and effects.
//!
//! [`decide`] is deterministic. Time and randomness come in through [`DecisionContext`], so equal
//! inputs always lead to the same [`Decision`].

pub(crate) mod answer_node;
pub(crate) mod answer_question;
pub(crate) mod answer_run;
pub(crate) mod backoff;
pub(crate) mod call_batch;
pub(crate) mod cli_run;
pub(crate) mod continuation;
pub(crate) mod doubted_run;
pub(crate) mod duplicate_tasks;
#[cfg(test)]
#[path = "decide/fixtures_tests.rs"]
pub(crate) mod fixtures;
pub(crate) mod outcomes;
pub(crate) mod preconditions;
mod rejection;
pub(crate) mod remote_task;
pub(crate) mod retry_point;

pub use rejection::CommandRejection;
pub use remote_task::REMOTE_RETRIES_MAX;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polity_definition::{AgentKind, Limits, LlmAgent};
use polity_model::digest::Digest;
use polity_model::event::Event;
use polity_model::ids::{TaskId, ToolCallId};

use crate::agent_toggles::AgentToggles;
use crate::budget::BudgetStatus;
use crate::commands::{
    AdvanceWorkflow, AnswerReview, BeginRun, CancelTask, ClaimTask, ExpireReview, RecordDuplicate,
    RecordModelFailure, RecordModelReply, RecordProcess, RecordRecoveredRun,
    RecordRemoteAcceptance, RecordRemoteCancel, RecordRemoteOutcome, RecordRun, RecordSessionWait,
    RecordToolFailure, RecordToolReply, ReleaseTask, ReopenSession, ResumeTask, RetryExecution,
    RetryTool, StartTask, TrustTask,
};
use crate::driver::Toolbox;
use crate::entropy::Entropy;
use crate::state::TaskState;
use preconditions::expect_trust;

/// The inputs of a decision besides state and command: time, randomness, tools and limits.
#[derive(Debug, Clone)]
pub struct DecisionContext {
    /// The current time.
    pub now: Timestamp,
    /// The source of ids and jitter for this decision.
    pub entropy: Entropy,
    /// Tools and sub-agents available to the agent, as last listed by their servers.
    pub toolbox: Arc<Toolbox>,
    /// Configured limits.
    pub limits: Limits,
    /// The remaining budget of the task and its ancestors.
    pub budget: BudgetStatus,
    /// The concurrency slot of the task's CLI agent, if a CLI agent performs the task.
    pub slot: SlotContext,
    /// Agents enabled or disabled by a person, whatever their files say.
    pub agent_toggles: Arc<AgentToggles>,
}

/// The concurrency slot and the deduplication of a CLI agent's task.
#[derive(Debug, Clone, Default)]
pub struct SlotContext {
    /// The slot pool.
    pub pool: Arc<str>,
    /// True if the task holds a slot of the pool.
    pub is_held: bool,
    /// The deduplication key of a new task, if its agent deduplicates requests.
    pub dedup_key: Option<Digest>,
    /// The task whose run this one shares, if it is a duplicate.
    pub duplicate_of: Option<TaskId>,
}

/// A command to a task. Each has its own file under `commands/`.
#[derive(Debug, Clone)]
pub enum Command {
    /// Takes ownership of an orphaned task.
    ClaimTask(ClaimTask),
    /// Gives up ownership without ending the task.
    ReleaseTask(ReleaseTask),
    /// Starts a pending task.
    StartTask(StartTask),
    /// Continues a task after its former owner died.
    ResumeTask(ResumeTask),
    /// The model has replied.
    RecordModelReply(RecordModelReply),
    /// The model call has failed.
    RecordModelFailure(RecordModelFailure),
    /// The backoff of an execution is over.
    RetryExecution(RetryExecution),
    /// The wait for a concurrency slot is over.
    BeginRun(BeginRun),
    /// The CLI agent's process is running.
    RecordProcess(RecordProcess),
    /// The CLI agent's run has ended.
    RecordRun(RecordRun),
    /// The outcome of a run whose owner died, as far as it can be recovered.
    RecordRecoveredRun(RecordRecoveredRun),
    /// A remote server has accepted the work.
    RecordRemoteAcceptance(RecordRemoteAcceptance),
    /// A remote agent has finished, asked a question, failed or timed out.
    RecordRemoteOutcome(RecordRemoteOutcome),
    /// A remote server was asked to cancel its task.
    RecordRemoteCancel(RecordRemoteCancel),
    /// The original of a duplicate task has ended, or is no longer waited for.
    RecordDuplicate(RecordDuplicate),
    /// A tool has replied.
    RecordToolReply(RecordToolReply),
    /// A tool call has failed.
    RecordToolFailure(RecordToolFailure),
    /// The backoff of a tool call is over.
    RetryTool(RetryTool),
    /// A sub-agent waits for a person.
    RecordSessionWait(RecordSessionWait),
    /// A sub-agent that waited for a person continues.
    ReopenSession(ReopenSession),
    /// Starts the ready nodes of a workflow.
    AdvanceWorkflow(AdvanceWorkflow),
    /// A person has answered a review.
    AnswerReview(AnswerReview),
    /// The deadline of a review has passed.
    ExpireReview(ExpireReview),
    /// Cancels the task.
    CancelTask(CancelTask),
    /// A person allows an imported task to run.
    TrustTask(TrustTask),
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    /// The events to commit. Empty if the command changes nothing.
    pub events: Vec<Event>,
    /// The effects to perform concurrently once the events are durable.
    pub effects: Vec<Effect>,
}

/// A decision, or the reason for refusing the command.
pub type DecisionResult = Result<Decision, CommandRejection>;

/// An action for the runtime to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Sends the conversation to the model.
    CallModel,
    /// Waits until this time, then retries the model call, run or message.
    WaitUntil(Timestamp),
    /// Waits for a slot of the agent's slot pool.
    WaitForSlot,
    /// Waits for the result of the task that this one duplicates.
    WaitForOriginal,
    /// Runs the CLI agent.
    RunCliAgent,
    /// Recovers the outcome of a run whose owner died.
    RecoverRun,
    /// Sends the newest message to the remote agent.
    SendMessage,
    /// Follows the remote task until it ends.
    FollowRemote,
    /// Calls a tool.
    CallTool {
        /// The call.
        call_id: ToolCallId,
        /// The time limit of the call.
        timeout: Duration,
    },
    /// Opens a sub-agent's session for a call.
    OpenSession {
        /// The call.
        call_id: ToolCallId,
        /// The deadline of the session, if any.
        deadline: Option<Timestamp>,
    },
    /// Stops a call whose answer is no longer needed.
    AbandonCall {
        /// The call.
        call_id: ToolCallId,
    },
    /// Starts the ready nodes of the workflow.
    AdvanceWorkflow,
    /// Waits until a sub-agent no longer waits for a person.
    WatchSession {
        /// The call that the sub-agent answers.
        call_id: ToolCallId,
    },
    /// Waits until this time, then repeats a tool call.
    WaitForTool {
        /// The call.
        call_id: ToolCallId,
        /// The time of the next attempt.
        until: Timestamp,
    },
}

impl Effect {
    /// Returns the call that this effect starts or waits for, if any.
    pub(crate) fn begins(&self) -> Option<ToolCallId> {
        match self {
            Self::CallTool { call_id, .. }
            | Self::OpenSession { call_id, .. }
            | Self::WatchSession { call_id }
            | Self::WaitForTool { call_id, .. } => Some(*call_id),
            _ => None,
        }
    }
}

/// Decides the events and effects that follow from a command.
pub fn decide(state: &TaskState, command: &Command, ctx: &mut DecisionContext) -> DecisionResult {
    if command.needs_trust() {
        expect_trust(state)?;
    }
    match command {
        Command::ClaimTask(command) => command.decide(state),
        Command::ReleaseTask(command) => command.decide(state),
        Command::StartTask(command) => command.decide(state, ctx),
        Command::ResumeTask(command) => command.decide(state, ctx),
        Command::RecordModelReply(command) => command.decide(state, ctx),
        Command::RecordModelFailure(command) => command.decide(state, ctx),
        Command::RetryExecution(command) => command.decide(state, ctx),
        Command::BeginRun(command) => command.decide(state, ctx),
        Command::RecordProcess(command) => command.decide(state),
        Command::RecordRun(command) => command.decide(state, ctx),
        Command::RecordRecoveredRun(command) => command.decide(state, ctx),
        Command::RecordRemoteAcceptance(command) => command.decide(state),
        Command::RecordRemoteOutcome(command) => command.decide(state, ctx),
        Command::RecordRemoteCancel(command) => command.decide(state),
        Command::RecordDuplicate(command) => command.decide(state, ctx),
        Command::RecordToolReply(command) => command.decide(state, ctx),
        Command::RecordToolFailure(command) => command.decide(state, ctx),
        Command::RetryTool(command) => command.decide(state, ctx),
        Command::RecordSessionWait(command) => command.decide(state, ctx),
        Command::ReopenSession(command) => command.decide(state, ctx),
        Command::AdvanceWorkflow(command) => command.decide(state, ctx),
        Command::AnswerReview(command) => command.decide(state, ctx),
        Command::ExpireReview(command) => command.decide(state, ctx),
        Command::CancelTask(command) => command.decide(state),
        Command::TrustTask(command) => Ok(command.decide(state)),
    }
}

impl Command {
    /// False for the commands that an imported task takes before a person trusts it: they perform
    /// nothing of it.
    fn needs_trust(&self) -> bool {
        match self {
            Self::ReleaseTask(_) | Self::CancelTask(_) | Self::TrustTask(_) => false,
            Self::ClaimTask(_)
            | Self::StartTask(_)
            | Self::ResumeTask(_)
            | Self::RecordModelReply(_)
            | Self::RecordModelFailure(_)
            | Self::RetryExecution(_)
            | Self::BeginRun(_)
            | Self::RecordProcess(_)
            | Self::RecordRun(_)
            | Self::RecordRecoveredRun(_)
            | Self::RecordRemoteAcceptance(_)
            | Self::RecordRemoteOutcome(_)
            | Self::RecordRemoteCancel(_)
            | Self::RecordDuplicate(_)
            | Self::RecordToolReply(_)
            | Self::RecordToolFailure(_)
            | Self::RetryTool(_)
            | Self::RecordSessionWait(_)
            | Self::ReopenSession(_)
            | Self::AdvanceWorkflow(_)
            | Self::AnswerReview(_)
            | Self::ExpireReview(_) => true,
        }
    }
}

/// Returns the model configuration of the task's agent.
pub(crate) fn llm(state: &TaskState) -> Result<&LlmAgent, CommandRejection> {
    let Some(context) = state.context() else {
        return Err(CommandRejection::NoAgent { task: state.id() });
    };
    let agent = &*context.agent;
    match &agent.kind {
        AgentKind::Llm(llm) => Ok(llm),
        AgentKind::Cli(_) | AgentKind::Remote(_) => Err(CommandRejection::KindNotRunnable {
            agent: agent.name.clone(),
            kind: agent.kind.label(),
        }),
    }
}

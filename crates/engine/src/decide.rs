//! The decision: from a task's state and a command, the events and effects that follow.
//!
//! Pure and deterministic. Time and randomness come in with the command, so the same state, command
//! and [`DecisionContext`] always lead to the same [`Decision`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polity_definition::{AgentKind, Limits, LlmAgent};
use polity_model::digest::Digest;
use polity_model::event::Event;
use polity_model::ids::{CheckpointId, InstanceId, TaskId, ToolCallId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::state::InvalidUpdate;

use crate::agent_toggles::AgentToggles;
use crate::budget::BudgetStatus;
use crate::commands::{
    Advance, AnswerReview, BeginRun, CancelTask, ClaimTask, ExpireReview, RecordAccepted,
    RecordAnswer, RecordFailure, RecordFoundRun, RecordProcess, RecordRemote, RecordRemoteEnd,
    RecordRun, RecordSessionWait, RecordToolFailure, RecordToolReply, RecordTwin, ReleaseTask,
    ReopenSession, ResumeTask, RetryExecution, RetryTool, StartTask,
};
use crate::driver::Toolbox;
use crate::entropy::Entropy;
use crate::state::TaskState;

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

/// What is asked of a task. Each has a file of its own under `commands/`.
#[derive(Debug, Clone)]
pub enum Command {
    /// Make the task one's own.
    ClaimTask(ClaimTask),
    /// Let go of it without having ended it.
    ReleaseTask(ReleaseTask),
    /// Begin the work.
    StartTask(StartTask),
    /// Go on after the former owner is gone.
    ResumeTask(ResumeTask),
    /// The model has answered.
    RecordAnswer(RecordAnswer),
    /// The model has not answered.
    RecordFailure(RecordFailure),
    /// The time of the model's next try has come.
    RetryExecution(RetryExecution),
    /// The wait for a place among those that may run at once is over.
    BeginRun(BeginRun),
    /// The program's process runs.
    RecordProcess(RecordProcess),
    /// The program is over.
    RecordRun(RecordRun),
    /// What is known of a run whose owner is gone.
    RecordFoundRun(RecordFoundRun),
    /// A server has taken up the work.
    RecordAccepted(RecordAccepted),
    /// A server is done with the work, or was not reached.
    RecordRemote(RecordRemote),
    /// A server was asked to end what no one waits for any more.
    RecordRemoteEnd(RecordRemoteEnd),
    /// A task that was given the same is over, or is not waited for any more.
    RecordTwin(RecordTwin),
    /// A tool has answered.
    RecordToolReply(RecordToolReply),
    /// A tool has not answered.
    RecordToolFailure(RecordToolFailure),
    /// The time of a tool's next attempt has come.
    RetryTool(RetryTool),
    /// A sub-agent waits for a person.
    RecordSessionWait(RecordSessionWait),
    /// A sub-agent that waited for a person goes on.
    ReopenSession(ReopenSession),
    /// The nodes of a workflow that are ready begin.
    Advance(Advance),
    /// A person has decided.
    AnswerReview(AnswerReview),
    /// No person has decided in time.
    ExpireReview(ExpireReview),
    /// End the task.
    CancelTask(CancelTask),
}

/// What follows from a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    /// What happened. Empty where the command changes nothing.
    pub events: Vec<Event>,
    /// What is to be done once the events are durable, side by side.
    pub effects: Vec<Effect>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Send the conversation to the model.
    CallModel,
    /// Come back at this time, and call the model again, or run the program again.
    WaitUntil(Timestamp),
    /// Wait for a place among those that may run at once.
    WaitForPlace,
    /// Wait for what comes of the task whose run is shared.
    WaitForTwin,
    /// Run the program.
    RunProgram,
    /// Look for what became of a run whose owner is gone.
    LookForRun,
    /// Send the newest message to the agent on another server.
    SendMessage,
    /// Follow the task on another server to its end.
    FollowRemote,
    /// Make one of the calls of the turn.
    CallTool {
        /// The call.
        call_id: ToolCallId,
        /// How long it may take.
        timeout: Duration,
    },
    /// Have a sub-agent do what one of the calls of the turn asks for.
    OpenSession {
        /// The call.
        call_id: ToolCallId,
        /// When it must have ended, if it must.
        deadline: Option<Timestamp>,
    },
    /// Give up a call whose answer is not needed any more.
    Abandon {
        /// The call.
        call_id: ToolCallId,
    },
    /// Begin the nodes that are ready.
    Advance,
    /// Come back when a sub-agent no longer waits for a person.
    WatchSession {
        /// The call that it works for.
        call_id: ToolCallId,
    },
    /// Come back at this time, and make one of the calls of the turn again.
    WaitForTool {
        /// The call.
        call_id: ToolCallId,
        /// When.
        until: Timestamp,
    },
}

impl Effect {
    /// The call that it has to do with, if it begins or awaits one.
    pub(crate) fn begins(&self) -> Option<ToolCallId> {
        match self {
            Self::CallTool { call_id, .. }
            | Self::OpenSession { call_id, .. }
            | Self::WatchSession { call_id }
            | Self::WaitForTool { call_id, .. } => Some(*call_id),
            Self::CallModel
            | Self::WaitUntil(_)
            | Self::WaitForPlace
            | Self::WaitForTwin
            | Self::RunProgram
            | Self::LookForRun
            | Self::SendMessage
            | Self::FollowRemote
            | Self::Abandon { .. }
            | Self::Advance => None,
        }
    }
}

/// Why a command is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// There is nothing to do without an input.
    #[error("the input is empty")]
    EmptyInput,
    /// The input is larger than the setting allows.
    #[error("the input has {found} bytes; limits.input_bytes allows {limit}")]
    InputTooLarge {
        /// What it has.
        found: u64,
        /// What it may have.
        limit: u64,
    },
    /// Work could be handed on further than the setting allows.
    #[error(
        "work could be handed on over {} steps ({}); limits.sub_agent_depth allows {limit}",
        chain.len().saturating_sub(1),
        spelled(chain)
    )]
    TooDeep {
        /// The agents on the longest way.
        chain: Vec<Name>,
        /// How many steps there may be.
        limit: u32,
    },
    /// The agent takes no work.
    #[error("agent \"{agent}\" is disabled{}", because(reason.as_deref()))]
    Disabled {
        /// The agent.
        agent: Name,
        /// Why, where someone has said so.
        reason: Option<String>,
    },
    /// No driver in this program performs that kind of agent.
    #[error("agent \"{agent}\" is of kind {kind}, which this version cannot run yet")]
    KindNotRunnable {
        /// The agent.
        agent: Name,
        /// Its kind.
        kind: &'static str,
    },
    /// A workflow does the task.
    #[error("task {task} is done by a workflow, and has no agent of its own")]
    NoAgent {
        /// The task.
        task: TaskId,
    },
    /// The State does not allow the change.
    #[error(transparent)]
    InvalidUpdate(#[from] InvalidUpdate),
    /// The State can be changed with the answer only where a workflow asks.
    #[error("task {task} {asks}; the State of its agent cannot be changed with the answer")]
    NoStateThere {
        /// The task.
        task: TaskId,
        /// What the task asks.
        asks: &'static str,
    },
    /// No one answered in time.
    #[error("task {task} waited for an answer until {deadline}: it is too late")]
    TooLate {
        /// The task.
        task: TaskId,
        /// Until when.
        deadline: Timestamp,
    },
    /// The deadline has not passed.
    #[error("task {task} waits for an answer until {deadline}")]
    TooEarly {
        /// The task.
        task: TaskId,
        /// Until when.
        deadline: Timestamp,
    },
    /// The task has ended.
    #[error("task {task} is already {status}")]
    Finished {
        /// The task.
        task: TaskId,
        /// How it ended.
        status: TaskStatus,
    },
    /// The task waits for a person.
    #[error("task {task} is waiting for a person's decision")]
    AwaitingHuman {
        /// The task.
        task: TaskId,
    },
    /// Another process is working on it.
    #[error("task {task} belongs to another process that is alive")]
    OwnerAlive {
        /// The task.
        task: TaskId,
        /// The process.
        owner: InstanceId,
    },
    /// No decision is waited for.
    #[error("task {task} waits for no decision: it is {status}")]
    NothingToDecide {
        /// The task.
        task: TaskId,
        /// Where it is in its life.
        status: TaskStatus,
    },
    /// The task waits for another decision by now than the one that was answered.
    #[error("task {task} has been answered, and asks something else by now: {question}")]
    AnotherQuestion {
        /// The task.
        task: TaskId,
        /// What it asks.
        question: String,
    },
    /// The task has never waited at that checkpoint.
    #[error("task {task} has no checkpoint {checkpoint}")]
    NoSuchCheckpoint {
        /// The task.
        task: TaskId,
        /// What was answered.
        checkpoint: CheckpointId,
    },
    /// A call in doubt can be made again or skipped, and a person must say which.
    #[error("a call of task {task} is in doubt: say whether it is to be made again")]
    DoubtNeedsChoice {
        /// The task.
        task: TaskId,
    },
    /// An agent on another server asks something, and a mere yes says nothing to it.
    #[error("task {task} asks something for its agent on another server: say what it is told")]
    AnswerNeedsText {
        /// The task.
        task: TaskId,
    },
    /// That is no answer to what is asked.
    #[error("task {task} {asks}; that cannot be answered with {verdict}")]
    WrongVerdict {
        /// The task.
        task: TaskId,
        /// What the task asks.
        asks: &'static str,
        /// What was answered.
        verdict: &'static str,
    },
    /// The tool does not take these arguments.
    #[error("{tool} does not take these arguments: {problem}")]
    Misfit {
        /// The tool.
        tool: String,
        /// What is wrong with them.
        problem: String,
    },
    /// The task is not at the point where this command belongs.
    #[error("task {task} is {status} ({doing}): {command} has no place there")]
    OutOfPlace {
        /// The task.
        task: TaskId,
        /// Where it is in its life.
        status: TaskStatus,
        /// What its loop is doing.
        doing: LoopState,
        /// The command.
        command: &'static str,
    },
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn spelled(chain: &[Name]) -> String {
    chain.iter().map(Name::as_str).collect::<Vec<_>>().join(" -> ")
}

/// Decides what follows from a command.
pub fn decide(
    state: &TaskState,
    command: &Command,
    ctx: &mut DecisionContext,
) -> Result<Decision, Rejection> {
    match command {
        Command::ClaimTask(command) => command.decide(state),
        Command::ReleaseTask(command) => command.decide(state),
        Command::StartTask(command) => command.decide(state, ctx),
        Command::ResumeTask(command) => command.decide(state, ctx),
        Command::RecordAnswer(command) => command.decide(state, ctx),
        Command::RecordFailure(command) => command.decide(state, ctx),
        Command::RetryExecution(command) => command.decide(state, ctx),
        Command::BeginRun(command) => command.decide(state, ctx),
        Command::RecordProcess(command) => command.decide(state),
        Command::RecordRun(command) => command.decide(state, ctx),
        Command::RecordFoundRun(command) => command.decide(state, ctx),
        Command::RecordAccepted(command) => command.decide(state),
        Command::RecordRemote(command) => command.decide(state, ctx),
        Command::RecordRemoteEnd(command) => command.decide(state),
        Command::RecordTwin(command) => command.decide(state, ctx),
        Command::RecordToolReply(command) => command.decide(state, ctx),
        Command::RecordToolFailure(command) => command.decide(state, ctx),
        Command::RetryTool(command) => command.decide(state, ctx),
        Command::RecordSessionWait(command) => command.decide(state, ctx),
        Command::ReopenSession(command) => command.decide(state, ctx),
        Command::Advance(command) => command.decide(state, ctx),
        Command::AnswerReview(command) => command.decide(state, ctx),
        Command::ExpireReview(command) => command.decide(state, ctx),
        Command::CancelTask(command) => command.decide(state),
    }
}

/// The model of the task's agent.
pub(crate) fn llm(state: &TaskState) -> Result<&LlmAgent, Rejection> {
    let Some(context) = state.context() else {
        return Err(Rejection::NoAgent { task: state.id() });
    };
    let agent = &*context.agent;
    match &agent.kind {
        AgentKind::Llm(llm) => Ok(llm),
        AgentKind::Cli(_) | AgentKind::Remote(_) => {
            Err(Rejection::KindNotRunnable { agent: agent.name.clone(), kind: agent.kind.label() })
        }
    }
}

//! Events: what is written to the journal. Everything else is derived from them.
//!
//! Names are in the past tense. Once released, an event's JSON form is read for ever: fields may
//! be added with a default, never renamed or given another meaning.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::digest::Digest;
use crate::failure::{AttemptFailure, ErrorCode};
use crate::ids::{CheckpointId, ExecutionId, InstanceId, SessionId, TaskId, ToolCallId};
use crate::message::{Message, ToolCall};
use crate::name::Name;
use crate::remote::RemoteTask;
use crate::review::ReviewAction;
use crate::review::{ReviewSubject, ReviewVerdict};
use crate::run::RunReport;
use crate::state::StateUpdates;
use crate::tool::ToolName;
use crate::usage::Usage;

/// What a list of events belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamId {
    /// A task's.
    Task(TaskId),
    /// A session's.
    Session(SessionId),
    /// A schedule's.
    Schedule(Name),
    /// An agent's: whether it is enabled.
    Agent(Name),
}

/// Where an event stands among all events, in commit order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct JournalPosition(pub u64);

impl JournalPosition {
    /// The position `count` events later.
    pub fn plus(self, count: usize) -> Self {
        Self(self.0 + count as u64)
    }
}

/// Where an event stands in its stream: 1, 2, 3 without gaps; 0 is an empty stream.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct StreamSequence(pub u64);

impl StreamSequence {
    /// The sequence `count` events later.
    pub fn plus(self, count: usize) -> Self {
        Self(self.0 + count as u64)
    }
}

/// How often a task has changed hands. A commit in the name of an older owner is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct OwnerEpoch(pub u64);

impl OwnerEpoch {
    /// The epoch of the next owner.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// An event with its place in the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Its place among all events.
    pub position: JournalPosition,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its place in that stream.
    pub sequence: StreamSequence,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Someone gave work to an agent. Counts as the first message of the conversation.
    TaskCreated(TaskCreated),
    /// A process took the task as its own.
    TaskClaimed {
        /// The process.
        instance: InstanceId,
        /// How often the task has changed hands, this time included.
        epoch: OwnerEpoch,
    },
    /// The owner let go of the task without having ended it: anyone may go on with it.
    TaskReleased,
    /// The task's turn came.
    TaskStarted,
    /// Sub-agents of the task wait for a person, and nothing else is under way. The task belongs to
    /// no process while it waits with them.
    TaskPaused,
    /// A new owner goes on with a task whose former owner is gone, or that was paused.
    TaskResumed,
    /// The task's program is not run: another task was given the same, and what comes of that counts.
    RunShared {
        /// The other task.
        with: TaskId,
    },
    /// Someone other than the owner asked for the task to end.
    CancelRequested,
    /// The task is done.
    TaskCompleted {
        /// Where the result is.
        result: ResultRef,
    },
    /// The task failed.
    TaskFailed {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
        /// Where what there is of a result is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial_result: Option<ResultRef>,
    },
    /// The task ended because someone asked for it.
    TaskCancelled,

    /// An execution moved on.
    ExecutionChanged {
        /// The execution.
        execution_id: ExecutionId,
        /// What happened to it.
        change: ExecutionChange,
    },

    /// A request went to the model.
    ModelCalled {
        /// Which turn of the loop this is, from 1.
        iteration: u32,
    },
    /// The model answered.
    ModelAnswered {
        /// What it said.
        message: Message,
        /// What the call used.
        usage: Usage,
        /// How long the call took.
        duration_ms: u64,
        /// Whether the model stopped because it may not say more, and not because it was done.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_cut: bool,
        /// What the driver wants to be told again in later calls of the task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<u32>,
    },
    /// The call to the model failed.
    ModelFailed {
        /// Why.
        failure: AttemptFailure,
        /// Whether the agent's tools could not be listed, so that the model was not even called.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_tools: bool,
        /// How long the call took.
        duration_ms: u64,
        /// What the driver wants to be told again in later calls of the task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<u32>,
    },
    /// The conversation was longer than the model can read: from now on it is sent without its
    /// middle. Nothing of it is lost.
    HistoryShortened {
        /// The first message that is still sent, besides the one that opened the conversation.
        kept_from: u32,
    },

    /// A tool call moved on.
    ToolChanged {
        /// The call.
        call_id: ToolCallId,
        /// What happened to it.
        change: ToolChange,
    },

    /// A node of the workflow moved on.
    NodeChanged {
        /// The node.
        node: Name,
        /// What happened to it.
        change: NodeChange,
    },

    /// The task waits for a person's decision. It belongs to no process while it waits.
    ReviewOpened {
        /// The checkpoint at which it waits.
        checkpoint_id: CheckpointId,
        /// What the decision is about.
        subject: ReviewSubject,
        /// What is asked, for people.
        question: String,
        /// Until when the person has time; for ever if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// What is decided when the deadline passes; the task fails if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default_action: Option<ReviewAction>,
    },
    /// A person has decided.
    ReviewAnswered {
        /// What was decided.
        verdict: ReviewVerdict,
        /// What the person said about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Who decided.
        by: String,
        /// What the person changed in the State: the new value for each path.
        #[serde(default, skip_serializing_if = "StateUpdates::is_empty")]
        state_updates: StateUpdates,
    },
    /// Someone changed the State from outside.
    StateSet {
        /// The new value for each path.
        updates: StateUpdates,
    },

    /// A message that no model call brought was added to the conversation.
    MessageAdded {
        /// The message.
        message: Message,
    },
    /// The State was marked as a point to return to.
    CheckpointTaken {
        /// The checkpoint.
        checkpoint_id: CheckpointId,
        /// Counts the task's checkpoints from 0.
        sequence: u32,
        /// The node, or the agent's name.
        node: String,
        /// Whether the task waits there for a person.
        awaiting_human: bool,
        /// How many messages the State has, where calls of the turn still wait for their answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_count: Option<u32>,
    },

    /// An agent takes work from now on, whatever its file says.
    AgentEnabled,
    /// An agent takes no work from now on, whatever its file says.
    AgentDisabled {
        /// Why, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// What happened to an execution; each is one transition of its state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum ExecutionChange {
    /// It waits for a place among those that may run at once.
    Queue {
        /// The agent that will run.
        agent: Name,
        /// How many retries it has.
        max_retries: u32,
        /// The pool of which it takes up a place.
        pool: String,
        /// How long one run may take.
        timeout_seconds: u64,
    },
    /// It left idle and gets what it needs.
    Start {
        /// The agent that runs.
        agent: Name,
        /// How many retries it has.
        max_retries: u32,
    },
    /// Its work began.
    Run {
        /// The process, where it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process_id: Option<u32>,
        /// The task on another server, where that has taken up the work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<RemoteTask>,
    },
    /// The server that does the work was asked to end it, since no one waits for it any more.
    EndRemote {
        /// The task there.
        task: RemoteTask,
        /// Why it could not be asked, or would not; none if it has agreed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<String>,
    },
    /// What one run of a program, or one message to an agent on another server, came to.
    Report {
        /// What it came to.
        report: Box<RunReport>,
        /// What the program or the server says was used of a model.
        usage: Usage,
    },
    /// Its work succeeded.
    Complete,
    /// Its start or its work failed.
    Fail {
        /// Why.
        failure: AttemptFailure,
        /// When it will be tried again, if it will.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// It is tried again.
    Retry,
    /// It took longer than it may.
    TimeOut,
    /// It ended because someone asked for it.
    Cancel,
    /// What is left of it is being put in order.
    CleanUp,
    /// All is in order; it is over.
    Finish,
}

impl ExecutionChange {
    /// Its work began, and no process with it.
    pub const RUN: Self = Self::Run { process_id: None, remote: None };
}

/// What happened to a tool call; each is one transition of its state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum ToolChange {
    /// It waits for a person's approval.
    Hold {
        /// The tool that would be called.
        tool: ToolName,
    },
    /// It is being made. Written before that, so that a crash cannot hide it.
    Call {
        /// The tool, which may be another than the one that the model named.
        tool: ToolName,
        /// The arguments, where they are not those that the model gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Map<String, Value>>,
        /// Whether the call may be made again without harm.
        repeatable: bool,
    },
    /// An attempt failed, and another follows.
    Fail {
        /// Why.
        failure: AttemptFailure,
        /// How long the attempt took.
        duration_ms: u64,
        /// When the next attempt is made.
        retry_at: Timestamp,
    },
    /// The sub-agent that was called waits for a person.
    Wait,
    /// It may not be repeated, and was being made when the process ended.
    Doubt,
    /// It has its answer, which counts as a message of the conversation.
    Answer {
        /// The place of the answer in the conversation: calls that were made at once are answered
        /// in the order in which they were asked for. None where it is the next, as for a workflow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ordinal: Option<u32>,
        /// What the model reads.
        content: String,
        /// The result as JSON, where that is not what the model reads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<Value>,
        /// Whether the answer says what went wrong.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        /// How long the last attempt took; 0 where none was made.
        duration_ms: u64,
    },
}

/// What happened to a node of a workflow; each is a transition of its state machine. Asking a
/// person, and the answer, have events of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum NodeChange {
    /// It began.
    Start {
        /// The call that does its work, with all that it is given; none for a parallel node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<ToolCall>,
    },
    /// It is done.
    Finish {
        /// What came out.
        output: NodeOutput,
        /// The routing key, where the node gives one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        routing_key: Option<String>,
        /// The nodes that its edges lead to.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        to: Vec<Name>,
        /// The edge that leads back, by its place in the file, where more than one leads to the
        /// same node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edge: Option<u32>,
    },
    /// It failed.
    Fail {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
    },
    /// It was given up, because another branch was first.
    Drop,
}

/// Where a node's output is. Texts are stored once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutput {
    /// It is the answer to the node's call.
    Answer,
    /// It is this text.
    Text(String),
}

/// The first event of every task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskCreated {
    /// The input.
    pub description: String,
    /// The agent that does it.
    pub assigned_agent: Name,
    /// Every definition that the task may need, as it was when the task was created.
    pub pins: Vec<DefinitionPin>,
    /// Named values that come with the input.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// A class of the retention policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How long to keep it after its end, if the task says so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    /// The task that this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_id: Option<TaskId>,
    /// What the task may spend, where whoever gave it said so, besides the agent's own budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Where in another task this one began, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkPoint>,
    /// Where the program runs, where whoever gave the task said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Whether what was given has secrets in it. They are not in the journal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_private: bool,
    /// What all tasks have in common that were given the same, where those share a run. Nothing of
    /// what was given can be read from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
}

/// A point of another task's history. What happened there up to it is a fork's history too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The other task.
    pub task_id: TaskId,
    /// The last of its events that the fork shares.
    pub sequence: StreamSequence,
    /// The checkpoint that this is, counted from 0.
    pub checkpoint: u32,
}

/// What a pinned definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinKind {
    /// An agent.
    Agent,
    /// A workflow.
    Workflow,
    /// The rules of a scripted model.
    Script,
}

/// A definition that a task holds on to, whatever becomes of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionPin {
    /// What it is.
    pub kind: PinKind,
    /// Its name.
    pub name: Name,
    /// The digest of its canonical form, by which the store keeps it.
    pub digest: Digest,
}

/// Where a result is. Messages are stored once, so a result that is a message is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultRef {
    /// The newest thing the model said; of a workflow, the newest output of a node.
    LastAnswer,
    /// This text, which is nowhere else.
    Text(String),
}

impl Event {
    /// The epoch that begins with this event, if one does.
    pub fn opens_epoch(&self) -> Option<OwnerEpoch> {
        match self {
            Self::TaskClaimed { epoch, .. } => Some(*epoch),
            Self::TaskCreated(_)
            | Self::TaskReleased
            | Self::TaskStarted
            | Self::TaskPaused
            | Self::TaskResumed
            | Self::RunShared { .. }
            | Self::CancelRequested
            | Self::TaskCompleted { .. }
            | Self::TaskFailed { .. }
            | Self::TaskCancelled
            | Self::ExecutionChanged { .. }
            | Self::ModelCalled { .. }
            | Self::ModelAnswered { .. }
            | Self::ModelFailed { .. }
            | Self::HistoryShortened { .. }
            | Self::ToolChanged { .. }
            | Self::NodeChanged { .. }
            | Self::StateSet { .. }
            | Self::ReviewOpened { .. }
            | Self::ReviewAnswered { .. }
            | Self::MessageAdded { .. }
            | Self::CheckpointTaken { .. }
            | Self::AgentEnabled
            | Self::AgentDisabled { .. } => None,
        }
    }

    /// The event's name, as the journal has it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TaskCreated(_) => "task_created",
            Self::TaskClaimed { .. } => "task_claimed",
            Self::TaskReleased => "task_released",
            Self::TaskStarted => "task_started",
            Self::TaskPaused => "task_paused",
            Self::TaskResumed => "task_resumed",
            Self::RunShared { .. } => "run_shared",
            Self::CancelRequested => "cancel_requested",
            Self::TaskCompleted { .. } => "task_completed",
            Self::TaskFailed { .. } => "task_failed",
            Self::TaskCancelled => "task_cancelled",
            Self::ExecutionChanged { .. } => "execution_changed",
            Self::ModelCalled { .. } => "model_called",
            Self::ModelAnswered { .. } => "model_answered",
            Self::ModelFailed { .. } => "model_failed",
            Self::HistoryShortened { .. } => "history_shortened",
            Self::ToolChanged { .. } => "tool_changed",
            Self::NodeChanged { .. } => "node_changed",
            Self::StateSet { .. } => "state_set",
            Self::ReviewOpened { .. } => "review_opened",
            Self::ReviewAnswered { .. } => "review_answered",
            Self::MessageAdded { .. } => "message_added",
            Self::CheckpointTaken { .. } => "checkpoint_taken",
            Self::AgentEnabled => "agent_enabled",
            Self::AgentDisabled { .. } => "agent_disabled",
        }
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;

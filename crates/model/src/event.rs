//! Events: the records of the journal, from which all other state is derived.
//!
//! Names are in the past tense. The JSON form of a released event stays readable: fields may be
//! added with a default, never renamed or given another meaning.

mod creation;
mod node;
mod schedule;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::failure::{AttemptFailure, ErrorCode, WithheldReason};
use crate::ids::{CheckpointId, ExecutionId, InstanceId, SessionId, TaskId, ToolCallId};
use crate::message::Message;
use crate::name::Name;
use crate::remote::RemoteTask;
use crate::review::{ReviewAction, ReviewSubject, ReviewVerdict};
use crate::run::RunReport;
use crate::state::StateUpdates;
use crate::tool::ToolName;
use crate::usage::Usage;

pub use self::node::{CompensationCause, MapStart, NodeChange, NodeOutput, OpenItem};
pub use creation::{ForkPoint, RaisedLimits, ScheduledFor, TaskCreated};
pub use schedule::{
    MissReason, ScheduleChange, SkipReason, TickOutcome, TickTrigger, scheduled_task_id,
};

/// The owner of a list of events.
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

/// The position of an event in the whole journal, in commit order.
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

/// The number of an event in its stream: 1, 2, 3 without gaps; 0 is an empty stream.
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

/// The number of owners a task has had. The store refuses commits of an earlier owner.
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

/// An event with its position in the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// The position in the whole journal.
    pub position: JournalPosition,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// The number in that stream.
    pub sequence: StreamSequence,
    /// The time of the commit.
    pub at: Timestamp,
    /// The event itself.
    pub event: Event,
}

/// One fact in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Someone gave work to an agent. Counts as the first message of the conversation.
    TaskCreated(TaskCreated),
    /// A process took the task as its own.
    TaskClaimed {
        /// The process.
        instance: InstanceId,
        /// The number of owners so far, this one included.
        epoch: OwnerEpoch,
    },
    /// The owner let go of the task without having ended it: anyone may go on with it.
    TaskReleased,
    /// The task's turn came.
    TaskStarted,
    /// All remaining sub-agents wait for a person. The task has no owner while it waits.
    TaskPaused,
    /// A new owner continues a paused task, or one whose owner died.
    TaskResumed,
    /// The task is a duplicate of another: its CLI agent does not run, and the other's result is
    /// used.
    RunShared {
        /// The other task.
        with: TaskId,
    },
    /// Another process requested cancellation.
    CancelRequested,
    /// The task came from an archive. Nothing of it runs here until a person trusts it.
    TaskImported,
    /// A person saw the pinned definitions of an imported task and allows them to run.
    TaskTrusted {
        /// The person.
        by: String,
    },
    /// The task is done.
    TaskCompleted {
        /// The location of the result.
        result: ResultRef,
    },
    /// The task failed.
    TaskFailed {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        error: String,
        /// The location of a partial result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial_result: Option<ResultRef>,
    },
    /// The task was cancelled.
    TaskCancelled,
    /// The workflow is about to end. Its `on_cancel` node and the compensations of its finished
    /// nodes run first. An open review is closed, and nodes in progress are dropped.
    CompensationStarted {
        /// The failure that the task ends with; none if it was cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<CompensationCause>,
    },
    /// A compensation of a cancelled task failed or did not run.
    CompensationFailed {
        /// The compensations and the reasons, for people.
        error: String,
    },

    /// An execution moved on.
    ExecutionChanged {
        /// The execution.
        execution_id: ExecutionId,
        /// The change.
        change: ExecutionChange,
    },

    /// A request went to the model.
    ModelCalled {
        /// The turn of the loop, from 1.
        iteration: u32,
        /// The checkpoint after the turn before, if this is the first call of a later turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint: Option<TurnCheckpoint>,
    },
    /// The model answered.
    ModelAnswered {
        /// The answer.
        message: Message,
        /// The tokens and cost of the call.
        usage: Usage,
        /// The duration of the call.
        duration_ms: u64,
        /// True if the answer lacks its end: the model reached its output limit, or the provider
        /// paused it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_cut: bool,
        /// Why the rest of the answer was withheld, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withheld: Option<WithheldReason>,
        /// A driver's mark, passed to later model calls of the task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<u32>,
    },
    /// The call to the model failed.
    ModelFailed {
        /// Why.
        failure: AttemptFailure,
        /// True if listing the agent's tools failed, before the model was called.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_tools: bool,
        /// The duration of the call.
        duration_ms: u64,
        /// A driver's mark, passed to later model calls of the task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<u32>,
        /// The time of the last attempt, if the call is retried for a while.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_until: Option<Timestamp>,
        /// The usage up to the failure.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
    },
    /// The conversation was longer than the model can read: from now on it is sent without its
    /// middle. Nothing of it is lost.
    HistoryShortened {
        /// The first message that is still sent, besides the opening one.
        kept_from: u32,
    },

    /// A tool call moved on.
    ToolChanged {
        /// The call.
        call_id: ToolCallId,
        /// The change.
        change: ToolChange,
    },

    /// A node of the workflow moved on.
    NodeChanged {
        /// The node.
        node: Name,
        /// The change.
        change: NodeChange,
    },

    /// The task waits for a person's decision. It belongs to no process while it waits.
    ReviewOpened {
        /// The checkpoint at which it waits.
        checkpoint_id: CheckpointId,
        /// The subject of the review.
        subject: ReviewSubject,
        /// The question, for people.
        question: String,
        /// The deadline; none if unlimited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The answer that applies after the deadline; without one the task fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default_action: Option<ReviewAction>,
    },
    /// A person has decided.
    ReviewAnswered {
        /// The decision.
        verdict: ReviewVerdict,
        /// The reviewer's comment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The reviewer.
        by: String,
        /// The reviewer's changes to the State: the new value for each path.
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
        /// True if the task waits there for a person.
        awaiting_human: bool,
        /// The number of messages of the State, if calls of the turn are still unanswered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_count: Option<u32>,
    },

    /// An agent was enabled, overriding its file.
    AgentEnabled,
    /// An agent was disabled, overriding its file.
    AgentDisabled {
        /// Why, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },

    /// A schedule moved on, or one of its due times got its record.
    ScheduleChanged {
        /// The change.
        change: ScheduleChange,
    },
}

/// A change of an execution; each is one transition of its state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum ExecutionChange {
    /// It waits for a slot.
    Queue {
        /// The agent that will run.
        agent: Name,
        /// The retry limit.
        max_retries: u32,
        /// The slot pool it uses.
        pool: String,
        /// The time limit of one run.
        timeout_seconds: u64,
    },
    /// It left idle and acquires its resources.
    Start {
        /// The agent that runs.
        agent: Name,
        /// The retry limit.
        max_retries: u32,
    },
    /// Its work began.
    Run {
        /// The process id, for CLI agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process_id: Option<u32>,
        /// The task on the remote server, for remote agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<RemoteTask>,
    },
    /// Polity asked the remote server to cancel its task, whose result is no longer needed.
    EndRemote {
        /// The task there.
        task: RemoteTask,
        /// Why it could not be asked, or would not; none if it has agreed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<String>,
    },
    /// The outcome of one CLI agent run, or of one message to a remote agent.
    Report {
        /// The outcome.
        report: Box<RunReport>,
        /// The model usage that the CLI agent or server reported.
        usage: Usage,
    },
    /// Its work succeeded.
    Complete,
    /// Its start or its work failed.
    Fail {
        /// Why.
        failure: AttemptFailure,
        /// The time of the next attempt, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// It is tried again.
    Retry,
    /// It took longer than it may.
    TimeOut,
    /// It was cancelled.
    Cancel,
    /// Its leftovers are being cleaned up.
    CleanUp,
    /// Cleanup is done; the execution is over.
    Finish,
}

impl ExecutionChange {
    /// Its work began, and no process with it.
    pub const RUN: Self = Self::Run { process_id: None, remote: None };
}

/// A change of a tool call; each is one transition of its state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum ToolChange {
    /// It waits for a person's approval.
    Hold {
        /// The tool that would be called.
        tool: ToolName,
    },
    /// It starts. Committed before the call is made, so that a crash cannot hide it.
    Call {
        /// The tool, which may be a fallback for the one that the model named.
        tool: ToolName,
        /// The arguments, if not those of the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Map<String, Value>>,
        /// True if the call is safe to repeat.
        repeatable: bool,
    },
    /// An attempt failed, and another follows.
    Fail {
        /// Why.
        failure: AttemptFailure,
        /// The duration of the attempt.
        duration_ms: u64,
        /// The time of the next attempt.
        retry_at: Timestamp,
    },
    /// The sub-agent that was called waits for a person.
    Wait,
    /// It is not safe to repeat, and its process ended while it ran.
    Doubt,
    /// It has its answer, which counts as a message of the conversation.
    Answer {
        /// The index of the answer in the conversation: concurrent calls are answered in request
        /// order. None if it is the next, as in a workflow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ordinal: Option<u32>,
        /// The text for the model.
        content: String,
        /// The result as JSON, if it differs from the text for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<Value>,
        /// True if the answer is an error message.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        /// The duration of the last attempt; 0 if none was made.
        duration_ms: u64,
        /// Set if the call has no outcome of its own. A retry of the task makes or reviews it again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unsettled: Option<UnsettledCall>,
        /// The index of the map's item that was called. Such an answer is no message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
    },
}

/// A call that was answered without a known outcome, because the task ended or its result was no
/// longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsettledCall {
    /// The tool was never called.
    NotCalled,
    /// The tool was called, and may have had its effect.
    MaybeDone,
}

/// A checkpoint between two turns of a model. The event that holds it is its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCheckpoint {
    /// The checkpoint.
    pub checkpoint_id: CheckpointId,
    /// Counts the task's checkpoints from 0.
    pub sequence: u32,
}

/// The kind of a pinned definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinKind {
    /// An agent.
    Agent,
    /// A workflow.
    Workflow,
    /// The rules of a scripted model.
    Script,
    /// The script of a workflow's node.
    Step,
}

/// A definition pinned by a task: later changes of its file do not affect the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionPin {
    /// The kind.
    pub kind: PinKind,
    /// Its name.
    pub name: Name,
    /// The digest of its canonical form, by which the store keeps it.
    pub digest: Digest,
}

/// The location of a result. A result that is a message is stored once, as that message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultRef {
    /// The newest answer of the model; for a workflow, the newest output of a node.
    LastAnswer,
    /// This text, which is nowhere else.
    Text(String),
}

impl Event {
    /// True if the task needs a person's trust after this event, false if it has it. None if the
    /// event changes neither.
    pub fn needs_trust(&self) -> Option<bool> {
        let needs_trust = matches!(self, Self::TaskImported);
        (needs_trust || matches!(self, Self::TaskTrusted { .. })).then_some(needs_trust)
    }

    /// The epoch that begins with this event, if one does.
    pub fn opens_epoch(&self) -> Option<OwnerEpoch> {
        if let Self::TaskClaimed { epoch, .. } = self { Some(*epoch) } else { None }
    }

    /// The number of the checkpoint that this event takes, counted from 0.
    pub fn checkpoint(&self) -> Option<u32> {
        if let Self::ModelCalled { checkpoint, .. } = self {
            return checkpoint.map(|taken| taken.sequence);
        }
        if let Self::CheckpointTaken { sequence, .. } = self { Some(*sequence) } else { None }
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
            Self::TaskImported => "task_imported",
            Self::TaskTrusted { .. } => "task_trusted",
            Self::TaskCompleted { .. } => "task_completed",
            Self::TaskFailed { .. } => "task_failed",
            Self::TaskCancelled => "task_cancelled",
            Self::CompensationStarted { .. } => "compensation_started",
            Self::CompensationFailed { .. } => "compensation_failed",
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
            Self::ScheduleChanged { .. } => "schedule_changed",
        }
    }
}

#[cfg(test)]
mod tests;

//! Read access to a task's state.

use std::num::NonZeroU64;

use jiff::Timestamp;
use polity_model::event::{DefinitionPin, OwnerEpoch, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_model::message::{Message, MessageRole};
use polity_model::remote::RemoteTask;
use polity_model::state::State;
use polity_model::task::{Task, TaskExecution};

use super::{AgentContext, Backoff, OpenReview, TaskState, TaskWork, TurnCalls, WorkflowRun};
use crate::driver::ConversationHistory;

impl TaskState {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.task.order().id
    }

    /// The stream of its events.
    pub fn stream(&self) -> StreamId {
        StreamId::Task(self.id())
    }

    /// The sequence of the newest applied event.
    pub fn sequence(&self) -> StreamSequence {
        self.sequence
    }

    /// The task's status.
    pub fn status(&self) -> TaskStatus {
        self.task.status()
    }

    /// The task's execution.
    pub fn task(&self) -> &TaskExecution {
        &self.task
    }

    /// The task as a snapshot, to be shown.
    pub fn snapshot(&self) -> Task {
        self.task.snapshot()
    }

    /// The model's newest reply, or the newest output of a workflow's node.
    pub fn last_answer(&self) -> Option<&str> {
        match &self.work {
            TaskWork::Agent(context) => context.conversation.last_answer_since(self.shared),
            TaskWork::Workflow(run) => run.newest_output(),
        }
    }

    /// The agent with its conversation, if an agent performs the task.
    pub fn context(&self) -> Option<&AgentContext> {
        match &self.work {
            TaskWork::Agent(context) => Some(context),
            TaskWork::Workflow(_) => None,
        }
    }

    /// True if a CLI agent performs the task.
    pub fn is_program(&self) -> bool {
        self.context().is_some_and(|context| context.agent.program().is_some())
    }

    /// True if a remote agent performs the task.
    pub fn is_remote(&self) -> bool {
        self.context().is_some_and(|context| context.agent.remote().is_some())
    }

    /// The newest remote task.
    pub fn remote(&self) -> Option<&RemoteTask> {
        self.remote.as_ref()
    }

    /// The remote task, unless it has ended.
    pub fn open_remote(&self) -> Option<&RemoteTask> {
        self.remote.as_ref().filter(|_| self.remote_is_open)
    }

    /// The workflow's run, if a workflow performs the task.
    pub fn workflow_run(&self) -> Option<&WorkflowRun> {
        match &self.work {
            TaskWork::Agent(_) => None,
            TaskWork::Workflow(run) => Some(run),
        }
    }

    /// The time limit of a node's call. A retry may raise it.
    pub(crate) fn node_timeout(&self, run: &WorkflowRun, node: usize) -> Option<NonZeroU64> {
        let own = run.plan().timeout_seconds(node)?;
        Some(self.task.order().raised.timeout_seconds.unwrap_or(own))
    }

    /// The current State, copied to be stored or shown.
    pub fn state(&self) -> State {
        match &self.work {
            TaskWork::Agent(context) => context.state(),
            TaskWork::Workflow(run) => run.state(),
        }
    }

    /// The conversation with the model.
    pub fn messages(&self) -> &[Message] {
        self.context().map_or(&[], |context| context.conversation.messages())
    }

    /// The number of messages.
    pub fn message_count(&self) -> usize {
        match &self.work {
            TaskWork::Agent(context) => context.conversation.len(),
            TaskWork::Workflow(run) => run.message_count(),
        }
    }

    /// The definitions that the task pinned.
    pub fn pins(&self) -> &[DefinitionPin] {
        &self.pins
    }

    /// The process that owns the task.
    pub fn owner(&self) -> Option<InstanceId> {
        self.owner
    }

    /// The number of changes of ownership.
    pub fn epoch(&self) -> OwnerEpoch {
        self.epoch
    }

    /// The newest execution.
    pub fn execution(&self) -> Option<&AgentExecution> {
        self.execution.as_ref()
    }

    /// The state of the loop.
    pub fn doing(&self) -> LoopState {
        self.doing
    }

    /// The wait before the next attempt, if there is one.
    pub fn backoff(&self) -> Option<Backoff> {
        self.backoff
    }

    /// The time of the next attempt, during a backoff.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.backoff.map(|backoff| backoff.until)
    }

    /// The retries of the current model call.
    pub fn call_retries(&self) -> u32 {
        self.call_retries
    }

    /// The time of the first failure of the current model call.
    pub fn failing_since(&self) -> Option<Timestamp> {
        self.failing_since
    }

    /// The tool calls of the current turn.
    pub fn calls(&self) -> &TurnCalls {
        &self.calls
    }

    /// The part of the conversation that is sent to the model.
    pub fn history(&self) -> ConversationHistory<'_> {
        ConversationHistory::shortened(self.messages(), self.kept_from as usize)
    }

    /// The first message still sent to the model, besides the opening one.
    pub fn kept_from(&self) -> u32 {
        self.kept_from
    }

    /// The open review, if there is one.
    pub fn review(&self) -> Option<&OpenReview> {
        self.review.as_ref()
    }

    /// True if the task waits only because its sub-agents wait for a person.
    pub fn is_paused(&self) -> bool {
        self.status() == TaskStatus::AwaitingHuman && self.review.is_none()
    }

    /// The number of model replies.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// The number of model replies that count towards `max_iterations`: a retry starts afresh.
    pub fn own_turns(&self) -> u32 {
        self.iterations - self.inherited_iterations
    }

    /// True if the task continues a failed or cancelled one.
    pub fn is_retry(&self) -> bool {
        self.task.order().retry_of.is_some()
    }

    /// The number of corrections that the model was asked for.
    pub fn corrections(&self) -> u32 {
        self.corrections
    }

    /// The text of the cut answers that the next answer continues.
    pub fn cut_text(&self) -> String {
        let answers = self.messages().iter().rev();
        let answers = answers.filter(|said| said.role() == MessageRole::Assistant);
        let parts: Vec<&str> =
            answers.take(self.cut_parts as usize).map(Message::content).collect();
        parts.into_iter().rev().collect()
    }

    /// The number of the current turn, from 1.
    pub fn turn(&self) -> u32 {
        match self.doing {
            LoopState::Acting | LoopState::Asking | LoopState::Answered | LoopState::Over => {
                self.iterations.max(1)
            }
            LoopState::Idle | LoopState::Reasoning | LoopState::BackingOff => self.iterations + 1,
        }
    }

    /// The number of checkpoints.
    pub fn checkpoints(&self) -> u32 {
        self.checkpoints
    }

    /// Marks that drivers receive again with the next request.
    pub fn marks(&self) -> &[u32] {
        &self.marks
    }

    /// True if the task was imported, and no person has trusted its definitions since.
    pub fn needs_trust(&self) -> bool {
        self.needs_trust
    }

    /// True if a cancel was requested and the task has not ended.
    pub fn cancel_requested(&self) -> bool {
        self.cancel_requested && !self.status().is_final()
    }
}

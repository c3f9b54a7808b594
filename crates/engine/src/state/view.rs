//! What can be asked of a task's state.

use jiff::Timestamp;
use polity_model::event::{DefinitionPin, OwnerEpoch, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{InstanceId, TaskId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::remote::RemoteTask;
use polity_model::state::State;
use polity_model::task::{Task, TaskExecution};

use super::{AgentContext, OpenReview, TaskState, TaskWork, TurnCalls, WorkflowRun};
use crate::driver::History;

impl TaskState {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.task.order().id
    }

    /// The stream its events are in.
    pub fn stream(&self) -> StreamId {
        StreamId::Task(self.id())
    }

    /// The newest event that this state knows of.
    pub fn sequence(&self) -> StreamSequence {
        self.sequence
    }

    /// Where the task is in its life.
    pub fn status(&self) -> TaskStatus {
        self.task.status()
    }

    /// The live run.
    pub fn task(&self) -> &TaskExecution {
        &self.task
    }

    /// The task as it is now, to be shown.
    pub fn snapshot(&self) -> Task {
        self.task.snapshot()
    }

    /// The newest thing that the model said; of a workflow, the newest output of a node.
    pub fn last_answer(&self) -> Option<&str> {
        match &self.work {
            TaskWork::Agent(context) => context.conversation.last_answer_since(self.shared),
            TaskWork::Workflow(run) => run.newest_output(),
        }
    }

    /// The agent with its conversation, if an agent does the task.
    pub fn context(&self) -> Option<&AgentContext> {
        match &self.work {
            TaskWork::Agent(context) => Some(context),
            TaskWork::Workflow(_) => None,
        }
    }

    /// Whether a command-line program does the task.
    pub fn is_program(&self) -> bool {
        self.context().is_some_and(|context| context.agent.program().is_some())
    }

    /// Whether an agent on another server does the task.
    pub fn is_remote(&self) -> bool {
        self.context().is_some_and(|context| context.agent.remote().is_some())
    }

    /// The newest task on another server that works for it.
    pub fn remote(&self) -> Option<&RemoteTask> {
        self.remote.as_ref()
    }

    /// The task on another server that works for it, unless that has come to its end.
    pub fn open_remote(&self) -> Option<&RemoteTask> {
        self.remote.as_ref().filter(|_| self.remote_is_open)
    }

    /// Where the workflow stands, if a workflow does the task.
    pub fn workflow_run(&self) -> Option<&WorkflowRun> {
        match &self.work {
            TaskWork::Agent(_) => None,
            TaskWork::Workflow(run) => Some(run),
        }
    }

    /// The State at this moment, copied out to be stored or shown.
    pub fn state(&self) -> State {
        match &self.work {
            TaskWork::Agent(context) => context.state(),
            TaskWork::Workflow(run) => run.state(),
        }
    }

    /// What has been said to and by the model.
    pub fn messages(&self) -> &[Message] {
        self.context().map_or(&[], |context| context.conversation.messages())
    }

    /// How many messages there are.
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

    /// The process that the task belongs to.
    pub fn owner(&self) -> Option<InstanceId> {
        self.owner
    }

    /// How often the task has changed hands.
    pub fn epoch(&self) -> OwnerEpoch {
        self.epoch
    }

    /// The newest execution.
    pub fn execution(&self) -> Option<&AgentExecution> {
        self.execution.as_ref()
    }

    /// What the loop is doing.
    pub fn doing(&self) -> LoopState {
        self.doing
    }

    /// When the model is called again, while the loop waits for that.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at
    }

    /// How often the model call that is under way has been tried again.
    pub fn call_retries(&self) -> u32 {
        self.call_retries
    }

    /// The tool calls of this turn.
    pub fn calls(&self) -> &TurnCalls {
        &self.calls
    }

    /// The part of the conversation that the model is sent.
    pub fn history(&self) -> History<'_> {
        History::shortened(self.messages(), self.kept_from as usize)
    }

    /// The first message that is still sent to the model, besides the one that opened.
    pub fn kept_from(&self) -> u32 {
        self.kept_from
    }

    /// What the task waits for a person to decide.
    pub fn review(&self) -> Option<&OpenReview> {
        self.review.as_ref()
    }

    /// Whether the task waits for a person only because its sub-agents do.
    pub fn is_paused(&self) -> bool {
        self.status() == TaskStatus::AwaitingHuman && self.review.is_none()
    }

    /// How many answers the model has given.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// How often the model was told that its answer cannot be used.
    pub fn corrections(&self) -> u32 {
        self.corrections
    }

    /// The turn that the task is in, from 1: what the model is asked next, or has asked for last.
    pub fn turn(&self) -> u32 {
        match self.doing {
            LoopState::Acting | LoopState::Asking | LoopState::Answered | LoopState::Over => {
                self.iterations.max(1)
            }
            LoopState::Idle | LoopState::Reasoning | LoopState::BackingOff => self.iterations + 1,
        }
    }

    /// How many checkpoints there are.
    pub fn checkpoints(&self) -> u32 {
        self.checkpoints
    }

    /// What drivers want to be told again.
    pub fn marks(&self) -> &[u32] {
        &self.marks
    }

    /// Whether someone asked for the task to end, and it has not yet.
    pub fn cancel_requested(&self) -> bool {
        self.cancel_requested && !self.status().is_final()
    }
}

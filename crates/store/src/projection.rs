//! Projections: rows derived from events and written in the same transaction.
//!
//! Every store applies the rules in this module. Each row follows the state machines, so a commit
//! that breaks them is refused before it is written.

mod texts;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use polity_model::digest::Digest;
use polity_model::event::{
    Event, ExecutionChange, JournalPosition, NodeChange, NodeOutput, OwnerEpoch, ResultRef,
    StreamId, TaskCreated, ToolChange,
};
use polity_model::execution::AgentExecution;
use polity_model::failure::ErrorCode;
use polity_model::ids::{CheckpointId, ExecutionId, InstanceId, TaskId};
use polity_model::machine::Machine;
use polity_model::machine::task::{TaskStatus, TaskTransition};
use polity_model::message::MessageRole;
use polity_model::name::Name;
use polity_model::usage::Usage;

pub(crate) use texts::into_message;

/// A task without its texts, which stay in the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    /// The task.
    pub id: TaskId,
    /// Its status.
    pub status: TaskStatus,
    /// The agent or workflow.
    pub assigned_agent: Name,
    /// The process that works on it. None if no process does.
    pub owner: Option<InstanceId>,
    /// The number of times it was claimed.
    pub epoch: OwnerEpoch,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// The time at which it started.
    pub started_at: Option<Timestamp>,
    /// The time at which it ended.
    pub completed_at: Option<Timestamp>,
    /// The error code, if it failed.
    pub error_code: Option<ErrorCode>,
    /// Its class in the retention policy.
    pub class: Option<String>,
    /// Its own retention time, which overrides the policy.
    pub retention_days: Option<u32>,
    /// Its parent task.
    pub parent_task_id: Option<TaskId>,
    /// The item of its parent's map that it performs.
    pub map_item: Option<u32>,
    /// The usage of its model calls, without its sub-tasks.
    pub usage: Usage,
    /// The number of messages in its conversation.
    pub message_count: u32,
    /// The number of its checkpoints.
    pub checkpoint_count: u32,
    /// The position of its creation.
    pub created_position: JournalPosition,
    /// The position of its newest answer.
    pub answer_position: Option<JournalPosition>,
    /// The position of its result.
    pub result_position: Option<JournalPosition>,
    /// The position of its failure.
    pub failure_position: Option<JournalPosition>,
    /// The task that it was forked from.
    pub forked_from: Option<TaskId>,
    /// The deadline of its open review.
    pub review_deadline: Option<Timestamp>,
    /// The deduplication key: tasks with the same key may share a run.
    pub dedup_key: Option<Digest>,
    /// The task whose run it shares.
    pub shared_with: Option<TaskId>,
}

/// The location of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRow {
    /// Its index in the conversation, from 0.
    pub ordinal: u32,
    /// The event that holds it.
    pub position: JournalPosition,
    /// Its author.
    pub role: MessageRole,
}

/// The location of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Its number within the task, from 0.
    pub sequence: u32,
    /// The checkpoint.
    pub checkpoint_id: CheckpointId,
    /// The position of its event.
    pub position: JournalPosition,
    /// The node, or the agent's name.
    pub node: String,
    /// The number of messages at that point.
    pub message_count: u32,
    /// True if the task waits there for a review.
    pub awaiting_human: bool,
    /// The time of the checkpoint.
    pub created_at: Timestamp,
}

/// The usage of an agent's model calls on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendingRow {
    /// The day, in UTC.
    pub day: Date,
    /// The agent.
    pub agent: Name,
    /// The number of calls.
    pub calls: u64,
    /// Their usage.
    pub usage: Usage,
}

/// An execution with the owner of its task.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionRow {
    /// The process that owns the task.
    pub owner: Option<InstanceId>,
    /// The execution.
    pub execution: AgentExecution,
}

/// The totals of a task and its sub-tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskTree {
    /// The number of tasks, itself included.
    pub task_count: u64,
    /// The number of those tasks that perform an item of a map, at any depth, or work for one.
    pub item_task_count: u64,
    /// Their usage.
    pub usage: Usage,
}

/// The changes of one commit to the rows of its task.
#[derive(Debug, Default)]
pub(crate) struct ProjectionChanges {
    pub(crate) row: Option<TaskRow>,
    pub(crate) messages: Vec<MessageRow>,
    pub(crate) checkpoints: Vec<CheckpointRow>,
    /// Executions that the commit changed, as they are afterwards.
    pub(crate) executions: Vec<AgentExecution>,
    /// The usage of each model call.
    pub(crate) spent: Vec<Usage>,
    /// The position of the newest tool reply.
    answered: Option<JournalPosition>,
    /// The definitions that the task pins.
    pub(crate) pinned: Vec<Digest>,
}

/// An event that cannot follow the stream, with the rule that it breaks.
#[derive(Debug)]
pub(crate) struct IllegalEvent(pub(crate) String);

impl<E: std::error::Error> From<E> for IllegalEvent {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl ProjectionChanges {
    /// Starts from the task's current row.
    pub(crate) fn new(row: Option<TaskRow>) -> Self {
        Self { row, ..Self::default() }
    }

    /// Applies one event. `load` reads an execution that an earlier commit started.
    pub(crate) fn apply(
        &mut self,
        stream: &StreamId,
        position: JournalPosition,
        at: Timestamp,
        event: &Event,
        load: impl FnOnce(ExecutionId) -> Result<Option<AgentExecution>, IllegalEvent>,
    ) -> Result<(), IllegalEvent> {
        let StreamId::Task(task_id) = *stream else { return check_other_stream(stream, event) };
        if let Event::TaskCreated(created) = event {
            if self.row.is_some() {
                return Err(IllegalEvent("the task exists already".into()));
            }
            self.row = Some(TaskRow::new(task_id, created, position, at));
            self.message(position, MessageRole::User);
            self.pinned.extend(created.pins.iter().map(|pin| pin.digest));
            return Ok(());
        }
        let Some(row) = &mut self.row else {
            return Err(IllegalEvent("a task begins with its creation".into()));
        };
        if let Some(taken) = CheckpointRow::of(row, position, at, event) {
            return self.checkpoint(taken);
        }
        match event {
            Event::TaskCreated(_)
            | Event::CancelRequested
            | Event::TaskImported
            | Event::TaskTrusted { .. }
            | Event::StateSet { .. }
            | Event::ModelCalled { .. }
            | Event::HistoryShortened { .. }
            | Event::CheckpointTaken { .. } => {}
            Event::ModelFailed { usage, .. } => {
                row.usage += *usage;
                self.spent.extend((!usage.is_zero()).then_some(*usage));
            }
            Event::TaskClaimed { instance, epoch } => row.claim(*instance, *epoch)?,
            Event::TaskReleased => row.owner = None,
            Event::TaskStarted => {
                row.status = row.status.transition(TaskTransition::Start)?;
                row.started_at.get_or_insert(at);
            }
            Event::TaskPaused => {
                row.status = row.status.transition(TaskTransition::Ask)?;
                row.owner = None;
            }
            Event::TaskResumed => row.resume()?,
            Event::RunShared { with } => row.shared_with = Some(*with),
            Event::TaskCompleted { result } => {
                row.end(TaskTransition::Complete, at)?;
                row.result_position = row.result_position(result, position);
            }
            Event::TaskFailed { code, partial_result, .. } => {
                row.end(TaskTransition::Fail, at)?;
                row.error_code = Some(*code);
                row.failure_position = Some(position);
                let partial = partial_result.as_ref();
                row.result_position =
                    partial.and_then(|result| row.result_position(result, position));
            }
            Event::TaskCancelled => row.end(TaskTransition::Cancel, at)?,
            Event::CompensationStarted { .. } => row.resume()?,
            Event::CompensationFailed { .. } => row.failure_position = Some(position),
            Event::ExecutionChanged { execution_id, change } => {
                return self.execution(*execution_id, change, at, task_id, load);
            }
            Event::ModelAnswered { message, usage, .. } => {
                row.usage += *usage;
                self.spent.push(*usage);
                if !message.content().is_empty() {
                    row.answer_position = Some(position);
                }
                self.message(position, message.role());
            }
            Event::ToolChanged { change, .. } => self.tool_call(position, change),
            Event::NodeChanged { change, .. } => self.node(position, change),
            Event::ReviewOpened { deadline, .. } => {
                row.status = row.status.transition(TaskTransition::Ask)?;
                row.owner = None;
                row.review_deadline = *deadline;
            }
            Event::ReviewAnswered { .. } => {
                row.status = row.status.transition(TaskTransition::Resume)?;
                row.review_deadline = None;
            }
            Event::MessageAdded { message } => self.added_message(position, message.role()),
            Event::AgentEnabled | Event::AgentDisabled { .. } => {
                return Err(IllegalEvent(format!(
                    "{} belongs in an agent's stream",
                    event.label()
                )));
            }
            Event::ScheduleChanged { .. } => {
                return Err(IllegalEvent(format!(
                    "{} belongs in a schedule's stream",
                    event.label()
                )));
            }
        }
        Ok(())
    }

    /// The task that this one was forked from.
    pub(crate) fn origin(&self) -> Option<TaskId> {
        self.row.as_ref().and_then(|row| row.forked_from)
    }

    fn checkpoint(&mut self, taken: CheckpointRow) -> Result<(), IllegalEvent> {
        let Some(row) = &mut self.row else { return Ok(()) };
        let (next, sequence) = (row.checkpoint_count, taken.sequence);
        if sequence != next {
            return Err(IllegalEvent(format!("the next checkpoint is {next}, not {sequence}")));
        }
        row.checkpoint_count += 1;
        self.checkpoints.push(taken);
        Ok(())
    }

    /// Replies to parallel calls arrive in any order; each carries its ordinal.
    fn tool_call(&mut self, position: JournalPosition, change: &ToolChange) {
        match (change, &mut self.row) {
            (ToolChange::Answer { ordinal, item: None, .. }, Some(row)) => {
                let ordinal = ordinal.unwrap_or(row.message_count);
                row.message_count = row.message_count.max(ordinal.saturating_add(1));
                self.answered = Some(position);
                self.messages.push(MessageRow { ordinal, position, role: MessageRole::Tool });
            }
            (
                ToolChange::Answer { .. }
                | ToolChange::Hold { .. }
                | ToolChange::Call { .. }
                | ToolChange::Fail { .. }
                | ToolChange::Wait
                | ToolChange::Doubt,
                _,
            ) => {}
        }
    }

    /// The output of a node is the newest answer of a workflow.
    fn node(&mut self, position: JournalPosition, change: &NodeChange) {
        let output = match change {
            NodeChange::Finish { output, .. }
            | NodeChange::Fail { output: Some(output), to: Some(_), .. } => output,
            NodeChange::Start { .. }
            | NodeChange::StartItem { .. }
            | NodeChange::FinishItems { .. }
            | NodeChange::FailItem { .. }
            | NodeChange::Fail { .. }
            | NodeChange::Drop => return,
        };
        let answered = match output {
            NodeOutput::Answer => self.answered,
            NodeOutput::Text(_) | NodeOutput::Json(_) => Some(position),
            // The output of a map is spread over the answers of its items.
            NodeOutput::Items => None,
        };
        if let (Some(row), Some(_)) = (&mut self.row, answered) {
            row.answer_position = answered;
        }
    }

    /// A message of a CLI or remote agent is its newest answer too.
    fn added_message(&mut self, position: JournalPosition, role: MessageRole) {
        if let (MessageRole::Assistant, Some(row)) = (role, &mut self.row) {
            row.answer_position = Some(position);
        }
        self.message(position, role);
    }

    fn message(&mut self, position: JournalPosition, role: MessageRole) {
        if let Some(row) = &mut self.row {
            self.messages.push(MessageRow { ordinal: row.message_count, position, role });
            row.message_count += 1;
        }
    }

    fn execution(
        &mut self,
        id: ExecutionId,
        change: &ExecutionChange,
        at: Timestamp,
        task_id: TaskId,
        load: impl FnOnce(ExecutionId) -> Result<Option<AgentExecution>, IllegalEvent>,
    ) -> Result<(), IllegalEvent> {
        if let (ExecutionChange::Report { usage, .. }, Some(row)) = (change, &mut self.row)
            && *usage != Usage::default()
        {
            row.usage += *usage;
            self.spent.push(*usage);
        }
        // The task no longer shares the run of its original.
        if let (ExecutionChange::Queue { .. }, Some(row)) = (change, &mut self.row) {
            row.shared_with = None;
        }
        if let Some(known) = self.executions.iter_mut().find(|execution| execution.id == id) {
            known.apply(change, at)?;
            return Ok(());
        }
        let mut execution = match (load(id)?, change) {
            (Some(execution), _) => execution,
            (
                None,
                ExecutionChange::Start { agent, max_retries }
                | ExecutionChange::Queue { agent, max_retries, .. },
            ) => AgentExecution::new(id, agent.clone(), task_id, *max_retries),
            (None, _) => return Err(IllegalEvent(format!("execution {id} has not started"))),
        };
        execution.apply(change, at)?;
        self.executions.push(execution);
        Ok(())
    }
}

/// Events outside task streams change no rows.
fn check_other_stream(stream: &StreamId, event: &Event) -> Result<(), IllegalEvent> {
    let is_of_agent = matches!(event, Event::AgentEnabled | Event::AgentDisabled { .. });
    let is_of_schedule = matches!(event, Event::ScheduleChanged { .. });
    match stream {
        StreamId::Agent(_) if is_of_agent => Ok(()),
        StreamId::Schedule(_) if is_of_schedule => Ok(()),
        StreamId::Task(_) | StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => {
            Err(IllegalEvent(format!("{} belongs in a task's stream", event.label())))
        }
    }
}

impl CheckpointRow {
    /// The checkpoint that an event takes, if it takes one.
    fn of(
        row: &TaskRow,
        position: JournalPosition,
        created_at: Timestamp,
        event: &Event,
    ) -> Option<Self> {
        let (sequence, checkpoint_id, node, awaiting_human, message_count) = match event {
            Event::ModelCalled { checkpoint: Some(taken), .. } => {
                let agent = row.assigned_agent.to_string();
                (taken.sequence, taken.checkpoint_id, agent, false, None)
            }
            Event::CheckpointTaken {
                checkpoint_id,
                sequence,
                node,
                awaiting_human,
                message_count,
            } => (*sequence, *checkpoint_id, node.clone(), *awaiting_human, *message_count),
            _ => return None,
        };
        let message_count = message_count.unwrap_or(row.message_count);
        Some(Self {
            sequence,
            checkpoint_id,
            position,
            node,
            message_count,
            awaiting_human,
            created_at,
        })
    }
}

impl TaskRow {
    fn new(id: TaskId, created: &TaskCreated, position: JournalPosition, at: Timestamp) -> Self {
        Self {
            id,
            status: TaskStatus::INITIAL,
            assigned_agent: created.assigned_agent.clone(),
            owner: None,
            epoch: OwnerEpoch::default(),
            created_at: at,
            started_at: None,
            completed_at: None,
            error_code: None,
            class: created.class.clone(),
            retention_days: created.retention_days,
            parent_task_id: created.parent_task_id,
            map_item: created.map_item,
            usage: Usage::default(),
            message_count: 0,
            checkpoint_count: 0,
            created_position: position,
            answer_position: None,
            result_position: None,
            failure_position: None,
            forked_from: created.forked_from.map(|point| point.task_id),
            review_deadline: None,
            dedup_key: created.request,
            shared_with: None,
        }
    }

    /// The error for a fork whose origin is missing.
    pub(crate) fn orphaned(origin: TaskId) -> IllegalEvent {
        IllegalEvent(format!("task {origin}, which it is a fork of, is not here any more"))
    }

    fn end(&mut self, on: TaskTransition, at: Timestamp) -> Result<(), IllegalEvent> {
        self.status = self.status.transition(on)?;
        self.completed_at = Some(at);
        self.review_deadline = None;
        Ok(())
    }

    /// A paused task runs again; any other active task is unchanged.
    fn claim(&mut self, instance: InstanceId, epoch: OwnerEpoch) -> Result<(), IllegalEvent> {
        let expected = self.epoch.next();
        if epoch != expected {
            return Err(IllegalEvent(format!("the next owner has {expected:?}, not {epoch:?}")));
        }
        self.owner = Some(instance);
        self.epoch = epoch;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), IllegalEvent> {
        match self.status {
            TaskStatus::Pending | TaskStatus::Running => Ok(()),
            TaskStatus::AwaitingHuman => {
                self.status = self.status.transition(TaskTransition::Resume)?;
                self.review_deadline = None;
                Ok(())
            }
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                Err(IllegalEvent(format!("the task is {status}")))
            }
        }
    }

    /// The position of the result that the event at `position` refers to.
    fn result_position(
        &self,
        result: &ResultRef,
        position: JournalPosition,
    ) -> Option<JournalPosition> {
        match result {
            ResultRef::LastAnswer => self.answer_position,
            ResultRef::Text(_) => Some(position),
        }
    }
}

/// The UTC day of a time.
pub(crate) fn day_of(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

//! Projections: rows derived from events, kept in step in the same transaction.
//!
//! The rules are here once, and every store applies them. Because each row follows the state
//! machines, a commit that no task could have made is refused before it is written.

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
use polity_model::message::{Message, MessageRole};
use polity_model::name::Name;
use polity_model::task::{ForkedFrom, Task};
use polity_model::usage::Usage;

/// What is known of a task without reading its events. Its texts stay in the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    /// The task.
    pub id: TaskId,
    /// Where it is in its life.
    pub status: TaskStatus,
    /// The agent or workflow.
    pub assigned_agent: Name,
    /// The process that it belongs to. None where no one is at work on it, or should be.
    pub owner: Option<InstanceId>,
    /// How often it has changed hands.
    pub epoch: OwnerEpoch,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it began to run.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// Why it failed, for programs.
    pub error_code: Option<ErrorCode>,
    /// A class of the retention policy.
    pub class: Option<String>,
    /// How long to keep it, if the task says so itself.
    pub retention_days: Option<u32>,
    /// The task that it is a part of.
    pub parent_task_id: Option<TaskId>,
    /// What it has used.
    pub usage: Usage,
    /// How many messages its conversation has.
    pub message_count: u32,
    /// How many checkpoints it has.
    pub checkpoint_count: u32,
    /// Where its creation stands in the journal.
    pub created_position: JournalPosition,
    /// Where the newest answer of the model stands.
    pub answer_position: Option<JournalPosition>,
    /// Where its result stands.
    pub result_position: Option<JournalPosition>,
    /// Where its failure stands.
    pub failure_position: Option<JournalPosition>,
    /// The task that it is a fork of.
    pub forked_from: Option<TaskId>,
    /// Until when the person that it waits for has time.
    pub review_deadline: Option<Timestamp>,
    /// What all tasks have in common that were given the same, where those share a run.
    pub request: Option<Digest>,
    /// The task whose run this one shares.
    pub shared_with: Option<TaskId>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRow {
    /// Its place in the conversation, from 0.
    pub ordinal: u32,
    /// The event that holds it.
    pub position: JournalPosition,
    /// Who said it.
    pub role: MessageRole,
}

/// Where a checkpoint stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Counts the task's checkpoints from 0.
    pub sequence: u32,
    /// The checkpoint.
    pub checkpoint_id: CheckpointId,
    /// The event that took it.
    pub position: JournalPosition,
    /// The node, or the agent's name.
    pub node: String,
    /// How many messages there were.
    pub message_count: u32,
    /// Whether the task waits there for a person.
    pub awaiting_human: bool,
    /// When it was taken.
    pub created_at: Timestamp,
}

/// What an agent's model calls used on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendingRow {
    /// The day, in UTC.
    pub day: Date,
    /// The agent.
    pub agent: Name,
    /// How many calls there were.
    pub calls: u64,
    /// What they used.
    pub usage: Usage,
}

/// What one commit does to the rows of its task.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) row: Option<TaskRow>,
    pub(crate) messages: Vec<MessageRow>,
    pub(crate) checkpoints: Vec<CheckpointRow>,
    /// Executions that the commit changed, as they are afterwards.
    pub(crate) executions: Vec<AgentExecution>,
    /// What each model call used.
    pub(crate) spent: Vec<Usage>,
    /// Where the newest answer to a tool call stands.
    answered: Option<JournalPosition>,
    /// The definitions that the task holds on to.
    pub(crate) pinned: Vec<Digest>,
}

/// The events cannot follow on what is there.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl<E: std::error::Error> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Changes {
    /// Starts from the task's row as it is.
    pub(crate) fn of(row: Option<TaskRow>) -> Self {
        Self { row, ..Self::default() }
    }

    /// Follows one event. `load` fetches an execution that an earlier commit began.
    pub(crate) fn apply(
        &mut self,
        stream: &StreamId,
        position: JournalPosition,
        at: Timestamp,
        event: &Event,
        load: impl FnOnce(ExecutionId) -> Result<Option<AgentExecution>, Refused>,
    ) -> Result<(), Refused> {
        let StreamId::Task(task_id) = *stream else { return outside_tasks(stream, event) };
        if let Event::TaskCreated(created) = event {
            if self.row.is_some() {
                return Err(Refused("the task exists already".into()));
            }
            self.row = Some(TaskRow::new(task_id, created, position, at));
            self.message(position, MessageRole::User);
            self.pinned.extend(created.pins.iter().map(|pin| pin.digest));
            return Ok(());
        }
        let Some(row) = &mut self.row else {
            return Err(Refused("a task begins with its creation".into()));
        };
        match event {
            Event::TaskCreated(_)
            | Event::CancelRequested
            | Event::StateSet { .. }
            | Event::ModelCalled { .. }
            | Event::ModelFailed { .. }
            | Event::HistoryShortened { .. } => {}
            Event::TaskClaimed { instance, epoch } => {
                let expected = row.epoch.next();
                if *epoch != expected {
                    return Err(Refused(format!("the next owner has {expected:?}, not {epoch:?}")));
                }
                row.owner = Some(*instance);
                row.epoch = *epoch;
            }
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
                row.result_position = row.place(result, position);
            }
            Event::TaskFailed { code, partial_result, .. } => {
                row.end(TaskTransition::Fail, at)?;
                row.error_code = Some(*code);
                row.failure_position = Some(position);
                let partial = partial_result.as_ref();
                row.result_position = partial.and_then(|result| row.place(result, position));
            }
            Event::TaskCancelled => row.end(TaskTransition::Cancel, at)?,
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
            Event::MessageAdded { message } => self.said(position, message.role()),
            Event::CheckpointTaken {
                checkpoint_id,
                sequence,
                node,
                awaiting_human,
                message_count,
            } => {
                let taken = CheckpointRow {
                    sequence: *sequence,
                    checkpoint_id: *checkpoint_id,
                    position,
                    node: node.clone(),
                    message_count: message_count.unwrap_or(row.message_count),
                    awaiting_human: *awaiting_human,
                    created_at: at,
                };
                return self.checkpoint(taken);
            }
            Event::AgentEnabled | Event::AgentDisabled { .. } => {
                return Err(Refused(format!("{} belongs in an agent's stream", event.label())));
            }
        }
        Ok(())
    }

    /// The task that this one is a fork of.
    pub(crate) fn origin(&self) -> Option<TaskId> {
        self.row.as_ref().and_then(|row| row.forked_from)
    }

    fn checkpoint(&mut self, taken: CheckpointRow) -> Result<(), Refused> {
        let Some(row) = &mut self.row else { return Ok(()) };
        let (next, sequence) = (row.checkpoint_count, taken.sequence);
        if sequence != next {
            return Err(Refused(format!("the next checkpoint is {next}, not {sequence}")));
        }
        row.checkpoint_count += 1;
        self.checkpoints.push(taken);
        Ok(())
    }

    /// Answers of calls that were made at once come in any order, and say where they belong.
    fn tool_call(&mut self, position: JournalPosition, change: &ToolChange) {
        match (change, &mut self.row) {
            (ToolChange::Answer { ordinal, .. }, Some(row)) => {
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

    /// What came out of a node is the newest answer of a workflow.
    fn node(&mut self, position: JournalPosition, change: &NodeChange) {
        let answered = match change {
            NodeChange::Finish { output: NodeOutput::Answer, .. } => self.answered,
            NodeChange::Finish { output: NodeOutput::Text(_), .. } => Some(position),
            NodeChange::Start { .. } | NodeChange::Fail { .. } | NodeChange::Drop => None,
        };
        if let (Some(row), Some(_)) = (&mut self.row, answered) {
            row.answer_position = answered;
        }
    }

    /// What an agent says that is no model is its newest answer too.
    fn said(&mut self, position: JournalPosition, role: MessageRole) {
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
        load: impl FnOnce(ExecutionId) -> Result<Option<AgentExecution>, Refused>,
    ) -> Result<(), Refused> {
        if let (ExecutionChange::Report { usage, .. }, Some(row)) = (change, &mut self.row)
            && *usage != Usage::default()
        {
            row.usage += *usage;
            self.spent.push(*usage);
        }
        // It has a run of its own after all.
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
            (None, _) => return Err(Refused(format!("execution {id} has not started"))),
        };
        execution.apply(change, at)?;
        self.executions.push(execution);
        Ok(())
    }
}

/// What is not about a task changes no rows.
fn outside_tasks(stream: &StreamId, event: &Event) -> Result<(), Refused> {
    let is_of_agent = matches!(event, Event::AgentEnabled | Event::AgentDisabled { .. });
    match stream {
        StreamId::Agent(_) if is_of_agent => Ok(()),
        StreamId::Task(_) | StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => {
            Err(Refused(format!("{} belongs in a task's stream", event.label())))
        }
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
            usage: Usage::default(),
            message_count: 0,
            checkpoint_count: 0,
            created_position: position,
            answer_position: None,
            result_position: None,
            failure_position: None,
            forked_from: created.forked_from.map(|point| point.task_id),
            review_deadline: None,
            request: created.request,
            shared_with: None,
        }
    }

    /// A fork that was to share the history of a task that is not there.
    pub(crate) fn orphaned(origin: TaskId) -> Refused {
        Refused(format!("task {origin}, which it is a fork of, is not here any more"))
    }

    fn end(&mut self, on: TaskTransition, at: Timestamp) -> Result<(), Refused> {
        self.status = self.status.transition(on)?;
        self.completed_at = Some(at);
        self.review_deadline = None;
        Ok(())
    }

    /// A task that was paused runs again; any other that lives goes on as it was.
    fn resume(&mut self) -> Result<(), Refused> {
        match self.status {
            TaskStatus::Pending | TaskStatus::Running => Ok(()),
            TaskStatus::AwaitingHuman => {
                self.status = self.status.transition(TaskTransition::Resume)?;
                self.review_deadline = None;
                Ok(())
            }
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                Err(Refused(format!("the task is {status}")))
            }
        }
    }

    /// Where a result stands that the event at `position` refers to.
    fn place(&self, result: &ResultRef, position: JournalPosition) -> Option<JournalPosition> {
        match result {
            ResultRef::LastAnswer => self.answer_position,
            ResultRef::Text(_) => Some(position),
        }
    }

    /// Puts the row together with the texts that the journal holds.
    pub(crate) fn with_texts(
        &self,
        created: Event,
        result: Option<Event>,
        failure: Option<Event>,
        total: Usage,
    ) -> Option<Task> {
        let Event::TaskCreated(created) = created else { return None };
        let result = result.and_then(|event| into_result(event, self.created_at));
        let error = match failure {
            Some(Event::TaskFailed { error, .. }) => Some(error),
            Some(_) | None => None,
        };
        Some(Task {
            id: self.id,
            description: created.description,
            status: self.status,
            assigned_agent: self.assigned_agent.clone(),
            result,
            error,
            error_code: self.error_code,
            created_at: self.created_at,
            started_at: self.started_at,
            completed_at: self.completed_at,
            retention_days: self.retention_days,
            parent_task_id: self.parent_task_id,
            forked_from: created.forked_from.map(ForkedFrom::from),
            shared_with: self.shared_with,
            class: self.class.clone(),
            parameters: created.parameters,
            usage: self.usage.report(),
            total_usage: total.report(),
            interrupted: false,
            released: false,
        })
    }
}

/// The result that an event holds.
fn into_result(event: Event, at: Timestamp) -> Option<String> {
    match event {
        Event::TaskCompleted { result: ResultRef::Text(text) }
        | Event::TaskFailed { partial_result: Some(ResultRef::Text(text)), .. }
        | Event::NodeChanged {
            change: NodeChange::Finish { output: NodeOutput::Text(text), .. },
            ..
        } => Some(text),
        other => into_message(other, at).map(Message::into_content),
    }
}

/// The message that an event adds to the conversation.
pub(crate) fn into_message(event: Event, at: Timestamp) -> Option<Message> {
    match event {
        Event::TaskCreated(created) => {
            Some(Message::User { content: created.description, timestamp: at })
        }
        Event::ModelAnswered { message, .. } | Event::MessageAdded { message } => Some(message),
        Event::ToolChanged { call_id, change: ToolChange::Answer { content, is_error, .. } } => {
            Some(Message::Tool { tool_call_id: call_id, content, is_error, timestamp: at })
        }
        Event::TaskClaimed { .. }
        | Event::TaskReleased
        | Event::TaskStarted
        | Event::TaskPaused
        | Event::TaskResumed
        | Event::RunShared { .. }
        | Event::CancelRequested
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::TaskCancelled
        | Event::ExecutionChanged { .. }
        | Event::ModelCalled { .. }
        | Event::ModelFailed { .. }
        | Event::HistoryShortened { .. }
        | Event::ToolChanged { .. }
        | Event::NodeChanged { .. }
        | Event::StateSet { .. }
        | Event::ReviewOpened { .. }
        | Event::ReviewAnswered { .. }
        | Event::CheckpointTaken { .. }
        | Event::AgentEnabled
        | Event::AgentDisabled { .. } => None,
    }
}

/// The day on which something happened, in UTC.
pub(crate) fn day_of(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

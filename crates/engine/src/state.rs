//! A task as the engine sees it: its journal, folded.

mod calls;

use std::sync::Arc;

use jiff::Timestamp;
use polity_model::context::AgentContext;
use polity_model::event::{
    Epoch, Event, ExecutionChange, Pin, Recorded, ResultRef, Sequence, StreamId,
};
use polity_model::execution::{AgentExecution, RetryRefused};
use polity_model::ids::{CheckpointId, InstanceId, TaskId, ToolCallId};
use polity_model::machine::agent_loop::{LoopEvent, LoopState};
use polity_model::machine::task::{TaskStatus, TaskTransition};
use polity_model::machine::tool_call::CallState;
use polity_model::machine::{IllegalTransition, Machine};
use polity_model::message::Message;
use polity_model::review::ReviewSubject;
use polity_model::task::{RunFinished, Task, TaskEnd, TaskExecution, TaskOrder};

pub use calls::{Call, TurnCalls};

use crate::closure::Closure;
use crate::driver::History;

/// What a task waits for a person to decide.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenReview {
    /// The checkpoint at which the task waits.
    pub checkpoint_id: CheckpointId,
    /// What the decision is about.
    pub subject: ReviewSubject,
    /// What is asked, for people.
    pub question: String,
    /// Since when.
    pub created_at: Timestamp,
}

/// The state of one task, changed only by [`apply`](Self::apply).
#[derive(Debug, Clone)]
pub struct TaskState {
    sequence: Sequence,
    task: TaskExecution,
    context: AgentContext,
    pins: Vec<Pin>,
    owner: Option<InstanceId>,
    epoch: Epoch,
    execution: Option<AgentExecution>,
    doing: LoopState,
    /// When the next try is, while the loop waits for it.
    retry_at: Option<Timestamp>,
    /// How often the model call that is under way has been tried again.
    call_retries: u32,
    calls: TurnCalls,
    kept_from: u32,
    review: Option<OpenReview>,
    iterations: u32,
    checkpoints: u32,
    marks: Vec<u32>,
    cancel_requested: bool,
}

/// A journal that no task could have written.
#[derive(Debug, thiserror::Error)]
pub enum BrokenJournal {
    /// A task's events begin with its creation, and no other does.
    #[error("the journal of a task begins with its creation")]
    NoBeginning,
    /// An event is missing or doubled.
    #[error("event {found:?} follows on {last:?}")]
    Gap {
        /// The last event that was read.
        last: Sequence,
        /// The one that came next.
        found: Sequence,
    },
    /// The task could not have done that.
    #[error(transparent)]
    Task(#[from] IllegalTransition<TaskStatus>),
    /// The execution could not have done that.
    #[error(transparent)]
    Execution(#[from] RetryRefused),
    /// Something was charged after the end.
    #[error(transparent)]
    Charged(#[from] RunFinished),
    /// The loop could not have done that.
    #[error(transparent)]
    Loop(#[from] IllegalTransition<LoopState>),
    /// A tool call could not have done that.
    #[error(transparent)]
    Call(#[from] IllegalTransition<CallState>),
    /// A tool call moved on that no one asked for.
    #[error("no one asked for the tool call {0}")]
    NoCall(ToolCallId),
    /// A person answered what was not asked.
    #[error("a person answered what was not asked")]
    NoReview,
    /// An execution moved on before it started.
    #[error("an execution moved on that had not started")]
    NoExecution,
}

impl TaskState {
    /// Folds a task's events from the first on.
    pub fn load(closure: &Closure, events: Vec<Recorded>) -> Result<Self, BrokenJournal> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(BrokenJournal::NoBeginning)?;
        let mut state = Self::begin(closure, first)?;
        for recorded in events {
            state.apply(recorded)?;
        }
        Ok(state)
    }

    /// Starts from a task's creation.
    pub fn begin(closure: &Closure, first: Recorded) -> Result<Self, BrokenJournal> {
        let (StreamId::Task(id), Event::TaskCreated(created)) = (first.stream, first.event) else {
            return Err(BrokenJournal::NoBeginning);
        };
        let mut context = AgentContext::new(Arc::clone(&closure.agent));
        context.current_task = Some(id);
        context.working_memory.clone_from(&created.parameters);
        context.say(Message::User { content: created.description.clone(), timestamp: first.at });
        let order = TaskOrder {
            id,
            description: created.description,
            assigned_agent: created.assigned_agent,
            parameters: created.parameters,
            class: created.class,
            retention_days: created.retention_days,
            parent_task_id: created.parent_task_id,
            budget: created.budget,
            created_at: first.at,
        };
        Ok(Self {
            sequence: first.sequence,
            task: TaskExecution::new(Arc::new(order)),
            context,
            pins: created.pins,
            owner: None,
            epoch: Epoch::default(),
            execution: None,
            doing: LoopState::INITIAL,
            retry_at: None,
            call_retries: 0,
            calls: TurnCalls::default(),
            kept_from: 0,
            review: None,
            iterations: 0,
            checkpoints: 0,
            marks: Vec::new(),
            cancel_requested: false,
        })
    }

    /// Follows one event.
    pub fn apply(&mut self, recorded: Recorded) -> Result<(), BrokenJournal> {
        let Recorded { sequence, at, event, .. } = recorded;
        if sequence != self.sequence.plus(1) {
            return Err(BrokenJournal::Gap { last: self.sequence, found: sequence });
        }
        match event {
            Event::TaskCreated(_) => return Err(BrokenJournal::NoBeginning),
            Event::TaskClaimed { instance, epoch } => {
                self.owner = Some(instance);
                self.epoch = epoch;
            }
            Event::TaskReleased => self.owner = None,
            Event::TaskStarted => {
                self.task.advance(TaskTransition::Start, at)?;
            }
            Event::TaskPaused => {
                self.loop_on(LoopEvent::Ask)?;
                self.task.advance(TaskTransition::Ask, at)?;
                self.owner = None;
            }
            Event::TaskResumed => {
                if self.is_paused() {
                    self.loop_on(LoopEvent::Reply)?;
                    self.task.advance(TaskTransition::Resume, at)?;
                }
            }
            Event::CancelRequested => self.cancel_requested = true,
            Event::TaskCompleted { result } => {
                self.over()?;
                let result = self.result(result).unwrap_or_default();
                self.task.finish(TaskEnd::Completed { result }, at)?;
            }
            Event::TaskFailed { code, error, partial_result } => {
                self.over()?;
                let partial_result = partial_result.and_then(|result| self.result(result));
                self.task.finish(TaskEnd::Failed { code, error, partial_result }, at)?;
            }
            Event::TaskCancelled => {
                self.over()?;
                self.task.finish(TaskEnd::Cancelled, at)?;
            }
            Event::ExecutionChanged { execution_id, change } => {
                if let ExecutionChange::Start { agent, max_retries } = &change {
                    let (agent, task) = (agent.clone(), self.id());
                    self.execution =
                        Some(AgentExecution::new(execution_id, agent, task, *max_retries));
                }
                let execution = self.execution.as_mut().ok_or(BrokenJournal::NoExecution)?;
                execution.apply(&change, at)?;
                if let ExecutionChange::Fail { retry_at: Some(until), .. } = change {
                    self.loop_on(LoopEvent::BackOff)?;
                    self.retry_at = Some(until);
                    self.call_retries += 1;
                }
            }
            Event::ModelCalled { .. } => {
                self.loop_on(LoopEvent::Call)?;
                self.retry_at = None;
            }
            Event::ModelAnswered { message, usage, mark, .. } => {
                self.task.add_usage(usage)?;
                self.context.charge(usage);
                let acts = !message.tool_calls().is_empty();
                if acts {
                    self.calls.begin(message.tool_calls());
                }
                self.context.say(message);
                self.iterations += 1;
                self.call_retries = 0;
                self.marks.extend(mark);
                self.loop_on(if acts { LoopEvent::Act } else { LoopEvent::Answer })?;
            }
            Event::ModelFailed { mark, .. } => {
                self.marks.extend(mark);
                self.loop_on(LoopEvent::Fail)?;
            }
            Event::HistoryShortened { kept_from } => self.kept_from = kept_from,
            Event::ToolChanged { call_id, change } => {
                for answer in self.calls.apply(call_id, change, at)? {
                    self.context.say(answer);
                }
            }
            Event::ReviewOpened { checkpoint_id, subject, question } => {
                self.loop_on(LoopEvent::Ask)?;
                self.task.advance(TaskTransition::Ask, at)?;
                self.owner = None;
                let created_at = at;
                self.review = Some(OpenReview { checkpoint_id, subject, question, created_at });
            }
            Event::ReviewAnswered { verdict, .. } => {
                let review = self.review.take().ok_or(BrokenJournal::NoReview)?;
                self.loop_on(LoopEvent::Reply)?;
                self.task.advance(TaskTransition::Resume, at)?;
                self.calls.decided(review.subject.call_id(), verdict)?;
            }
            Event::MessageAdded { message } => self.context.say(message),
            Event::CheckpointTaken { .. } => self.checkpoints += 1,
        }
        self.sequence = sequence;
        Ok(())
    }

    fn loop_on(&mut self, on: LoopEvent) -> Result<(), IllegalTransition<LoopState>> {
        self.doing = self.doing.transition(on)?;
        Ok(())
    }

    /// The loop ends with the task, unless the model's last answer has ended it already.
    fn over(&mut self) -> Result<(), IllegalTransition<LoopState>> {
        self.review = None;
        self.retry_at = None;
        if self.doing == LoopState::Over { Ok(()) } else { self.loop_on(LoopEvent::End) }
    }

    fn result(&self, result: ResultRef) -> Option<String> {
        match result {
            ResultRef::LastAnswer => self.context.conversation.last_answer().map(str::to_owned),
        }
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.task.order().id
    }

    /// The stream its events are in.
    pub fn stream(&self) -> StreamId {
        StreamId::Task(self.id())
    }

    /// The newest event that this state knows of.
    pub fn sequence(&self) -> Sequence {
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

    /// The agent with its conversation.
    pub fn context(&self) -> &AgentContext {
        &self.context
    }

    /// The definitions that the task pinned.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// The process that the task belongs to.
    pub fn owner(&self) -> Option<InstanceId> {
        self.owner
    }

    /// How often the task has changed hands.
    pub fn epoch(&self) -> Epoch {
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
        History::shortened(self.context.conversation.messages(), self.kept_from as usize)
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

    /// The turn that the task is in, from 1: what the model is asked next, or has asked for last.
    pub fn turn(&self) -> u32 {
        match self.doing {
            LoopState::Acting | LoopState::Asking | LoopState::Over => self.iterations.max(1),
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

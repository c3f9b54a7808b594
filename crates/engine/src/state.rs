//! The state of a task: its journal, folded.

mod backoff;
mod calls;
mod context;
mod corrupt_journal;
mod fork;
mod view;
mod workflow;

use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::{AgentKind, TruncationPolicy};
use polity_model::event::{
    CompensationCause, DefinitionPin, Event, ExecutionChange, JournalPosition, OwnerEpoch,
    RecordedEvent, ResultRef, StreamId, StreamSequence, ToolChange,
};
use polity_model::execution::AgentExecution;
use polity_model::ids::{CheckpointId, ExecutionId, InstanceId, ToolCallId};
use polity_model::machine::agent_loop::{LoopEvent, LoopState};
use polity_model::machine::task::TaskTransition;
use polity_model::machine::{IllegalTransition, Machine};
use polity_model::message::Message;
use polity_model::remote::RemoteTask;
use polity_model::review::{ReviewAction, ReviewSubject, ReviewVerdict};
use polity_model::state::{InvalidUpdate, StateUpdates};
use polity_model::task::{TaskEnd, TaskExecution, TaskOrder};
use polity_model::usage::Usage;

pub use backoff::Backoff;
pub use calls::{TurnCall, TurnCalls};
pub use context::AgentContext;
pub use corrupt_journal::CorruptJournal;
pub use fork::CannotFork;
pub(crate) use workflow::{
    ItemOutput, NodeOutcome, check_outputs, item_error_policy, item_node, render_outputs,
};
pub use workflow::{MapProgress, MapRun, WorkflowProgress, WorkflowRun};

use crate::pinned::Assignee;

/// The review that a task waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenReview {
    /// The checkpoint at which the task waits.
    pub checkpoint_id: CheckpointId,
    /// The subject of the review.
    pub subject: ReviewSubject,
    /// The question for a person.
    pub question: String,
    /// The time at which the review opened.
    pub created_at: Timestamp,
    /// The deadline, if there is one.
    pub deadline: Option<Timestamp>,
    /// The action at the deadline; without one the task fails.
    pub default_action: Option<ReviewAction>,
}

/// The state of one task, changed only by [`apply`](Self::apply).
#[derive(Debug, Clone)]
pub struct TaskState {
    sequence: StreamSequence,
    task: TaskExecution,
    work: TaskWork,
    pins: Vec<DefinitionPin>,
    owner: Option<InstanceId>,
    epoch: OwnerEpoch,
    execution: Option<AgentExecution>,
    doing: LoopState,
    /// The wait before the next attempt.
    backoff: Option<Backoff>,
    /// The retries of the current model call.
    call_retries: u32,
    /// The time of the first failure of the current model call or run.
    failing_since: Option<Timestamp>,
    calls: TurnCalls,
    kept_from: u32,
    review: Option<OpenReview>,
    iterations: u32,
    /// The model replies of the tasks that this one continues as a retry.
    inherited_iterations: u32,
    /// The number of corrections that the model was asked for.
    corrections: u32,
    /// The number of cut answers that the next answer continues.
    cut_parts: u32,
    checkpoints: u32,
    marks: Vec<u32>,
    cancel_requested: bool,
    /// The compensations of a cancelled task that failed or did not run.
    compensation_error: Option<String>,
    /// True if the task was imported, and no person has trusted it since.
    needs_trust: bool,
    /// The newest remote task.
    remote: Option<RemoteTask>,
    /// True unless the remote task is known to have ended.
    remote_is_open: bool,
    /// The number of messages shared with the task it was forked from.
    shared: usize,
}

/// The work of a task.
#[derive(Debug, Clone)]
enum TaskWork {
    /// An agent with its conversation.
    Agent(AgentContext),
    /// A workflow.
    Workflow(Box<WorkflowRun>),
}

impl TaskState {
    /// Folds a task's events from the first on.
    pub fn load(assignee: &Assignee, events: Vec<RecordedEvent>) -> Result<Self, CorruptJournal> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(CorruptJournal::NoBeginning)?;
        Self::begin(assignee, first)?.following(events)
    }

    /// Applies events in order.
    pub fn following(
        mut self,
        events: impl IntoIterator<Item = RecordedEvent>,
    ) -> Result<Self, CorruptJournal> {
        for recorded in events {
            self.apply(recorded)?;
        }
        Ok(self)
    }

    /// The state after these events, without recording them.
    pub(crate) fn after(&self, events: &[Event], at: Timestamp) -> Result<Self, CorruptJournal> {
        let mut state = self.clone();
        for event in events {
            state.apply(RecordedEvent {
                position: JournalPosition::default(),
                stream: state.stream(),
                sequence: state.sequence.plus(1),
                at,
                event: event.clone(),
            })?;
        }
        Ok(state)
    }

    /// Creates the state from a task's creation.
    pub fn begin(assignee: &Assignee, first: RecordedEvent) -> Result<Self, CorruptJournal> {
        let (StreamId::Task(id), Event::TaskCreated(created)) = (&first.stream, &first.event)
        else {
            return Err(CorruptJournal::NoBeginning);
        };
        let input = Message::User { content: created.description.clone(), timestamp: first.at };
        let work = match assignee {
            Assignee::Agent(pinned) => {
                let mut context = AgentContext::new(Arc::clone(&pinned.agent));
                context.current_task = Some(*id);
                context.working_memory.clone_from(&created.parameters);
                context.say(input);
                TaskWork::Agent(context)
            }
            Assignee::Workflow(flow) => {
                let (plan, name) = (Arc::clone(&flow.plan), flow.workflow.name.clone());
                let metadata = created.parameters.clone();
                TaskWork::Workflow(Box::new(WorkflowRun::new(plan, name, input, metadata)))
            }
        };
        Self::created(first, work)
    }

    /// The state after a task's creation, with this work.
    fn created(first: RecordedEvent, work: TaskWork) -> Result<Self, CorruptJournal> {
        let (StreamId::Task(id), Event::TaskCreated(mut created)) = (first.stream, first.event)
        else {
            return Err(CorruptJournal::NoBeginning);
        };
        let pins = std::mem::take(&mut created.pins);
        let order = TaskOrder::of(id, created, first.at);
        Ok(Self {
            sequence: first.sequence,
            task: TaskExecution::new(Arc::new(order)),
            work,
            pins,
            owner: None,
            epoch: OwnerEpoch::default(),
            execution: None,
            doing: LoopState::INITIAL,
            backoff: None,
            call_retries: 0,
            failing_since: None,
            calls: TurnCalls::default(),
            kept_from: 0,
            review: None,
            iterations: 0,
            inherited_iterations: 0,
            corrections: 0,
            cut_parts: 0,
            checkpoints: 0,
            marks: Vec::new(),
            cancel_requested: false,
            compensation_error: None,
            needs_trust: false,
            remote: None,
            remote_is_open: false,
            shared: 0,
        })
    }

    /// Applies one event.
    pub fn apply(&mut self, recorded: RecordedEvent) -> Result<(), CorruptJournal> {
        let RecordedEvent { sequence, at, event, .. } = recorded;
        if sequence != self.sequence.plus(1) {
            return Err(CorruptJournal::Gap { last: self.sequence, found: sequence });
        }
        self.checkpoints += u32::from(event.checkpoint().is_some());
        match event {
            Event::TaskCreated(_) => return Err(CorruptJournal::NoBeginning),
            Event::TaskClaimed { instance, epoch } => {
                self.owner = Some(instance);
                self.epoch = epoch;
            }
            Event::TaskReleased => self.owner = None,
            Event::TaskStarted => self.started(at)?,
            Event::TaskPaused => self.asked(at)?,
            Event::TaskResumed => {
                if self.is_paused() {
                    self.loop_on(LoopEvent::Reply)?;
                    self.task.advance(TaskTransition::Resume, at)?;
                }
            }
            Event::RunShared { with } => self.task.share(Some(with)),
            Event::CancelRequested => self.cancel_requested = true,
            Event::TaskImported => self.needs_trust = true,
            Event::TaskTrusted { .. } => self.needs_trust = false,
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
            Event::TaskCancelled => self.cancelled(at)?,
            Event::CompensationStarted { failure } => self.begin_ending(failure, at)?,
            Event::CompensationFailed { error } => self.compensation_error = Some(error),
            Event::ExecutionChanged { execution_id, change } => {
                self.execution_changed(execution_id, &change, at)?;
            }
            Event::ModelCalled { .. } => {
                self.loop_on(LoopEvent::Call)?;
                self.backoff = None;
            }
            Event::ModelAnswered { message, usage, is_cut, mark, .. } => {
                let continues = is_cut && message.tool_calls().is_empty() && self.continues_cuts();
                self.cut_parts = if continues { self.cut_parts + 1 } else { 0 };
                self.answered(message, usage, mark)?;
            }
            Event::ModelFailed { mark, usage, .. } => self.model_failed(usage, mark)?,
            Event::HistoryShortened { kept_from } => self.kept_from = kept_from,
            Event::ToolChanged { call_id, change } => {
                self.tool_changed(call_id, change, at)?;
            }
            Event::NodeChanged { node, change } => {
                let run = self.workflow_run_mut()?;
                if let Some(call) = run.apply(&node, change, at)? {
                    self.calls.add(call);
                }
            }
            Event::ReviewOpened { checkpoint_id, subject, question, deadline, default_action } => {
                self.asked(at)?;
                if let Some(node) = subject.node() {
                    self.workflow_run_mut()?.ask(node, at)?;
                }
                self.review = Some(OpenReview {
                    checkpoint_id,
                    subject,
                    question,
                    created_at: at,
                    deadline,
                    default_action,
                });
            }
            Event::ReviewAnswered { verdict, message, state_updates, .. } => {
                self.review_answered(verdict, message, &state_updates, at)?;
            }
            Event::StateSet { updates } => self.update(&updates, at)?,
            Event::MessageAdded { message } => {
                if self.doing == LoopState::Answered && self.cut_parts == 0 {
                    self.corrections += 1;
                }
                self.say(message);
            }
            Event::CheckpointTaken { .. } => {}
            Event::AgentEnabled | Event::AgentDisabled { .. } | Event::ScheduleChanged { .. } => {
                return Err(CorruptJournal::NotOfATask(event.label()));
            }
        }
        self.sequence = sequence;
        Ok(())
    }

    fn cancelled(&mut self, at: Timestamp) -> Result<(), CorruptJournal> {
        self.over()?;
        let error = self.compensation_error.take();
        self.task.finish(TaskEnd::Cancelled { error }, at)?;
        Ok(())
    }

    /// Begins the end of a workflow. A cancel that was requested is carried out with it.
    fn begin_ending(
        &mut self,
        failure: Option<CompensationCause>,
        at: Timestamp,
    ) -> Result<(), CorruptJournal> {
        if self.doing == LoopState::Asking {
            self.loop_on(LoopEvent::Reply)?;
            self.task.advance(TaskTransition::Resume, at)?;
        }
        self.review = None;
        self.cancel_requested = false;
        self.workflow_run_mut()?.begin_ending(failure)
    }

    /// Waits for a person, without an owner.
    fn asked(&mut self, at: Timestamp) -> Result<(), CorruptJournal> {
        self.loop_on(LoopEvent::Ask)?;
        self.task.advance(TaskTransition::Ask, at)?;
        self.owner = None;
        Ok(())
    }

    fn started(&mut self, at: Timestamp) -> Result<(), CorruptJournal> {
        self.task.advance(TaskTransition::Start, at)?;
        // A workflow acts from its start, and so does an agent that continues in the middle of a turn
        // or a run.
        if self.workflow_run().is_some()
            || self.calls.open().next().is_some()
            || self.task.order().doubted_run.is_some()
        {
            self.loop_on(LoopEvent::Act)?;
        }
        Ok(())
    }

    fn execution_changed(
        &mut self,
        id: ExecutionId,
        change: &ExecutionChange,
        at: Timestamp,
    ) -> Result<(), CorruptJournal> {
        if let ExecutionChange::Start { agent, max_retries }
        | ExecutionChange::Queue { agent, max_retries, .. } = change
            && self.execution.as_ref().is_none_or(|known| known.id != id)
        {
            let (agent, task) = (agent.clone(), self.id());
            self.execution = Some(AgentExecution::new(id, agent, task, *max_retries));
        }
        if self.is_program() || self.is_remote() {
            self.run_changed(change)?;
        }
        let execution = self.execution.as_mut().ok_or(CorruptJournal::NoExecution)?;
        execution.apply(change, at)?;
        if let ExecutionChange::Fail { retry_at: Some(until), .. } = change {
            self.loop_on(LoopEvent::BackOff)?;
            self.backoff = Some(Backoff { since: at, until: *until });
            self.call_retries += 1;
            self.failing_since.get_or_insert(at);
        }
        Ok(())
    }

    /// Follows the execution of a CLI agent or remote agent in the loop.
    fn run_changed(&mut self, change: &ExecutionChange) -> Result<(), CorruptJournal> {
        match change {
            ExecutionChange::Start { .. } | ExecutionChange::Retry => {
                self.backoff = None;
                // It acts already after a person's decision.
                if self.doing != LoopState::Acting {
                    self.loop_on(LoopEvent::Act)?;
                }
            }
            ExecutionChange::Fail { retry_at: Some(_), .. } => self.loop_on(LoopEvent::Fail)?,
            ExecutionChange::Run { remote: Some(task), .. } => {
                self.remote = Some(task.clone());
                self.remote_is_open = true;
            }
            ExecutionChange::EndRemote { .. } => self.remote_is_open = false,
            ExecutionChange::Report { usage, report } => {
                self.remote_is_open &= report.remote.as_ref().is_none_or(|seen| !seen.is_over);
                self.task.add_usage(*usage)?;
                if let TaskWork::Agent(context) = &mut self.work {
                    context.charge(*usage);
                }
            }
            // The task no longer shares the run of its original.
            ExecutionChange::Queue { .. } => self.task.share(None),
            ExecutionChange::Run { remote: None, .. }
            | ExecutionChange::Complete
            | ExecutionChange::Fail { retry_at: None, .. }
            | ExecutionChange::TimeOut
            | ExecutionChange::Cancel
            | ExecutionChange::CleanUp
            | ExecutionChange::Finish => {}
        }
        Ok(())
    }

    fn tool_changed(
        &mut self,
        call_id: ToolCallId,
        change: ToolChange,
        at: Timestamp,
    ) -> Result<(), CorruptJournal> {
        match &mut self.work {
            TaskWork::Agent(context) => {
                for answer in self.calls.apply(call_id, change, at)? {
                    context.say(answer);
                }
            }
            // Calls of nodes are independent, and each ends by itself.
            TaskWork::Workflow(run) => {
                if let Some(answer) = self.calls.apply_alone(call_id, change, at)? {
                    let is_error = answer.is_error();
                    run.answered(call_id, answer.into_content(), is_error)?;
                }
            }
        }
        Ok(())
    }

    fn review_answered(
        &mut self,
        verdict: ReviewVerdict,
        message: Option<String>,
        updates: &StateUpdates,
        at: Timestamp,
    ) -> Result<(), CorruptJournal> {
        let review = self.review.take().ok_or(CorruptJournal::NoReview)?;
        self.loop_on(LoopEvent::Reply)?;
        self.task.advance(TaskTransition::Resume, at)?;
        if let Some(call_id) = review.subject.call_id() {
            return self.calls.decided(call_id, verdict);
        }
        if let ReviewSubject::RunDoubt { .. } | ReviewSubject::RemoteQuestion { .. } =
            review.subject
        {
            return Ok(());
        }
        let run = self.workflow_run_mut()?;
        run.apply_answer(verdict.action(), message, updates, at)?;
        if let ReviewSubject::Checkpoint { node } = review.subject
            && verdict != ReviewVerdict::Reject
        {
            run.allow(&node)?;
        }
        Ok(())
    }

    /// Checks that the State allows these updates.
    pub(crate) fn check_updates(&self, updates: &StateUpdates) -> Result<(), CorruptJournal> {
        self.clone().update(updates, Timestamp::UNIX_EPOCH)
    }

    /// Applies updates of the State.
    fn update(&mut self, updates: &StateUpdates, at: Timestamp) -> Result<(), CorruptJournal> {
        match &mut self.work {
            TaskWork::Agent(context) => {
                if let Some((path, ..)) = updates.node_outputs().next() {
                    let problem = "the task has no workflow, and so no nodes".to_owned();
                    let path = path.to_owned();
                    return Err(InvalidUpdate::NodeOutput { path, problem }.into());
                }
                updates.set_metadata(&mut context.working_memory)?;
                updates.messages(at).into_iter().for_each(|message| context.say(message));
                Ok(())
            }
            TaskWork::Workflow(run) => Ok(run.update(updates, at)?),
        }
    }

    fn say(&mut self, message: Message) {
        match &mut self.work {
            TaskWork::Agent(context) => context.say(message),
            TaskWork::Workflow(run) => run.add(message),
        }
    }

    fn workflow_run_mut(&mut self) -> Result<&mut WorkflowRun, CorruptJournal> {
        match &mut self.work {
            TaskWork::Agent(_) => Err(CorruptJournal::NoWorkflow),
            TaskWork::Workflow(run) => Ok(run),
        }
    }

    /// Applies the model's reply, with or without tool calls.
    fn model_failed(&mut self, usage: Usage, mark: Option<u32>) -> Result<(), CorruptJournal> {
        self.charge(usage)?;
        self.marks.extend(mark);
        self.loop_on(LoopEvent::Fail)?;
        Ok(())
    }

    /// Adds the usage of a model call.
    fn charge(&mut self, usage: Usage) -> Result<(), CorruptJournal> {
        self.task.add_usage(usage)?;
        if let TaskWork::Agent(context) = &mut self.work {
            context.charge(usage);
        }
        Ok(())
    }

    fn answered(
        &mut self,
        message: Message,
        usage: Usage,
        mark: Option<u32>,
    ) -> Result<(), CorruptJournal> {
        self.charge(usage)?;
        let acts = !message.tool_calls().is_empty();
        if acts {
            self.calls.begin(message.tool_calls());
        }
        self.say(message);
        self.iterations += 1;
        self.call_retries = 0;
        self.failing_since = None;
        self.marks.extend(mark);
        self.loop_on(if acts { LoopEvent::Act } else { LoopEvent::Answer })?;
        Ok(())
    }

    /// True if the agent's model is asked to continue answers that were cut.
    fn continues_cuts(&self) -> bool {
        match &self.work {
            TaskWork::Agent(context) => match &context.agent.kind {
                AgentKind::Llm(llm) => llm.on_truncation == TruncationPolicy::Continue,
                AgentKind::Cli(_) | AgentKind::Remote(_) => false,
            },
            TaskWork::Workflow(_) => false,
        }
    }

    fn loop_on(&mut self, on: LoopEvent) -> Result<(), IllegalTransition<LoopState>> {
        self.doing = self.doing.transition(on)?;
        Ok(())
    }

    /// Ends the loop with the task.
    fn over(&mut self) -> Result<(), IllegalTransition<LoopState>> {
        self.review = None;
        self.backoff = None;
        self.loop_on(LoopEvent::End)
    }

    fn result(&self, result: ResultRef) -> Option<String> {
        match result {
            ResultRef::LastAnswer => self.last_answer().map(str::to_owned),
            ResultRef::Text(text) => Some(text),
        }
    }
}

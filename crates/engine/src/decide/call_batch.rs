//! A turn in which the model acts: what happens to each of its calls, and what follows from where
//! they all stand.
//!
//! Calls that may be made are made at once, side by side. A call that needs a person is put before
//! one when nothing else is under way, one call at a time. Where only sub-agents are left that wait
//! for a person, the task is paused with them. When every call has its answer, the model is called
//! again. The nodes of a workflow that are calls go the same way, and lead on to other nodes.

use std::num::NonZeroU64;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{LlmAgent, WorkflowNode};
use polity_model::event::{Event, ToolChange};
use polity_model::failure::{AttemptFailure, ErrorCode};
use polity_model::ids::{CheckpointId, ToolCallId};
use polity_model::machine::tool_call::CallState;
use polity_model::name::Name;
use polity_model::review::ReviewSubject;
use polity_model::tool::ToolName;
use polity_model::trace::shorten;
use serde_json::{Map, Value};

use crate::decide::outcomes::{call_model, fail_task, ordinal};
use crate::decide::{CommandRejection, Decision, DecisionContext, Effect, llm};
use crate::driver::Tool;
use crate::state::{CorruptJournal, TaskState, WorkflowRun};

/// How long a call may take whose tool is not in the agent's toolbox any more.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(5);

/// How much of a call's arguments a question repeats, in characters. `review show` has them all.
const QUESTION_CHARACTERS_MAX: usize = 400;

/// How often a node's call is repeated after a passing failure, where the node does not say.
const NODE_RETRIES_DEFAULT: u32 = 3;

/// A decision about the calls of a turn, as it is being put together.
pub(crate) struct CallBatch<'a> {
    state: &'a TaskState,
    ctx: &'a mut DecisionContext,
    caller: Caller<'a>,
    /// Where the answer to the first call stands in the conversation.
    first_answer: usize,
    /// Where each call stands after the events so far.
    call_states: Vec<CallState>,
    events: Vec<Event>,
    effects: Vec<Effect>,
    /// The calls that nodes have begun with these events.
    new_calls: Vec<ToolCallId>,
    /// Why a call of a workflow's node failed, for programs.
    error_code: Option<ErrorCode>,
}

/// Whose calls they are.
#[derive(Clone, Copy)]
enum Caller<'a> {
    /// An agent's.
    Agent(&'a LlmAgent),
    /// The nodes' of a workflow.
    Workflow(&'a WorkflowRun),
}

/// A call, as far as it must be known to go on.
pub(crate) struct CallView<'a> {
    pub(crate) id: ToolCallId,
    /// The tool as people write it.
    pub(crate) name: String,
    pub(crate) arguments: &'a Map<String, Value>,
}

impl<'a> CallView<'a> {
    /// Returns the call at an index of the task's current turn.
    pub(crate) fn of(state: &'a TaskState, index: usize) -> Option<Self> {
        let call = state.calls().all().get(index)?;
        Some(Self { id: call.id(), name: call.name(), arguments: call.arguments() })
    }
}

impl<'a> CallBatch<'a> {
    /// On the turn that the task is in.
    pub(crate) fn of_state(
        state: &'a TaskState,
        ctx: &'a mut DecisionContext,
    ) -> Result<Self, CommandRejection> {
        let caller = match state.workflow_run() {
            Some(run) => Caller::Workflow(run),
            None => Caller::Agent(llm(state)?),
        };
        let call_states = state.calls().all().iter().map(|call| call.state).collect();
        let first_answer = state.message_count();
        let (events, effects, new_calls, error_code) = (Vec::new(), Vec::new(), Vec::new(), None);
        Ok(Self {
            state,
            ctx,
            caller,
            first_answer,
            call_states,
            events,
            effects,
            new_calls,
            error_code,
        })
    }

    /// On a turn that begins with an answer of the model, which is the first of the events.
    pub(crate) fn of_reply(
        state: &'a TaskState,
        llm: &'a LlmAgent,
        ctx: &'a mut DecisionContext,
        answered: Event,
        calls: usize,
    ) -> Self {
        let first_answer = state.message_count() + 1;
        let (call_states, events) = (vec![CallState::Asked; calls], vec![answered]);
        let (caller, effects, new_calls, error_code) =
            (Caller::Agent(llm), Vec::new(), Vec::new(), None);
        Self {
            state,
            ctx,
            caller,
            first_answer,
            call_states,
            events,
            effects,
            new_calls,
            error_code,
        }
    }

    pub(crate) fn state(&self) -> &'a TaskState {
        self.state
    }

    /// The workflow that makes the calls, if a workflow does.
    pub(crate) fn workflow_run(&self) -> Option<&'a WorkflowRun> {
        match self.caller {
            Caller::Agent(_) => None,
            Caller::Workflow(run) => Some(run),
        }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn call_states(&self) -> &[CallState] {
        &self.call_states
    }

    /// Why a call of a workflow's node failed, for programs.
    pub(crate) fn error_code(&self) -> Option<ErrorCode> {
        self.error_code
    }

    pub(crate) fn set_error_code(&mut self, error_code: Option<ErrorCode>) {
        self.error_code = error_code;
    }

    /// The task after the events so far.
    pub(crate) fn state_after_events(&self) -> Result<TaskState, CorruptJournal> {
        self.state.after(&self.events, self.ctx.now)
    }

    /// The number of the next checkpoint, after the events so far.
    pub(crate) fn next_checkpoint(&self) -> u32 {
        let is_checkpoint = |event: &&Event| matches!(event, Event::CheckpointTaken { .. });
        self.state.checkpoints() + ordinal(self.events.iter().filter(is_checkpoint).count())
    }

    /// The place of a call, which may be one that these events have begun.
    fn index_of(&self, call_id: ToolCallId) -> Option<usize> {
        let known = self.state.calls().all().len();
        let new = || self.new_calls.iter().position(|new| *new == call_id);
        self.state.calls().index(call_id).or_else(|| new().map(|new| known + new))
    }

    /// A call is not needed any more, whether it is under way or about to be.
    pub(crate) fn abandon(&mut self, call_id: ToolCallId, why: &str) {
        let Some(index) = self.index_of(call_id) else { return };
        if self.call_states[index] == CallState::Answered {
            return;
        }
        self.answer_with_error(index, call_id, why.to_owned(), 0);
        self.effects.retain(|effect| effect.begins() != Some(call_id));
        if !self.new_calls.contains(&call_id) {
            self.effects.push(Effect::AbandonCall { call_id });
        }
    }

    /// Answers the calls that these events have begun, because the task ends with them.
    pub(crate) fn answer_new_calls(&mut self, why: &str) {
        for call_id in self.new_calls.clone() {
            self.abandon(call_id, &format!("{why} before the tool was called"));
        }
    }

    /// How often a call is repeated after a passing failure.
    pub(crate) fn max_retries(&self, call_id: ToolCallId) -> u32 {
        match self.caller {
            Caller::Agent(llm) => llm.max_retries,
            Caller::Workflow(_) => self
                .node_of(call_id)
                .and_then(|node| node.max_retries)
                .unwrap_or(NODE_RETRIES_DEFAULT),
        }
    }

    /// Whether a person must allow a tool.
    pub(crate) fn needs_approval(&self, tool: &ToolName) -> bool {
        match self.caller {
            Caller::Agent(llm) => llm.approval.iter().any(|pattern| pattern.covers(tool)),
            Caller::Workflow(_) => false,
        }
    }

    fn name(&self) -> &'a Name {
        match self.caller {
            Caller::Agent(llm) => &llm.identity.name,
            Caller::Workflow(run) => run.workflow(),
        }
    }

    /// How long the node of a call may take, if the workflow says.
    fn timeout_of(&self, call_id: ToolCallId) -> Option<NonZeroU64> {
        match self.caller {
            Caller::Agent(_) => None,
            Caller::Workflow(run) => run.plan().timeout_seconds(run.node_of(call_id)?),
        }
    }

    /// The node that a call works for.
    fn node_of(&self, call_id: ToolCallId) -> Option<&'a WorkflowNode> {
        match self.caller {
            Caller::Agent(_) => None,
            Caller::Workflow(run) => {
                run.node_of(call_id).map(|node| &run.plan().nodes()[node].node)
            }
        }
    }

    pub(crate) fn ctx(&mut self) -> &mut DecisionContext {
        self.ctx
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    fn push_change(&mut self, call_id: ToolCallId, change: ToolChange) {
        self.events.push(Event::ToolChanged { call_id, change });
    }

    /// The call is made.
    pub(crate) fn call(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        tool: &Tool,
        arguments: Option<Map<String, Value>>,
    ) {
        let name = tool.name.clone();
        self.call_by_name(index, call_id, name, arguments, tool.repeatable, tool.timeout);
    }

    /// A call that a node has just asked for is made.
    pub(crate) fn call_new(
        &mut self,
        call_id: ToolCallId,
        tool: &ToolName,
        is_idempotent: bool,
        timeout: Option<Duration>,
    ) {
        let index = self.call_states.len();
        self.call_states.push(CallState::Asked);
        self.new_calls.push(call_id);
        let known = self.ctx.toolbox.find(tool.server(), tool.tool());
        let repeatable = is_idempotent || known.is_some_and(|tool| tool.repeatable);
        let deadline = timeout.map(|timeout| after(self.ctx.now, timeout));
        let timeout = timeout.or(known.map(|tool| tool.timeout)).unwrap_or(TIMEOUT_DEFAULT);
        self.start_call(index, call_id, tool.clone(), None, repeatable, timeout, deadline);
    }

    /// The call is made although its tool may not be listed any more: its server will tell.
    pub(crate) fn call_again(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        tool: &ToolName,
        arguments: Option<Map<String, Value>>,
        repeatable: bool,
    ) {
        if let Some(tool) = self.ctx.toolbox.find(tool.server(), tool.tool()).cloned() {
            self.call(index, call_id, &tool, arguments);
        } else {
            let tool = tool.clone();
            self.call_by_name(index, call_id, tool, arguments, repeatable, TIMEOUT_DEFAULT);
        }
    }

    fn call_by_name(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        tool: ToolName,
        arguments: Option<Map<String, Value>>,
        repeatable: bool,
        timeout: Duration,
    ) {
        let node = self.node_of(call_id);
        let own = self.timeout_of(call_id);
        let own = own.map(|seconds| Duration::from_secs(seconds.get()));
        // The time while no one was at work, or a person was waited for, is not the node's.
        let deadline = own.map(|own| after(self.ctx.now, own));
        let repeatable = repeatable || node.is_some_and(|node| node.idempotent);
        let timeout = own.unwrap_or(timeout);
        self.start_call(index, call_id, tool, arguments, repeatable, timeout, deadline);
    }

    #[expect(clippy::too_many_arguments, reason = "all that a call is")]
    fn start_call(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        tool: ToolName,
        arguments: Option<Map<String, Value>>,
        repeatable: bool,
        timeout: Duration,
        deadline: Option<Timestamp>,
    ) {
        self.call_states[index] = CallState::Running;
        // A sub-agent's session is found again by the call's id, so it is never opened twice.
        let (repeatable, effect) = match tool.sub_agent() {
            Some(_) => (true, Effect::OpenSession { call_id, deadline }),
            None => (repeatable, Effect::CallTool { call_id, timeout }),
        };
        self.push_change(call_id, ToolChange::Call { tool, arguments, repeatable });
        self.effects.push(effect);
    }

    /// The call waits for a person's approval.
    pub(crate) fn hold(&mut self, index: usize, call_id: ToolCallId, tool: ToolName) {
        self.call_states[index] = CallState::Held;
        self.push_change(call_id, ToolChange::Hold { tool });
    }

    /// The call's sub-agent waits for a person.
    pub(crate) fn wait_for_session(&mut self, index: usize, call_id: ToolCallId) {
        self.call_states[index] = CallState::Waiting;
        self.push_change(call_id, ToolChange::Wait);
        self.effects.push(Effect::WatchSession { call_id });
    }

    /// No one knows whether the call had its effect.
    pub(crate) fn mark_in_doubt(&mut self, index: usize, call_id: ToolCallId) {
        self.call_states[index] = CallState::InDoubt;
        self.push_change(call_id, ToolChange::Doubt);
    }

    /// An attempt failed, and another follows at its time.
    pub(crate) fn record_attempt(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        failure: AttemptFailure,
        duration_ms: u64,
        retry_at: Timestamp,
    ) {
        self.call_states[index] = CallState::Failed;
        self.push_change(call_id, ToolChange::Fail { failure, duration_ms, retry_at });
    }

    /// The next attempt waits for its time.
    pub(crate) fn wait_for_retry(&mut self, call_id: ToolCallId, until: Timestamp) {
        self.effects.push(Effect::WaitForTool { call_id, until });
    }

    /// The call has its answer.
    pub(crate) fn answer(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        structured: Option<Value>,
        duration_ms: u64,
    ) {
        self.push_answer(index, call_id, content, structured, false, duration_ms);
    }

    /// The call is answered with what went wrong, which the model can act on.
    pub(crate) fn answer_with_error(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        duration_ms: u64,
    ) {
        self.push_answer(index, call_id, content, None, true, duration_ms);
    }

    fn push_answer(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        structured: Option<Value>,
        is_error: bool,
        duration_ms: u64,
    ) {
        self.call_states[index] = CallState::Answered;
        // Calls of nodes stand alone, and their answers come as they come.
        let ordinal = match self.caller {
            Caller::Agent(_) => Some(ordinal(self.first_answer + index)),
            Caller::Workflow(_) => None,
        };
        let change = ToolChange::Answer { ordinal, content, structured, is_error, duration_ms };
        self.push_change(call_id, change);
    }

    /// The task ends here, with what there is.
    pub(crate) fn into_failure(mut self, error_code: ErrorCode, error: String) -> Decision {
        fail_task(self.state, &mut self.events, error_code, error);
        Decision { events: self.events, effects: Vec::new() }
    }

    /// True while any call has neither an answer nor a reason to wait for a person.
    pub(crate) fn has_calls_in_progress(&self) -> bool {
        self.call_states
            .iter()
            .any(|call| matches!(call, CallState::Asked | CallState::Running | CallState::Failed))
    }

    /// Calls the model with the answers.
    pub(crate) fn into_model_call(self) -> Decision {
        call_model(self.state, self.ctx, self.events, [])
    }

    /// The decision without the effects.
    pub(crate) fn into_events_only(self) -> Decision {
        Decision { events: self.events, effects: Vec::new() }
    }

    /// The events so far, for a task that ends in another way.
    pub(crate) fn into_events(self) -> Vec<Event> {
        self.events
    }

    /// Takes the events so far out.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What was put together, with more to do.
    pub(crate) fn into_decision(mut self, more: impl IntoIterator<Item = Effect>) -> Decision {
        self.effects.extend(more);
        Decision { events: self.events, effects: self.effects }
    }

    pub(crate) fn into_review(mut self, call: CallView<'_>, in_doubt: bool) -> Decision {
        let CallView { id: call_id, name, arguments } = call;
        let agent = self.name();
        let arguments = Value::Object(arguments.clone()).to_string();
        let arguments = shorten(&arguments, QUESTION_CHARACTERS_MAX);
        let (subject, question) = if in_doubt {
            let question = format!(
                "{agent} was calling {name} with {arguments} when its process ended; no one knows \
                 whether it had its effect"
            );
            (ReviewSubject::Doubt { call_id }, question)
        } else {
            let question = format!("{agent} wants to call {name} with {arguments}");
            (ReviewSubject::Approval { call_id }, question)
        };
        let checkpoint_id = CheckpointId::from_random_bytes(self.ctx.entropy.id_bytes());
        self.events.push(Event::CheckpointTaken {
            checkpoint_id,
            sequence: self.next_checkpoint(),
            node: self.node_of(call_id).map_or(agent, |node| &node.name).to_string(),
            awaiting_human: true,
            // Answers that are there already join the State when all are.
            message_count: match self.caller {
                Caller::Agent(_) => Some(ordinal(self.first_answer)),
                Caller::Workflow(_) => None,
            },
        });
        self.events.push(Event::ReviewOpened {
            checkpoint_id,
            subject,
            question,
            deadline: None,
            default_action: None,
        });
        Decision { events: self.events, effects: Vec::new() }
    }
}

fn after(time: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| time.saturating_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}

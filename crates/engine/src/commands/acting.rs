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

use super::walking::Walking;
use super::{call_model, fail};
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
pub(super) struct Acting<'a> {
    state: &'a TaskState,
    ctx: &'a mut DecisionContext,
    caller: Caller<'a>,
    /// Where the answer to the first call stands in the conversation.
    first_answer: usize,
    /// Where each call stands after the events so far.
    standing: Vec<CallState>,
    events: Vec<Event>,
    effects: Vec<Effect>,
    /// The calls that nodes have begun with these events.
    new_calls: Vec<ToolCallId>,
    /// Why a call of a workflow's node failed, for programs.
    code: Option<ErrorCode>,
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
pub(super) struct CallView<'a> {
    pub(super) id: ToolCallId,
    /// The tool as people write it.
    pub(super) name: String,
    pub(super) arguments: &'a Map<String, Value>,
}

impl<'a> Acting<'a> {
    /// On the turn that the task is in.
    pub(super) fn of(
        state: &'a TaskState,
        ctx: &'a mut DecisionContext,
    ) -> Result<Self, CommandRejection> {
        let caller = match state.walk() {
            Some(walk) => Caller::Workflow(walk),
            None => Caller::Agent(llm(state)?),
        };
        let standing = state.calls().all().iter().map(|call| call.state).collect();
        let first_answer = state.message_count();
        let (events, effects, new_calls, code) = (Vec::new(), Vec::new(), Vec::new(), None);
        Ok(Self { state, ctx, caller, first_answer, standing, events, effects, new_calls, code })
    }

    /// On a turn that begins with an answer of the model, which is the first of the events.
    pub(super) fn begin(
        state: &'a TaskState,
        llm: &'a LlmAgent,
        ctx: &'a mut DecisionContext,
        answered: Event,
        calls: usize,
    ) -> Self {
        let first_answer = state.message_count() + 1;
        let (standing, events) = (vec![CallState::Asked; calls], vec![answered]);
        let (caller, effects, new_calls, code) = (Caller::Agent(llm), Vec::new(), Vec::new(), None);
        Self { state, ctx, caller, first_answer, standing, events, effects, new_calls, code }
    }

    pub(super) fn state(&self) -> &'a TaskState {
        self.state
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(super) fn standing(&self) -> &[CallState] {
        &self.standing
    }

    /// Why a call of a workflow's node failed, for programs.
    pub(super) fn code(&self) -> Option<ErrorCode> {
        self.code
    }

    pub(super) fn failed_with(&mut self, code: Option<ErrorCode>) {
        self.code = code;
    }

    /// The task after the events so far.
    pub(super) fn state_now(&self) -> Result<TaskState, CorruptJournal> {
        self.state.after(&self.events, self.ctx.now)
    }

    /// The number of the next checkpoint, after the events so far.
    pub(super) fn next_checkpoint(&self) -> u32 {
        let is_checkpoint = |event: &&Event| matches!(event, Event::CheckpointTaken { .. });
        self.state.checkpoints() + ordinal(self.events.iter().filter(is_checkpoint).count())
    }

    /// The place of a call, which may be one that these events have begun.
    fn index_of(&self, call_id: ToolCallId) -> Option<usize> {
        let known = self.state.calls().all().len();
        let new = || self.new_calls.iter().position(|new| *new == call_id);
        self.state.calls().index(call_id).or_else(|| new().map(|place| known + place))
    }

    /// A call is not needed any more, whether it is under way or about to be.
    pub(super) fn abandon(&mut self, call_id: ToolCallId, why: &str) {
        let Some(index) = self.index_of(call_id) else { return };
        if self.standing[index] == CallState::Answered {
            return;
        }
        self.answer_with_error(index, call_id, why.to_owned(), 0);
        self.effects.retain(|effect| effect.begins() != Some(call_id));
        if !self.new_calls.contains(&call_id) {
            self.effects.push(Effect::AbandonCall { call_id });
        }
    }

    /// Answers the calls that these events have begun, because the task ends with them.
    pub(super) fn answer_new_calls(&mut self, why: &str) {
        for call_id in self.new_calls.clone() {
            self.abandon(call_id, &format!("{why} before the tool was called"));
        }
    }

    /// How often a call is repeated after a passing failure.
    pub(super) fn max_retries(&self, call_id: ToolCallId) -> u32 {
        match self.caller {
            Caller::Agent(llm) => llm.max_retries,
            Caller::Workflow(_) => self
                .node_of(call_id)
                .and_then(|node| node.max_retries)
                .unwrap_or(NODE_RETRIES_DEFAULT),
        }
    }

    /// Whether a person must allow a tool.
    pub(super) fn needs_approval(&self, tool: &ToolName) -> bool {
        match self.caller {
            Caller::Agent(llm) => llm.approval.iter().any(|pattern| pattern.covers(tool)),
            Caller::Workflow(_) => false,
        }
    }

    fn name(&self) -> &'a Name {
        match self.caller {
            Caller::Agent(llm) => &llm.identity.name,
            Caller::Workflow(walk) => walk.workflow(),
        }
    }

    /// How long the node of a call may take, if the workflow says.
    fn timeout_of(&self, call_id: ToolCallId) -> Option<NonZeroU64> {
        match self.caller {
            Caller::Agent(_) => None,
            Caller::Workflow(walk) => walk.plan().timeout_seconds(walk.node_of(call_id)?),
        }
    }

    /// The node that a call works for.
    fn node_of(&self, call_id: ToolCallId) -> Option<&'a WorkflowNode> {
        match self.caller {
            Caller::Agent(_) => None,
            Caller::Workflow(walk) => {
                walk.node_of(call_id).map(|node| &walk.plan().nodes()[node].node)
            }
        }
    }

    pub(super) fn ctx(&mut self) -> &mut DecisionContext {
        self.ctx
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    fn changed(&mut self, call_id: ToolCallId, change: ToolChange) {
        self.events.push(Event::ToolChanged { call_id, change });
    }

    /// The call is made.
    pub(super) fn call(
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
    pub(super) fn call_new(
        &mut self,
        call_id: ToolCallId,
        tool: &ToolName,
        is_idempotent: bool,
        timeout: Option<Duration>,
    ) {
        let index = self.standing.len();
        self.standing.push(CallState::Asked);
        self.new_calls.push(call_id);
        let known = self.ctx.toolbox.find(tool.server(), tool.tool());
        let repeatable = is_idempotent || known.is_some_and(|tool| tool.repeatable);
        let deadline = timeout.map(|timeout| after(self.ctx.now, timeout));
        let timeout = timeout.or(known.map(|tool| tool.timeout)).unwrap_or(TIMEOUT_DEFAULT);
        self.make(index, call_id, tool.clone(), None, repeatable, timeout, deadline);
    }

    /// The call is made although its tool may not be listed any more: its server will tell.
    pub(super) fn call_again(
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
        self.make(index, call_id, tool, arguments, repeatable, timeout, deadline);
    }

    #[expect(clippy::too_many_arguments, reason = "all that a call is")]
    fn make(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        tool: ToolName,
        arguments: Option<Map<String, Value>>,
        repeatable: bool,
        timeout: Duration,
        deadline: Option<Timestamp>,
    ) {
        self.standing[index] = CallState::Running;
        // A sub-agent's session is found again by the call's id, so it is never opened twice.
        let (repeatable, effect) = match tool.sub_agent() {
            Some(_) => (true, Effect::OpenSession { call_id, deadline }),
            None => (repeatable, Effect::CallTool { call_id, timeout }),
        };
        self.changed(call_id, ToolChange::Call { tool, arguments, repeatable });
        self.effects.push(effect);
    }

    /// The call waits for a person's approval.
    pub(super) fn hold(&mut self, index: usize, call_id: ToolCallId, tool: ToolName) {
        self.standing[index] = CallState::Held;
        self.changed(call_id, ToolChange::Hold { tool });
    }

    /// The call's sub-agent waits for a person.
    pub(super) fn wait_with_session(&mut self, index: usize, call_id: ToolCallId) {
        self.standing[index] = CallState::Waiting;
        self.changed(call_id, ToolChange::Wait);
        self.effects.push(Effect::WatchSession { call_id });
    }

    /// No one knows whether the call had its effect.
    pub(super) fn doubt(&mut self, index: usize, call_id: ToolCallId) {
        self.standing[index] = CallState::InDoubt;
        self.changed(call_id, ToolChange::Doubt);
    }

    /// An attempt failed, and another follows at its time.
    pub(super) fn failed(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        failure: AttemptFailure,
        duration_ms: u64,
        retry_at: Timestamp,
    ) {
        self.standing[index] = CallState::Failed;
        self.changed(call_id, ToolChange::Fail { failure, duration_ms, retry_at });
    }

    /// The next attempt waits for its time.
    pub(super) fn wait(&mut self, call_id: ToolCallId, until: Timestamp) {
        self.effects.push(Effect::WaitForTool { call_id, until });
    }

    /// The call has its answer.
    pub(super) fn answer(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        structured: Option<Value>,
        duration_ms: u64,
    ) {
        self.answered(index, call_id, content, structured, false, duration_ms);
    }

    /// The call is answered with what went wrong, which the model can act on.
    pub(super) fn answer_with_error(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        duration_ms: u64,
    ) {
        self.answered(index, call_id, content, None, true, duration_ms);
    }

    fn answered(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        structured: Option<Value>,
        is_error: bool,
        duration_ms: u64,
    ) {
        self.standing[index] = CallState::Answered;
        // Calls of nodes stand alone, and their answers come as they come.
        let ordinal = match self.caller {
            Caller::Agent(_) => Some(ordinal(self.first_answer + index)),
            Caller::Workflow(_) => None,
        };
        let change = ToolChange::Answer { ordinal, content, structured, is_error, duration_ms };
        self.changed(call_id, change);
    }

    /// The task ends here, with what there is.
    pub(super) fn fail(mut self, code: ErrorCode, error: String) -> Decision {
        fail(self.state, &mut self.events, code, error);
        Decision { events: self.events, effects: Vec::new() }
    }

    /// The events so far, for a task that ends in another way.
    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }

    /// Takes the events so far out.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What was put together, with more to do.
    pub(super) fn into_decision(mut self, more: impl IntoIterator<Item = Effect>) -> Decision {
        self.effects.extend(more);
        Decision { events: self.events, effects: self.effects }
    }

    /// What follows from where the calls stand. `view` tells of the call at an index.
    pub(super) fn go_on<'v>(mut self, view: impl Fn(usize) -> Option<CallView<'v>>) -> Decision {
        if let Caller::Workflow(walk) = self.caller {
            return Walking::go_on(self, walk);
        }
        let is = |state| move |standing: &CallState| *standing == state;
        let under_way = self.standing.iter().any(|standing| {
            matches!(standing, CallState::Asked | CallState::Running | CallState::Failed)
        });
        if under_way {
            return Decision { events: self.events, effects: self.effects };
        }
        // Doubts come first: what was done, or not, may change a person's mind about the rest.
        let doubt = self.standing.iter().position(is(CallState::InDoubt));
        let held = self.standing.iter().position(is(CallState::Held));
        match (doubt.and_then(&view), held.and_then(&view)) {
            (Some(call), _) => self.ask(call, true),
            (None, Some(call)) => self.ask(call, false),
            (None, None) if self.standing.contains(&CallState::Waiting) => {
                self.events.push(Event::TaskPaused);
                Decision { events: self.events, effects: Vec::new() }
            }
            (None, None) => self.next_turn(),
        }
    }

    pub(super) fn ask(mut self, call: CallView<'_>, in_doubt: bool) -> Decision {
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

    fn next_turn(self) -> Decision {
        call_model(self.state, self.ctx, self.events, [])
    }
}

/// Answers every call that has no answer yet, because the task ends: a conversation with a call
/// that was never answered could not be taken up again.
pub(super) fn answer_open_calls(state: &TaskState, why: &str, events: &mut Vec<Event>) {
    let first_answer = state.message_count();
    let is_alone = state.walk().is_some();
    for (index, call) in state.calls().all().iter().enumerate() {
        let content = match call.state {
            CallState::Answered => continue,
            CallState::Waiting => format!("{why} while the sub-agent waited for a person"),
            CallState::Running | CallState::InDoubt => {
                format!("{why} while the tool was being called; it may have had its effect")
            }
            CallState::Asked | CallState::Held | CallState::Failed => {
                format!("{why} before the tool was called")
            }
        };
        // One that these same events have answered already needs no second answer.
        let call_id = call.id();
        let answers_it = |event: &Event| {
            matches!(event, Event::ToolChanged { call_id: answered, change: ToolChange::Answer { .. } }
                if *answered == call_id)
        };
        if events.iter().any(answers_it) {
            continue;
        }
        let change = ToolChange::Answer {
            ordinal: (!is_alone).then(|| ordinal(first_answer + index)),
            content,
            structured: None,
            is_error: true,
            duration_ms: 0,
        };
        events.push(Event::ToolChanged { call_id, change });
    }
}

fn after(time: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| time.saturating_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}

fn ordinal(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

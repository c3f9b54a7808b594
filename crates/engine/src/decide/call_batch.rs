//! A decision about the tool calls of a task, under construction.
//!
//! Agents and workflows both make calls, and share the rules here: starting, holding, repeating,
//! abandoning and answering a call. The next step after all calls have changed is up to the caller:
//! `tool_turn` for agents, `workflow` for workflows.

use std::num::NonZeroU64;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{LlmAgent, WorkflowNode, WorkflowNodeKind};
use polity_model::event::{Event, ToolChange, UnsettledCall};
use polity_model::failure::{AttemptFailure, ErrorCode};
use polity_model::ids::{CheckpointId, ToolCallId};
use polity_model::machine::tool_call::CallState;
use polity_model::name::Name;
use polity_model::review::ReviewSubject;
use polity_model::tool::ToolName;
use polity_model::trace::shorten;
use serde_json::{Map, Value};

use crate::decide::outcomes::{call_model_for_next_turn, fail_task, next_checkpoint, ordinal};
use crate::decide::{CommandRejection, Decision, DecisionContext, Effect, llm};
use crate::driver::ToolSpec;
use crate::state::{CorruptJournal, TaskState, WorkflowRun, item_node};

/// The time limit of a call whose tool is no longer in the toolbox.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(5);

/// The number of characters of a call's arguments in a question. `review show` has them all.
pub(crate) const QUESTION_CHARACTERS_MAX: usize = 400;

/// The retries of a node's call if the node sets none.
const NODE_RETRIES_DEFAULT: u32 = 3;

/// A decision about the calls of a task, under construction.
pub(crate) struct CallBatch<'a> {
    state: &'a TaskState,
    ctx: &'a mut DecisionContext,
    caller: Caller<'a>,
    /// The index of the first call's answer in the conversation.
    first_answer: usize,
    /// The state of each call after the events so far.
    call_states: Vec<CallState>,
    events: Vec<Event>,
    effects: Vec<Effect>,
    /// The calls that the events so far have started for nodes, with the items of maps.
    new_calls: Vec<(ToolCallId, Option<u32>)>,
    /// The error code of a node's failed call.
    error_code: Option<ErrorCode>,
}

/// The owner of the calls.
#[derive(Clone, Copy)]
enum Caller<'a> {
    /// An agent's.
    Agent(&'a LlmAgent),
    /// The nodes' of a workflow.
    Workflow(&'a WorkflowRun),
}

/// The answer to a call.
struct CallAnswer {
    content: String,
    structured: Option<Value>,
    is_error: bool,
    duration_ms: u64,
}

/// The parts of a call that a review shows.
pub(crate) struct CallView<'a> {
    pub(crate) id: ToolCallId,
    /// The tool's displayed name.
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
    /// A batch over the calls of the current turn.
    pub(crate) fn of_state(
        state: &'a TaskState,
        ctx: &'a mut DecisionContext,
    ) -> Result<Self, CommandRejection> {
        let caller = match state.workflow_run() {
            Some(run) => Caller::Workflow(run),
            None => Caller::Agent(llm(state)?),
        };
        let call_states = state.calls().all().iter().map(|call| call.state).collect();
        Ok(Self::new(state, ctx, caller, Vec::new(), call_states))
    }

    /// A batch over the calls of a new reply, which is the first event.
    pub(crate) fn of_reply(
        state: &'a TaskState,
        llm: &'a LlmAgent,
        ctx: &'a mut DecisionContext,
        answered: Event,
        calls: usize,
    ) -> Self {
        Self::new(state, ctx, Caller::Agent(llm), vec![answered], vec![CallState::Asked; calls])
    }

    fn new(
        state: &'a TaskState,
        ctx: &'a mut DecisionContext,
        caller: Caller<'a>,
        events: Vec<Event>,
        call_states: Vec<CallState>,
    ) -> Self {
        Self {
            state,
            ctx,
            caller,
            // The reply is a message too.
            first_answer: state.message_count() + events.len(),
            call_states,
            events,
            effects: Vec::new(),
            new_calls: Vec::new(),
            error_code: None,
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

    /// The error code of a node's failed call.
    pub(crate) fn error_code(&self) -> Option<ErrorCode> {
        self.error_code
    }

    pub(crate) fn set_error_code(&mut self, error_code: Option<ErrorCode>) {
        self.error_code = error_code;
    }

    /// The task's state after the events so far.
    pub(crate) fn state_after_events(&self) -> Result<TaskState, CorruptJournal> {
        self.state.after(&self.events, self.ctx.now)
    }

    /// The number of the next checkpoint after the events so far.
    pub(crate) fn next_checkpoint(&self) -> u32 {
        next_checkpoint(self.state, &self.events)
    }

    /// The index of a call, including calls that the events so far have started.
    fn index_of(&self, call_id: ToolCallId) -> Option<usize> {
        let known = self.state.calls().all().len();
        let new = || self.new_calls.iter().position(|(new, _)| *new == call_id);
        self.state.calls().index(call_id).or_else(|| new().map(|new| known + new))
    }

    /// Abandons a call that is running or about to start.
    pub(crate) fn abandon(&mut self, call_id: ToolCallId, why: &str) {
        let Some(index) = self.index_of(call_id) else { return };
        if self.call_states[index] == CallState::Answered {
            return;
        }
        let is_new = self.new_calls.iter().any(|(new, _)| *new == call_id);
        let unsettled = if is_new { UnsettledCall::NotCalled } else { UnsettledCall::MaybeDone };
        self.answer_unsettled(index, call_id, why.to_owned(), 0, unsettled);
        self.effects.retain(|effect| effect.begins() != Some(call_id));
        if !is_new {
            self.effects.push(Effect::AbandonCall { call_id });
        }
    }

    /// Answers the calls that the events so far have started, because the task ends.
    pub(crate) fn answer_new_calls(&mut self, why: &str) {
        for (call_id, _) in self.new_calls.clone() {
            self.abandon(call_id, &format!("{why} before the tool was called"));
        }
    }

    /// The number of retries of a call.
    pub(crate) fn max_retries(&self, call_id: ToolCallId) -> u32 {
        match self.caller {
            Caller::Agent(llm) => llm.tool_retries_max(),
            Caller::Workflow(_) => {
                let own = self.node_of(call_id).and_then(|node| node.max_retries);
                own.unwrap_or(NODE_RETRIES_DEFAULT)
            }
        }
    }

    /// True if a person must approve the tool.
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

    /// The time limit of the call's node, if the workflow sets one.
    fn timeout_of(&self, call_id: ToolCallId) -> Option<NonZeroU64> {
        let run = self.workflow_run()?;
        self.step_timeout(run, run.node_of(call_id)?)
    }

    /// The time limit of a node's call: for an item, the limit of the map's step, and no longer than
    /// that of the map.
    fn step_timeout(&self, run: &WorkflowRun, node: usize) -> Option<NonZeroU64> {
        let step = item_node(&run.plan().nodes()[node].node);
        let own = step.and_then(|step| step.timeout_seconds);
        [own, self.state.node_timeout(run, node)].into_iter().flatten().min()
    }

    /// The step that a call performs: a node, or the step of a map.
    fn node_of(&self, call_id: ToolCallId) -> Option<&'a WorkflowNode> {
        self.workflow_run()?.step_of(call_id)
    }

    /// The item of a map that a call performs, including calls that the events so far have started.
    fn item_of(&self, call_id: ToolCallId) -> Option<u32> {
        let new = self.new_calls.iter().find(|(new, _)| *new == call_id);
        new.map_or_else(|| self.workflow_run()?.item_of(call_id), |(_, item)| *item)
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

    /// Starts a call.
    pub(crate) fn call(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        tool: &ToolSpec,
        arguments: Option<Map<String, Value>>,
    ) {
        let name = tool.name.clone();
        self.call_by_name(index, call_id, name, arguments, tool.repeatable, tool.timeout);
    }

    /// Starts a call that a node has just requested, for itself or for an item of a map.
    pub(crate) fn call_new(
        &mut self,
        call_id: ToolCallId,
        tool: &ToolName,
        node: usize,
        item: Option<u32>,
    ) {
        let Some(run) = self.workflow_run() else { return };
        let planned = &run.plan().nodes()[node].node;
        let step = item_node(planned).unwrap_or(planned);
        let timeout = self.step_timeout(run, node).map(|limit| Duration::from_secs(limit.get()));
        let index = self.call_states.len();
        self.call_states.push(CallState::Asked);
        self.new_calls.push((call_id, item));
        let known = self.ctx.toolbox.find(tool.server(), tool.tool());
        let word = step.idempotent.or(planned.idempotent);
        let repeatable = is_repeatable(step, word, known.is_some_and(|tool| tool.repeatable));
        let deadline = timeout.map(|timeout| after(self.ctx.now, timeout));
        let timeout = timeout.or(known.map(|tool| tool.timeout)).unwrap_or(TIMEOUT_DEFAULT);
        self.start_call(index, call_id, tool.clone(), None, repeatable, timeout, deadline);
    }

    /// Starts a call whose tool may no longer be listed; its server decides.
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
        // A node's time limit excludes the time without an owner and the time of a review.
        let deadline = own.map(|own| after(self.ctx.now, own));
        let repeatable =
            node.map_or(repeatable, |node| is_repeatable(node, node.idempotent, repeatable));
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
        // A session is identified by its call, so it is never opened twice.
        let (repeatable, effect) = match tool.sub_agent() {
            Some(_) => (true, Effect::OpenSession { call_id, deadline }),
            None => (repeatable, Effect::CallTool { call_id, timeout }),
        };
        self.push_change(call_id, ToolChange::Call { tool, arguments, repeatable });
        self.effects.push(effect);
    }

    /// Holds the call for a person's approval.
    pub(crate) fn hold(&mut self, index: usize, call_id: ToolCallId, tool: ToolName) {
        self.call_states[index] = CallState::Held;
        self.push_change(call_id, ToolChange::Hold { tool });
    }

    /// Marks the call as waiting with its sub-agent.
    pub(crate) fn wait_for_session(&mut self, index: usize, call_id: ToolCallId) {
        self.call_states[index] = CallState::Waiting;
        self.push_change(call_id, ToolChange::Wait);
        self.effects.push(Effect::WatchSession { call_id });
    }

    /// Marks the call as in doubt: it may have had its effect.
    pub(crate) fn mark_in_doubt(&mut self, index: usize, call_id: ToolCallId) {
        self.call_states[index] = CallState::InDoubt;
        self.push_change(call_id, ToolChange::Doubt);
    }

    /// Records a failed attempt and the time of the next.
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

    /// Waits for the time of the next attempt.
    pub(crate) fn wait_for_retry(&mut self, call_id: ToolCallId, until: Timestamp) {
        self.effects.push(Effect::WaitForTool { call_id, until });
    }

    /// Answers the call.
    pub(crate) fn answer(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        structured: Option<Value>,
        duration_ms: u64,
    ) {
        let answer = CallAnswer { content, structured, is_error: false, duration_ms };
        self.push_answer(index, call_id, answer, None);
    }

    /// Answers the call with an error that the model can act on.
    pub(crate) fn answer_with_error(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        duration_ms: u64,
    ) {
        let answer = CallAnswer { content, structured: None, is_error: true, duration_ms };
        self.push_answer(index, call_id, answer, None);
    }

    /// Answers a call that has no outcome of its own with an error.
    pub(crate) fn answer_unsettled(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        content: String,
        duration_ms: u64,
        unsettled: UnsettledCall,
    ) {
        let answer = CallAnswer { content, structured: None, is_error: true, duration_ms };
        self.push_answer(index, call_id, answer, Some(unsettled));
    }

    fn push_answer(
        &mut self,
        index: usize,
        call_id: ToolCallId,
        answer: CallAnswer,
        unsettled: Option<UnsettledCall>,
    ) {
        self.call_states[index] = CallState::Answered;
        // Calls of nodes are independent, so their answers have no order.
        let is_alone = self.workflow_run().is_some();
        let ordinal = (!is_alone).then(|| ordinal(self.first_answer + index));
        let CallAnswer { content, structured, is_error, duration_ms } = answer;
        let item = self.item_of(call_id);
        let change = ToolChange::Answer {
            ordinal,
            content,
            structured,
            is_error,
            duration_ms,
            unsettled,
            item,
        };
        self.push_change(call_id, change);
    }

    /// Fails the task with the last answer as a partial result.
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
        call_model_for_next_turn(self.state, self.ctx, self.events, [])
    }

    /// The decision without the effects.
    pub(crate) fn into_events_only(self) -> Decision {
        Decision { events: self.events, effects: Vec::new() }
    }

    /// The events so far, for a task that ends.
    pub(crate) fn into_events(self) -> Vec<Event> {
        self.events
    }

    /// Takes the events so far.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The decision, with additional effects.
    pub(crate) fn into_decision(mut self, more: impl IntoIterator<Item = Effect>) -> Decision {
        self.effects.extend(more);
        Decision { events: self.events, effects: self.effects }
    }

    /// The node and the item that a call performs, in words.
    fn step_text(&self, call_id: ToolCallId) -> String {
        let node = self.workflow_run().and_then(|run| run.node_name(call_id));
        match (node, self.item_of(call_id)) {
            (Some(node), Some(item)) => format!(" for item {item} of node {node}"),
            (Some(node), None) => format!(" for node {node}"),
            (None, _) => String::new(),
        }
    }

    /// Opens the review of a call.
    pub(crate) fn into_review(mut self, call: CallView<'_>, in_doubt: bool) -> Decision {
        let CallView { id: call_id, name, arguments } = call;
        let agent = self.name();
        let arguments = Value::Object(arguments.clone()).to_string();
        let arguments = shorten(&arguments, QUESTION_CHARACTERS_MAX);
        let (subject, question) = if in_doubt {
            let call = self.state.calls().get(call_id);
            let is_inherited = call.is_some_and(|call| call.earlier_sub_task.is_some());
            let ended = if is_inherited { "the earlier task" } else { "its process" };
            let step = self.step_text(call_id);
            let question = format!(
                "{agent} was calling {name} with {arguments}{step} when {ended} ended; it is \
                 unknown whether the call took effect"
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
            // Existing answers join the State once all calls are answered.
            message_count: self.workflow_run().is_none().then(|| ordinal(self.first_answer)),
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

/// True if the call of a step may be repeated. The word of the step overrules its tool. The task of
/// an agent, a workflow or a script has its own rules, so that the call itself can be repeated.
fn is_repeatable(step: &WorkflowNode, word: Option<bool>, by_default: bool) -> bool {
    match &step.kind {
        WorkflowNodeKind::Tool { .. } => word.unwrap_or(by_default),
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Condition { .. }
        | WorkflowNodeKind::Human { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Script { .. }
        | WorkflowNodeKind::Map { .. } => by_default || word == Some(true),
    }
}

fn after(time: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait)
        .ok()
        .and_then(|wait| time.saturating_add(wait).ok())
        .unwrap_or(Timestamp::MAX)
}

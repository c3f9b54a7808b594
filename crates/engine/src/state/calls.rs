//! The tool calls of a task's current turn.
//!
//! Answers arrive in any order. They are held here until the turn is complete, and then join the
//! conversation in the order of the calls. So the conversation never holds a call without its
//! answer.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use polity_model::event::ToolChange;
use polity_model::ids::{TaskId, ToolCallId};
use polity_model::machine::tool_call::{CallEvent, CallState};
use polity_model::machine::{IllegalTransition, Machine};
use polity_model::message::{Message, ToolCall};
use polity_model::review::ReviewVerdict;
use polity_model::session::{task_of_call, task_of_inherited_call};
use polity_model::tool::ToolName;
use serde_json::{Map, Value};

use super::{Backoff, CorruptJournal};

/// A call of the turn.
#[derive(Debug, Clone)]
pub struct TurnCall {
    /// The call as requested by the model.
    pub asked: ToolCall,
    /// Its state.
    pub state: CallState,
    /// The resolved tool: a correction of the requested one, or its fallback.
    pub tool: Option<ToolName>,
    /// The first tool that was called or held, whose fallbacks apply.
    pub first_tool: Option<ToolName>,
    /// The arguments, if a person changed them.
    pub arguments: Option<Map<String, Value>>,
    /// True if a person approved it.
    pub allowed: bool,
    /// True if the newest attempt may be repeated.
    pub repeatable: bool,
    /// The number of attempts of the current tool.
    pub attempts: u32,
    /// The wait before the next attempt.
    pub backoff: Option<Backoff>,
    /// The sub-task of this call in the task that the current one continues, if it continues one
    /// that had the call.
    pub earlier_sub_task: Option<TaskId>,
    answer: Option<Message>,
}

/// The calls of the turn, in the order of the model's reply.
#[derive(Debug, Clone, Default)]
pub struct TurnCalls {
    calls: Vec<TurnCall>,
    /// Hashes of the newest requests and answers, which detect a model that repeats itself.
    asked_hash: u64,
    answered_hash: u64,
    same_asked: u32,
    same_answered: u32,
}

impl TurnCall {
    fn new(asked: ToolCall) -> Self {
        Self {
            asked,
            state: CallState::INITIAL,
            tool: None,
            first_tool: None,
            arguments: None,
            allowed: false,
            repeatable: false,
            attempts: 0,
            backoff: None,
            earlier_sub_task: None,
            answer: None,
        }
    }

    /// The sub-task that performs this call of a task, if a sub-agent does.
    pub fn sub_task(&self, task: TaskId) -> TaskId {
        match self.earlier_sub_task {
            Some(_) => task_of_inherited_call(task, self.id()),
            None => task_of_call(self.id()),
        }
    }

    /// The call's id.
    pub fn id(&self) -> ToolCallId {
        self.asked.id
    }

    /// The arguments of the call.
    pub fn arguments(&self) -> &Map<String, Value> {
        self.arguments.as_ref().unwrap_or(&self.asked.arguments)
    }

    /// The tool's displayed name.
    pub fn name(&self) -> String {
        match &self.tool {
            Some(tool) => tool.to_string(),
            None => self.asked.name(),
        }
    }

    fn moved(&mut self, on: CallEvent) -> Result<(), IllegalTransition<CallState>> {
        self.state = self.state.transition(on)?;
        Ok(())
    }

    fn called(
        &mut self,
        tool: ToolName,
        arguments: Option<Map<String, Value>>,
        repeatable: bool,
    ) -> Result<(), IllegalTransition<CallState>> {
        self.moved(CallEvent::Call)?;
        if self.tool.as_ref() != Some(&tool) {
            self.attempts = 0;
        }
        self.attempts += 1;
        self.first_tool.get_or_insert_with(|| tool.clone());
        self.tool = Some(tool);
        self.repeatable = repeatable;
        self.backoff = None;
        if arguments.is_some() {
            self.arguments = arguments;
        }
        Ok(())
    }
}

impl TurnCalls {
    /// Starts a turn.
    pub(super) fn begin(&mut self, calls: &[ToolCall]) {
        self.same_asked = self.repeated_with(calls);
        self.asked_hash = asked_hash(calls);
        self.calls.clear();
        self.calls.extend(calls.iter().cloned().map(TurnCall::new));
    }

    /// The number of consecutive turns with the same requests, if these calls came next.
    pub fn repeated_with(&self, calls: &[ToolCall]) -> u32 {
        if asked_hash(calls) == self.asked_hash { self.same_asked + 1 } else { 1 }
    }

    /// The calls, in the order of the model's reply.
    pub fn all(&self) -> &[TurnCall] {
        &self.calls
    }

    /// The calls without an answer.
    pub fn open(&self) -> impl Iterator<Item = &TurnCall> {
        self.calls.iter().filter(|call| call.state != CallState::Answered)
    }

    /// A call of this turn.
    pub fn get(&self, id: ToolCallId) -> Option<&TurnCall> {
        self.calls.iter().find(|call| call.id() == id)
    }

    /// The index of a call in the turn.
    pub fn index(&self, id: ToolCallId) -> Option<usize> {
        self.calls.iter().position(|call| call.id() == id)
    }

    fn get_mut(&mut self, id: ToolCallId) -> Result<&mut TurnCall, CorruptJournal> {
        self.calls.iter_mut().find(|call| call.id() == id).ok_or(CorruptJournal::NoCall(id))
    }

    /// Applies a change to a call. The last missing answer returns the answers of the whole turn,
    /// in order.
    pub(super) fn apply(
        &mut self,
        id: ToolCallId,
        change: ToolChange,
        at: Timestamp,
    ) -> Result<Vec<Message>, CorruptJournal> {
        let is_answered = self.follow(id, change, at)?;
        Ok(if is_answered { self.answers() } else { Vec::new() })
    }

    /// Applies a change to an independent call. Its answer removes the call; one that is no error is
    /// returned.
    pub(super) fn apply_alone(
        &mut self,
        id: ToolCallId,
        change: ToolChange,
        at: Timestamp,
    ) -> Result<Option<Message>, CorruptJournal> {
        if !self.follow(id, change, at)? {
            return Ok(None);
        }
        let place = self.index(id).ok_or(CorruptJournal::NoCall(id))?;
        Ok(self.calls.remove(place).answer)
    }

    /// The calls as a task inherits them from `origin`. A retry has fresh attempts.
    pub(super) fn inherited(&self, origin: TaskId, is_retry: bool) -> Self {
        let mut calls = self.clone();
        for call in &mut calls.calls {
            call.earlier_sub_task = Some(call.sub_task(origin));
            if is_retry {
                call.attempts = 0;
            }
        }
        if is_retry {
            (calls.same_asked, calls.same_answered) = (0, 0);
        }
        calls
    }

    /// Removes all calls.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    /// Removes the calls that `keeps` rejects.
    pub(super) fn retain(&mut self, keeps: impl Fn(ToolCallId) -> bool) {
        self.calls.retain(|call| keeps(call.id()));
    }

    /// Adds a call to those in progress.
    pub(super) fn add(&mut self, call: ToolCall) {
        self.calls.push(TurnCall::new(call));
    }

    /// Applies a change to a call. Returns true if it was the answer.
    fn follow(
        &mut self,
        id: ToolCallId,
        change: ToolChange,
        at: Timestamp,
    ) -> Result<bool, CorruptJournal> {
        let call = self.get_mut(id)?;
        match change {
            ToolChange::Hold { tool } => {
                call.moved(CallEvent::Hold)?;
                call.first_tool = Some(tool.clone());
                call.tool = Some(tool);
            }
            ToolChange::Call { tool, arguments, repeatable } => {
                call.called(tool, arguments, repeatable)?;
            }
            ToolChange::Fail { retry_at, .. } => {
                call.moved(CallEvent::Fail)?;
                call.backoff = Some(Backoff { since: at, until: retry_at });
            }
            ToolChange::Wait => call.moved(CallEvent::Wait)?,
            ToolChange::Doubt => call.moved(CallEvent::Doubt)?,
            ToolChange::Answer { content, is_error, .. } => {
                call.moved(CallEvent::Answer)?;
                let (tool_call_id, timestamp) = (id, at);
                call.answer = Some(Message::Tool { tool_call_id, content, is_error, timestamp });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Applies a person's verdict on a call.
    pub(super) fn decided(
        &mut self,
        id: ToolCallId,
        verdict: ReviewVerdict,
    ) -> Result<(), CorruptJournal> {
        let call = self.get_mut(id)?;
        match verdict {
            ReviewVerdict::Approve | ReviewVerdict::Retry => {}
            ReviewVerdict::Modify { arguments } => call.arguments = Some(arguments),
            // The answer to the call, or the task's failure, follows as its own event.
            ReviewVerdict::Reject | ReviewVerdict::SkipWith { .. } => return Ok(()),
        }
        call.moved(CallEvent::Allow)?;
        call.allowed = true;
        Ok(())
    }

    /// The answers of the turn in order, if all are there.
    fn answers(&mut self) -> Vec<Message> {
        if self.open().next().is_some() {
            return Vec::new();
        }
        let answers: Vec<Message> = self.calls.drain(..).filter_map(|call| call.answer).collect();
        let answered_hash = hash(answers.iter().map(Message::content));
        let same = self.same_asked > 1 && answered_hash == self.answered_hash;
        self.same_answered = if same { self.same_answered + 1 } else { 1 };
        self.answered_hash = answered_hash;
        answers
    }

    /// The number of consecutive turns with the same requests and answers.
    pub fn same_answered(&self) -> u32 {
        self.same_answered
    }
}

fn asked_hash(calls: &[ToolCall]) -> u64 {
    hash(calls.iter().map(|call| (&call.server, &call.tool, &call.arguments)))
}

/// Compared only within one process; the next process rebuilds it from the journal.
fn hash<T: Hash>(items: impl Iterator<Item = T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for item in items {
        item.hash(&mut hasher);
    }
    hasher.finish()
}

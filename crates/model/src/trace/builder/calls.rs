//! The tool calls of the newest answer, for the trace.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::ids::ToolCallId;
use crate::message::{Message, ToolCall};
use crate::tool::ToolName;
use crate::trace::ToolCallRecord;

/// The calls in the newest answer of a model.
#[derive(Debug, Clone, Default)]
pub(super) struct TracedCalls {
    calls: Vec<TracedCall>,
}

/// One call and its progress.
#[derive(Debug, Clone)]
pub(super) struct TracedCall {
    id: ToolCallId,
    /// The server and the tool, as the model named them or as they were called.
    server: String,
    tool: String,
    arguments: Map<String, Value>,
    /// The start of the first attempt.
    began: Option<Timestamp>,
    /// The start of the attempt in progress.
    since: Option<Timestamp>,
}

impl TracedCalls {
    /// Replaces the calls with those of a new answer.
    pub(super) fn begin(&mut self, message: &Message) {
        self.calls.clear();
        self.calls.extend(message.tool_calls().iter().map(TracedCall::new));
    }

    /// Adds the call of a node; other calls may be in progress.
    pub(super) fn add(&mut self, call: &ToolCall) {
        self.calls.push(TracedCall::new(call));
    }

    /// Adds a call that a retry has inherited, unless it is known.
    pub(super) fn ensure(&mut self, id: ToolCallId, tool: &ToolName) {
        if self.find(id).is_none() {
            self.calls.push(TracedCall {
                id,
                server: tool.server().to_owned(),
                tool: tool.tool().to_owned(),
                arguments: Map::new(),
                began: None,
                since: None,
            });
        }
    }

    /// Removes a call.
    pub(super) fn remove(&mut self, id: ToolCallId) {
        self.calls.retain(|call| call.id != id);
    }

    pub(super) fn find(&mut self, id: ToolCallId) -> Option<&mut TracedCall> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    /// The oldest attempt in progress.
    pub(super) fn in_progress(&self) -> Option<(String, Timestamp)> {
        self.calls
            .iter()
            .filter_map(|call| Some((call.record(0).name(), call.since?)))
            .min_by_key(|(_, since)| *since)
    }

    /// Takes the attempts in progress: the call, record and start of each.
    pub(super) fn take_in_progress(&mut self) -> Vec<(ToolCallId, ToolCallRecord, Timestamp)> {
        self.calls
            .iter_mut()
            .filter_map(|call| call.since.take().map(|since| (call.id, call.record(0), since)))
            .collect()
    }
}

impl TracedCall {
    fn new(call: &ToolCall) -> Self {
        Self {
            id: call.id,
            server: call.server.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            began: None,
            since: None,
        }
    }

    /// The start of the first attempt.
    pub(super) fn began(&self) -> Option<Timestamp> {
        self.began
    }

    /// Starts an attempt, and returns an earlier one that never ended.
    pub(super) fn called(
        &mut self,
        at: Timestamp,
        tool: &ToolName,
        arguments: Option<&Map<String, Value>>,
    ) -> Option<(ToolCallRecord, Timestamp)> {
        let lost = self.since.map(|since| (self.record(0), since));
        tool.server().clone_into(&mut self.server);
        tool.tool().clone_into(&mut self.tool);
        if let Some(arguments) = arguments {
            self.arguments.clone_from(arguments);
        }
        self.began.get_or_insert(at);
        self.since = Some(at);
        lost
    }

    /// Marks the sub-agent as waiting for a person: the call is not in progress until it is made
    /// again.
    pub(super) fn waits(&mut self) {
        self.since = None;
    }

    /// Records a failed attempt.
    pub(super) fn failed(&mut self, error: String, duration_ms: u64) -> ToolCallRecord {
        self.since = None;
        ToolCallRecord { error: Some(error), ..self.record(duration_ms) }
    }

    /// Records the answer.
    pub(super) fn answered(
        &mut self,
        content: &str,
        structured: Option<&Value>,
        is_error: bool,
        duration_ms: u64,
    ) -> ToolCallRecord {
        if is_error {
            return self.failed(content.to_owned(), duration_ms);
        }
        self.since = None;
        let mut result = json!({ "content": content });
        if let Some(structured) = structured {
            result["structured"] = structured.clone();
        }
        ToolCallRecord { result: Some(result), ..self.record(duration_ms) }
    }

    fn record(&self, duration_ms: u64) -> ToolCallRecord {
        ToolCallRecord {
            server: self.server.clone(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            result: None,
            error: None,
            duration_ms,
        }
    }
}

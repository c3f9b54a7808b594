//! The tool calls of the newest answer, as the trace tells of them.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::ids::ToolCallId;
use crate::message::{Message, ToolCall};
use crate::tool::ToolName;
use crate::trace::ToolCallRecord;

/// The calls that a model asked for in its newest answer.
#[derive(Debug, Clone, Default)]
pub(super) struct TracedCalls {
    calls: Vec<TracedCall>,
}

/// One call, as far as it has been told.
#[derive(Debug, Clone)]
pub(super) struct TracedCall {
    id: ToolCallId,
    /// The server and the tool, as the model named them or as they were called.
    server: String,
    tool: String,
    arguments: Map<String, Value>,
    /// When the attempt that is under way began.
    since: Option<Timestamp>,
}

impl TracedCalls {
    /// A new answer: its calls take the place of all former ones.
    pub(super) fn begin(&mut self, message: &Message) {
        self.calls.clear();
        self.calls.extend(message.tool_calls().iter().map(TracedCall::new));
    }

    /// One more call, of a node: others may be under way.
    pub(super) fn add(&mut self, call: &ToolCall) {
        self.calls.push(TracedCall::new(call));
    }

    /// Nothing more is told of a call.
    pub(super) fn remove(&mut self, id: ToolCallId) {
        self.calls.retain(|call| call.id != id);
    }

    pub(super) fn find(&mut self, id: ToolCallId) -> Option<&mut TracedCall> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    /// The oldest attempt that is under way.
    pub(super) fn under_way(&self) -> Option<(String, Timestamp)> {
        self.calls
            .iter()
            .filter_map(|call| Some((call.record(0).name(), call.since?)))
            .min_by_key(|(_, since)| *since)
    }

    /// Takes out the attempts that are under way: the record of each, and when it began.
    pub(super) fn take_under_way(&mut self) -> Vec<(ToolCallRecord, Timestamp)> {
        self.calls
            .iter_mut()
            .filter_map(|call| call.since.take().map(|since| (call.record(0), since)))
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
            since: None,
        }
    }

    /// An attempt begins. An earlier one that had no end comes out.
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
        self.since = Some(at);
        lost
    }

    /// The sub-agent waits for a person: no one is at work on the call until it is made again.
    pub(super) fn waits(&mut self) {
        self.since = None;
    }

    /// The attempt failed.
    pub(super) fn failed(&mut self, error: String, duration_ms: u64) -> ToolCallRecord {
        self.since = None;
        ToolCallRecord { error: Some(error), ..self.record(duration_ms) }
    }

    /// The call has its answer.
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

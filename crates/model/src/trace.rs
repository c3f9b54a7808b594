//! The trace of a task: its journal, as steps.
//!
//! A trace is never stored. It is folded from the task's own events: it includes every committed
//! event, and its cost depends on that task alone.

mod builder;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::RecordedEvent;
use crate::ids::{SessionId, TaskId};
use crate::name::Name;
use crate::session::SessionStatus;
use crate::tool::SUB_AGENT_SERVER;
use crate::usage::UsageReport;

pub use builder::TraceBuilder;

/// The execution history of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceLog {
    /// The task.
    pub task_id: TaskId,
    /// The steps, oldest first.
    pub steps: Vec<StepRecord>,
    /// The conversations of sub-agents, by session id.
    pub sub_agent_sessions: BTreeMap<SessionId, SubAgentSessionInfo>,
    /// The time of the first step.
    pub created_at: Timestamp,
    /// The time of the newest step.
    pub updated_at: Timestamp,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The kind of step, such as `model_call` or `retry`.
    pub step_name: String,
    /// The message, for people.
    pub message: String,
    /// The time it ended.
    pub timestamp: Timestamp,
    /// The severity.
    pub status: StepStatus,
    /// The workflow node, if it is a node's step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The agent at work.
    pub agent: Name,
    /// The tools that were called in it.
    pub tool_calls: Vec<ToolCallRecord>,
    /// The duration; 0 for a moment.
    pub duration_ms: u64,
    /// The usage of a model call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageReport>,
}

impl StepRecord {
    /// Names the sub-agent that a call handed the work to, if it did.
    fn name_agent(&mut self, record: &ToolCallRecord) {
        if record.server == SUB_AGENT_SERVER
            && let Ok(agent) = record.tool.parse()
        {
            self.agent = agent;
        }
    }
}

/// The severity of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Expected.
    Info,
    /// Unexpected, but the task continues.
    Warning,
    /// Something failed.
    Error,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRecord {
    /// The MCP server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The answer.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<String>,
    /// The duration.
    pub duration_ms: u64,
}

impl ToolCallRecord {
    /// The tool as people write it. The server is empty if the model named none that is known.
    pub fn name(&self) -> String {
        match self.server.as_str() {
            "" => self.tool.clone(),
            server => format!("{server}/{}", self.tool),
        }
    }
}

/// A sub-agent's conversation, as its parent's trace shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubAgentSessionInfo {
    /// The session.
    pub session_id: SessionId,
    /// The sub-agent.
    pub agent: Name,
    /// The number of messages.
    pub message_count: u64,
    /// The current status.
    pub status: SessionStatus,
}

/// The number of successful items of a map that have a step of their own.
pub const ITEMS_SHOWN: u32 = 3;

/// The number of failed items of a map, and of failed attempts, that have a step of their own.
pub const FAILED_ITEMS_SHOWN: u32 = 20;

/// The longest message of a step, in characters; the whole text is in the conversation.
pub const STEP_MESSAGE_CHARACTERS_MAX: usize = 200;

impl TraceLog {
    /// Builds the trace from a task's events; none if the first is not the task's creation.
    pub fn from_events(task_id: TaskId, events: &[RecordedEvent]) -> Option<Self> {
        let (first, rest) = events.split_first()?;
        let mut builder = TraceBuilder::begin(task_id, first)?;
        for recorded in rest {
            builder.apply(recorded);
        }
        Some(builder.finish())
    }
}

/// The text on one line, with an ellipsis if it was cut.
pub fn shorten(text: &str, characters_max: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if let Some((cut, _)) = line.char_indices().nth(characters_max) {
            line.truncate(cut);
            line.push('…');
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn shortens_text_to_one_line() {
        for (text, short) in [
            ("", ""),
            ("  one\n two ", "one two"),
            ("exactly te", "exactly te"),
            ("exactly ten", "exactly te…"),
            ("überlängen", "überlängen"),
            ("überlänge ü", "überlänge …"),
        ] {
            assert_eq!(shorten(text, 10), short, "{text:?}");
        }
    }
}

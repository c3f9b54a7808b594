//! The trace of a task: its journal, told as steps.
//!
//! A trace is never stored. It is folded from the task's own events, so it is complete to the last
//! one that reached the disk, and reading it costs time in proportion to that task alone.

mod builder;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::event::RecordedEvent;
use crate::ids::{SessionId, TaskId};
use crate::name::Name;
use crate::session::SessionStatus;
use crate::usage::UsageReport;

pub use builder::TraceBuilder;

/// The execution history of one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceLog {
    /// The task.
    pub task_id: TaskId,
    /// What happened, oldest first.
    pub steps: Vec<StepRecord>,
    /// The conversations of sub-agents, by session id.
    pub sub_agent_sessions: BTreeMap<SessionId, SubAgentSessionInfo>,
    /// When the first step happened.
    pub created_at: Timestamp,
    /// When the newest step happened.
    pub updated_at: Timestamp,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRecord {
    /// What kind of step it is: `model_call`, `retry`.
    pub step_name: String,
    /// What happened, for people.
    pub message: String,
    /// When it ended.
    pub timestamp: Timestamp,
    /// How serious it is.
    pub status: StepStatus,
    /// The node of the workflow that it tells of, if it tells of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The agent at work.
    pub agent: Name,
    /// The tools that were called in it.
    pub tool_calls: Vec<ToolCallRecord>,
    /// How long it took; 0 for what only marks a moment.
    pub duration_ms: u64,
    /// What a model call used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageReport>,
}

/// How serious a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// As it should be.
    Info,
    /// Not as it should be, and the task goes on.
    Warning,
    /// Something failed.
    Error,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallRecord {
    /// The MCP server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// What it was called with.
    pub arguments: Map<String, Value>,
    /// What it answered.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

impl ToolCallRecord {
    /// The tool as people write it. A model may have named no server that could be made out.
    pub fn name(&self) -> String {
        match self.server.as_str() {
            "" => self.tool.clone(),
            server => format!("{server}/{}", self.tool),
        }
    }
}

/// A sub-agent's conversation, as its parent's trace shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubAgentSessionInfo {
    /// The session.
    pub session_id: SessionId,
    /// The sub-agent.
    pub agent: Name,
    /// How many messages it has.
    pub message_count: u64,
    /// Where it is in its life.
    pub status: SessionStatus,
}

/// The longest message of a step, in characters; the whole text is in the conversation.
pub const STEP_MESSAGE_CHARACTERS_MAX: usize = 200;

impl TraceLog {
    /// Tells a task's events as steps. Nothing comes out where the list does not begin with the
    /// task's creation.
    pub fn from_events(task_id: TaskId, events: &[RecordedEvent]) -> Option<Self> {
        let (first, rest) = events.split_first()?;
        let mut builder = TraceBuilder::begin(task_id, first)?;
        for recorded in rest {
            builder.apply(recorded);
        }
        Some(builder.finish())
    }
}

/// The text on one line, with a mark where it was cut.
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
    fn a_long_text_becomes_one_short_line() {
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

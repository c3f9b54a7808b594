//! Messages of a conversation, and the conversation itself, which only grows.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::ToolCallId;
use crate::value::labelled_enum;

/// One message. Only an assistant asks for tools, and only a tool's message answers a call: other
/// combinations cannot be written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A message from a person or another agent.
    User {
        /// The text.
        content: String,
        /// The time of the message.
        timestamp: Timestamp,
    },
    /// An answer of the model.
    Assistant {
        /// The text; may be empty if there are tool calls.
        content: String,
        /// The tools the model asks for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// The time of the message.
        timestamp: Timestamp,
    },
    /// An answer of a tool.
    Tool {
        /// The call that this answers.
        tool_call_id: ToolCallId,
        /// The text.
        content: String,
        /// True if the text is an error message.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        /// The time of the message.
        timestamp: Timestamp,
    },
    /// An instruction from Polity or from the agent's author.
    System {
        /// The text.
        content: String,
        /// The time of the message.
        timestamp: Timestamp,
    },
}

labelled_enum! {
    /// The author of a message.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MessageRole {
        /// A person, or another agent.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool.
        Tool = "tool",
        /// Polity or the agent's author.
        System = "system",
    }
}

/// One tool call, as requested by a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's own id, which its answer repeats.
    pub id: ToolCallId,
    /// The MCP server that has the tool.
    pub server: String,
    /// The tool's name on that server.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// A provider's signature, sent back to the model with this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl ToolCall {
    /// The tool as people write it. The server is empty if the model named none that is known.
    pub fn name(&self) -> String {
        match self.server.as_str() {
            "" => self.tool.clone(),
            server => format!("{server}/{}", self.tool),
        }
    }
}

impl Message {
    /// The author.
    pub fn role(&self) -> MessageRole {
        match self {
            Self::User { .. } => MessageRole::User,
            Self::Assistant { .. } => MessageRole::Assistant,
            Self::Tool { .. } => MessageRole::Tool,
            Self::System { .. } => MessageRole::System,
        }
    }

    /// The text.
    pub fn content(&self) -> &str {
        match self {
            Self::User { content, .. }
            | Self::Assistant { content, .. }
            | Self::Tool { content, .. }
            | Self::System { content, .. } => content,
        }
    }

    /// Replaces the text.
    pub fn set_content(&mut self, text: String) {
        match self {
            Self::User { content, .. }
            | Self::Assistant { content, .. }
            | Self::Tool { content, .. }
            | Self::System { content, .. } => *content = text,
        }
    }

    /// True if it is the error answer to a tool call.
    pub fn is_error(&self) -> bool {
        match self {
            Self::Tool { is_error, .. } => *is_error,
            Self::User { .. } | Self::Assistant { .. } | Self::System { .. } => false,
        }
    }

    /// The text, without the rest.
    pub fn into_content(self) -> String {
        match self {
            Self::User { content, .. }
            | Self::Assistant { content, .. }
            | Self::Tool { content, .. }
            | Self::System { content, .. } => content,
        }
    }

    /// The tool calls; empty unless an assistant is the author.
    pub fn tool_calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { tool_calls, .. } => tool_calls,
            Self::User { .. } | Self::Tool { .. } | Self::System { .. } => &[],
        }
    }

    /// The time of the message.
    pub fn timestamp(&self) -> Timestamp {
        match self {
            Self::User { timestamp, .. }
            | Self::Assistant { timestamp, .. }
            | Self::Tool { timestamp, .. }
            | Self::System { timestamp, .. } => *timestamp,
        }
    }
}

/// Messages in order. The type is append-only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageHistory {
    messages: Vec<Message>,
}

impl MessageHistory {
    /// Adds a message at the end.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The newest message.
    pub fn last(&self) -> Option<&Message> {
        self.messages.last()
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True if there is no message.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The newest answer of the model with any text, from message `first` on.
    pub fn last_answer_since(&self, first: usize) -> Option<&str> {
        self.messages
            .iter()
            .skip(first)
            .rev()
            .filter(|message| message.role() == MessageRole::Assistant)
            .map(Message::content)
            .find(|content| !content.is_empty())
    }
}

impl Extend<Message> for MessageHistory {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        self.messages.extend(messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_json_form() {
        let timestamp: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let id = ToolCallId::from_random_bytes([7; 16]);
        let mut conversation = MessageHistory::default();
        conversation.push(Message::User { content: "weather?".into(), timestamp });
        conversation.push(Message::Assistant {
            content: String::new(),
            tool_calls: vec![ToolCall {
                id,
                server: "weather".into(),
                tool: "forecast".into(),
                arguments: Map::from_iter([("city".to_owned(), Value::from("Oslo"))]),
                signature: None,
            }],
            timestamp,
        });
        conversation.push(Message::Tool {
            tool_call_id: id,
            content: "sunny".into(),
            is_error: false,
            timestamp,
        });
        let text = serde_json::to_string(&conversation).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"[{"role":"user","content":"weather?","timestamp":"2026-01-02T03:04:05Z"},"#,
                r#"{"role":"assistant","content":"","tool_calls":[{"id":"07070707-0707-4707-8707-070707070707","#,
                r#""server":"weather","tool":"forecast","arguments":{"city":"Oslo"}}],"timestamp":"2026-01-02T03:04:05Z"},"#,
                r#"{"role":"tool","tool_call_id":"07070707-0707-4707-8707-070707070707","content":"sunny","timestamp":"2026-01-02T03:04:05Z"}]"#
            )
        );
        assert_eq!(serde_json::from_str::<MessageHistory>(&text).unwrap(), conversation);
        assert_eq!(conversation.last_answer_since(0), None);
    }
}

//! The State that the agents and nodes of one task share.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::{Conversation, Message};
use crate::name::Name;

/// What a task knows at one moment: its conversation and a few fields that steer it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The conversation so far. It only grows.
    pub messages: Conversation,
    /// What is to happen next, if that has been decided.
    pub next_action: Option<String>,
    /// The agent at work.
    pub current_agent: Name,
    /// The key that picks an edge of a workflow.
    pub routing_key: Option<String>,
    /// Everything else: parameters of the task, outputs of nodes.
    pub metadata: Map<String, Value>,
}

/// A change to a [`State`]: messages are appended, other fields are replaced where given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateUpdate {
    /// Messages to append.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// Replaces `next_action`; an inner `None` clears it.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub next_action: Option<Option<String>>,
    /// Replaces `current_agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_agent: Option<Name>,
    /// Replaces `routing_key`; an inner `None` clears it.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<Option<String>>,
    /// Replaces `metadata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl State {
    /// The State a task begins with: its input as the first message, its parameters as metadata.
    pub fn begin(
        current_agent: Name,
        input: String,
        parameters: Map<String, Value>,
        at: Timestamp,
    ) -> Self {
        let mut messages = Conversation::default();
        messages.push(Message::User { content: input, timestamp: at });
        Self { messages, next_action: None, current_agent, routing_key: None, metadata: parameters }
    }

    /// Appends the update's messages and replaces the fields it gives.
    pub fn update(&mut self, update: StateUpdate) {
        let StateUpdate { messages, next_action, current_agent, routing_key, metadata } = update;
        self.messages.extend(messages);
        if let Some(next_action) = next_action {
            self.next_action = next_action;
        }
        if let Some(current_agent) = current_agent {
            self.current_agent = current_agent;
        }
        if let Some(routing_key) = routing_key {
            self.routing_key = routing_key;
        }
        if let Some(metadata) = metadata {
            self.metadata = metadata;
        }
    }
}

/// Tells a field that is absent from one that is `null`.
mod given {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, clippy::option_option, reason = "the form serde asks for")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Option<String>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().and_then(Option::as_ref).serialize(serializer)
    }

    #[expect(clippy::option_option, reason = "absent, null and given are three cases")]
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<String>>, D::Error> {
        Option::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::begin(
            "writer".parse().unwrap(),
            "Write.".into(),
            Map::from_iter([("topic".to_owned(), Value::from("rain"))]),
            Timestamp::UNIX_EPOCH,
        )
    }

    #[test]
    fn messages_are_appended_and_other_fields_replaced() {
        let mut state = state();
        state.update(
            serde_json::from_value(serde_json::json!({
                "messages": [{"role": "assistant", "content": "Drip.", "timestamp": "1970-01-01T00:00:01Z"}],
                "routing_key": "publish",
                "metadata": {"draft": 1},
            }))
            .unwrap(),
        );
        assert_eq!(state.messages.len(), 2);
        assert_eq!(state.messages.last_answer(), Some("Drip."));
        assert_eq!(state.routing_key.as_deref(), Some("publish"));
        assert_eq!(state.metadata, Map::from_iter([("draft".to_owned(), Value::from(1))]));
        assert_eq!(state.current_agent.as_str(), "writer");
    }

    #[test]
    fn null_clears_a_field_and_absence_keeps_it() {
        let mut state = state();
        state.routing_key = Some("a".into());
        state.next_action = Some("b".into());
        let update: StateUpdate = serde_json::from_str(r#"{"routing_key": null}"#).unwrap();
        assert_eq!(serde_json::to_string(&update).unwrap(), r#"{"routing_key":null}"#);
        state.update(update);
        assert_eq!(state.routing_key, None);
        assert_eq!(state.next_action.as_deref(), Some("b"));
    }

    #[test]
    fn an_unknown_field_of_an_update_is_refused() {
        assert!(serde_json::from_str::<StateUpdate>(r#"{"route": "x"}"#).is_err());
    }
}

//! The State that the agents and nodes of one task share, and updates of it from outside.

pub mod checkpoint;
pub mod message;
pub mod review;
pub mod session;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::{ErrorCategory, ErrorCode};
use crate::message::{Message, MessageHistory};
use crate::name::Name;

/// The state of a task at one moment: its conversation and a few control fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The conversation so far. It only grows.
    pub messages: MessageHistory,
    /// The next action, if one is decided.
    pub next_action: Option<String>,
    /// The agent at work.
    pub current_agent: Name,
    /// The key that picks an edge of a workflow.
    pub routing_key: Option<String>,
    /// Everything else: parameters of the task, outputs of nodes.
    pub metadata: Map<String, Value>,
    /// The failure that an error edge of a workflow caught last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CaughtError>,
}

/// The failure of a node that an error edge caught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaughtError {
    /// Why, for programs.
    pub code: ErrorCode,
    /// The kind of error.
    pub category: ErrorCategory,
    /// Why, for people.
    pub message: String,
    /// The node that failed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
}

/// The fields of the State that can be changed from outside.
const FIELDS: &str =
    "messages, next_action, routing_key, metadata, metadata.NAME, nodes.NAME.output";

/// Changes to a State: the new value for each path, such as `metadata.topic`. Messages are appended,
/// every other value is replaced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct StateUpdates(Map<String, Value>);

/// A change that a State does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUpdate {
    /// The State has no such field.
    #[error("the State has no field \"{0}\" that can be set; there are {FIELDS}")]
    UnknownField(String),
    /// The field does not take that value.
    #[error("{path} must be {expected}, not {found}")]
    WrongType {
        /// The field.
        path: String,
        /// The expected type.
        expected: &'static str,
        /// The type found.
        found: &'static str,
    },
    /// A message needs a role and content.
    #[error(
        "messages: a message is a text, or {{role, content}} with the role user or system: {0}"
    )]
    Message(String),
    /// The output of a node cannot be set.
    #[error("{path}: {problem}")]
    NodeOutput {
        /// The whole path.
        path: String,
        /// The problem.
        problem: String,
    },
    /// A part of the path leads nowhere.
    #[error("{path}: {parent} is {found}, and has no fields")]
    NoFields {
        /// The whole path.
        path: String,
        /// The part that is not an object.
        parent: String,
        /// The type found.
        found: &'static str,
    },
}

/// A message as given from outside.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateMessage {
    role: StateMessageRole,
    content: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateMessageRole {
    User,
    System,
}

impl StateUpdates {
    /// Checks paths and values as far as that needs no State.
    pub fn new(updates: Map<String, Value>) -> Result<Self, InvalidUpdate> {
        for (path, value) in &updates {
            check(path, value)?;
        }
        Ok(Self(updates))
    }

    /// True if there are no updates.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The new value for each path.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Checks that the updated paths exist in the metadata.
    pub fn check_metadata(&self, metadata: &Map<String, Value>) -> Result<(), InvalidUpdate> {
        self.set_metadata(&mut metadata.clone())
    }

    /// The messages that are appended.
    pub fn messages(&self, at: Timestamp) -> Vec<Message> {
        self.0.get("messages").and_then(|given| messages(given, at).ok()).unwrap_or_default()
    }

    /// The new routing key, if one is set; an inner `None` clears it.
    pub fn routing_key(&self) -> Option<Option<String>> {
        self.0.get("routing_key").map(|key| key.as_str().map(str::to_owned))
    }

    /// The new next action, if one is set; an inner `None` clears it.
    pub fn next_action(&self) -> Option<Option<String>> {
        self.0.get("next_action").map(|action| action.as_str().map(str::to_owned))
    }

    /// The new outputs of nodes: the path, the node and the output as text.
    pub fn node_outputs(&self) -> impl Iterator<Item = (&str, Name, String)> {
        self.0.iter().filter_map(|(path, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => value.to_string(),
            };
            Some((path.as_str(), node_of_path(path)?, text))
        })
    }

    /// Applies the metadata updates. Stops at a path that does not exist.
    pub fn set_metadata(&self, metadata: &mut Map<String, Value>) -> Result<(), InvalidUpdate> {
        for (path, value) in &self.0 {
            let Some(inner) = path.strip_prefix("metadata") else { continue };
            match inner.strip_prefix('.') {
                Some(inner) => set(metadata, path, inner, value)?,
                None => value.as_object().unwrap_or(&Map::new()).clone_into(metadata),
            }
        }
        Ok(())
    }
}

fn set(
    metadata: &mut Map<String, Value>,
    path: &str,
    inner: &str,
    value: &Value,
) -> Result<(), InvalidUpdate> {
    let mut fields = metadata;
    let mut parts = inner.split('.').peekable();
    let mut parent = String::from("metadata");
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            fields.insert(part.to_owned(), value.clone());
            return Ok(());
        }
        parent = format!("{parent}.{part}");
        let next = fields.entry(part).or_insert_with(|| Value::Object(Map::new()));
        let found = type_of(next);
        fields = next.as_object_mut().ok_or_else(|| InvalidUpdate::NoFields {
            path: path.to_owned(),
            parent: parent.clone(),
            found,
        })?;
    }
    Ok(())
}

fn check(path: &str, value: &Value) -> Result<(), InvalidUpdate> {
    let wrong = |expected| {
        let (path, found) = (path.to_owned(), type_of(value));
        Err(InvalidUpdate::WrongType { path, expected, found })
    };
    match path {
        "messages" => messages(value, Timestamp::UNIX_EPOCH).map(drop),
        "next_action" | "routing_key" if value.is_string() || value.is_null() => Ok(()),
        "next_action" | "routing_key" => wrong("a text or null"),
        "metadata" if value.is_object() => Ok(()),
        "metadata" => wrong("an object"),
        _ => match path.strip_prefix("metadata.") {
            Some(inner) if inner.split('.').all(|part| !part.is_empty()) => Ok(()),
            None if node_of_path(path).is_some() => Ok(()),
            Some(_) | None => Err(InvalidUpdate::UnknownField(path.to_owned())),
        },
    }
}

/// The node whose output a path names: `nodes.NAME.output`.
fn node_of_path(path: &str) -> Option<Name> {
    path.strip_prefix("nodes.")?.strip_suffix(".output")?.parse().ok()
}

fn messages(value: &Value, at: Timestamp) -> Result<Vec<Message>, InvalidUpdate> {
    let one = |value: &Value| {
        if let Value::String(text) = value {
            return Ok(Message::User { content: text.clone(), timestamp: at });
        }
        let given = StateMessage::deserialize(value)
            .map_err(|error| InvalidUpdate::Message(error.to_string()))?;
        let (content, timestamp) = (given.content, at);
        Ok(match given.role {
            StateMessageRole::User => Message::User { content, timestamp },
            StateMessageRole::System => Message::System { content, timestamp },
        })
    };
    match value.as_array() {
        Some(all) => all.iter().map(one).collect(),
        None => Ok(vec![one(value)?]),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl TryFrom<Map<String, Value>> for StateUpdates {
    type Error = InvalidUpdate;

    fn try_from(updates: Map<String, Value>) -> Result<Self, InvalidUpdate> {
        Self::new(updates)
    }
}

impl From<StateUpdates> for Map<String, Value> {
    fn from(updates: StateUpdates) -> Self {
        updates.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn updates(json: Value) -> Result<StateUpdates, String> {
        serde_json::from_value(json).map_err(|error: serde_json::Error| error.to_string())
    }

    fn metadata() -> Map<String, Value> {
        json!({"topic": "rain", "deep": {"a": 1}}).as_object().unwrap().clone()
    }

    #[test]
    fn messages_are_appended_and_other_fields_replaced() {
        let given = updates(json!({
            "messages": ["Shorter.", {"role": "system", "content": "Be kind."}],
            "routing_key": "publish",
            "next_action": null,
            "metadata.deep.b": [2],
            "metadata.topic": "snow",
        }))
        .unwrap();
        let at = Timestamp::UNIX_EPOCH;
        let roles: Vec<_> = given.messages(at).iter().map(|m| m.role().label()).collect();
        assert_eq!(roles, ["user", "system"]);
        assert_eq!(given.routing_key(), Some(Some("publish".into())));
        assert_eq!(given.next_action(), Some(None));
        let mut metadata = metadata();
        given.set_metadata(&mut metadata).unwrap();
        assert_eq!(Value::Object(metadata), json!({"topic": "snow", "deep": {"a": 1, "b": [2]}}));
    }

    #[test]
    fn metadata_is_replaced_as_a_whole_where_it_is_set_as_a_whole() {
        let mut metadata = metadata();
        updates(json!({"metadata": {"x": 1}})).unwrap().set_metadata(&mut metadata).unwrap();
        assert_eq!(Value::Object(metadata), json!({"x": 1}));
    }

    #[test]
    fn outputs_of_nodes_are_texts() {
        let given = updates(json!({"nodes.a.output": "x", "nodes.b.output": {"y": 1}})).unwrap();
        let outputs: Vec<_> =
            given.node_outputs().map(|(path, node, text)| (path, node.to_string(), text)).collect();
        assert_eq!(
            outputs,
            [
                ("nodes.a.output", "a".to_owned(), "x".to_owned()),
                ("nodes.b.output", "b".to_owned(), "{\"y\":1}".to_owned()),
            ]
        );
        for path in ["nodes.a", "nodes..output", "nodes.a.input", "nodes.output"] {
            assert!(updates(json!({path: "x"})).unwrap_err().contains("no field"), "{path}");
        }
    }

    #[test]
    fn rejects_updates_that_a_state_does_not_allow() {
        for (given, expected) in [
            (json!({"route": 1}), "no field \"route\""),
            (json!({"current_agent": "x"}), "no field \"current_agent\""),
            (json!({"metadata.": 1}), "no field \"metadata.\""),
            (json!({"metadata": 1}), "metadata must be an object, not a number"),
            (json!({"routing_key": 1}), "routing_key must be a text or null, not a number"),
            (json!({"messages": 1}), "a message is a text"),
            (json!({"messages": [{"role": "assistant", "content": "x"}]}), "role user or system"),
            (json!({"messages": [{"content": "x"}]}), "missing field `role`"),
        ] {
            let error = updates(given.clone()).unwrap_err();
            assert!(error.contains(expected), "{given}: {error}");
        }
        let error = updates(json!({"metadata.topic.x": 1})).unwrap().check_metadata(&metadata());
        insta::assert_snapshot!(error.unwrap_err(), @"metadata.topic.x: metadata.topic is a text, and has no fields");
    }
}

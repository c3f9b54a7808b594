//! What the wire formats have in common: what is sent, and what comes back.

use std::borrow::Cow;

use polity_engine::driver::{AskedArguments, Progress};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::failure::Fault;
use super::names::ToolNames;
use super::turns::Turn;

/// Everything that one call sends.
pub(super) struct Prompt<'a> {
    pub(super) model: &'a str,
    pub(super) system: &'a str,
    /// Nothing for models that let no one choose.
    pub(super) temperature: Option<f64>,
    pub(super) turns: &'a [Turn<'a>],
    pub(super) tools: &'a ToolNames<'a>,
}

/// Puts an answer together from the events of a stream.
pub(super) trait Listener: Send {
    /// Takes the data of one event.
    fn hear(&mut self, data: &[u8], progress: &dyn Progress) -> Result<(), Fault>;

    /// How much of the answer has come.
    fn heard(&self) -> Heard;

    /// The answer, once it is complete.
    fn answer(self: Box<Self>) -> Result<Answer, Fault>;
}

/// How much of an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// More must follow.
    Part,
    /// The answer is complete, and something about it may follow.
    Enough,
    /// Nothing more will follow.
    All,
}

/// A complete answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) content: String,
    pub(super) calls: Vec<AnsweredCall>,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    /// Whether the model stopped because it may not say more.
    pub(super) is_cut: bool,
}

/// A call in an answer, with the tool's name on the wire.
#[derive(Debug, PartialEq)]
pub(super) struct AnsweredCall {
    pub(super) name: String,
    pub(super) arguments: AskedArguments,
    pub(super) signature: Option<String>,
}

/// A text that is borrowed from the event wherever it has no escapes.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Piece<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Reads one event.
pub(super) fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(data).map_err(|error| Fault::invalid_json(&error, data))
}

/// Adds a piece of text to an answer, and tells of it.
pub(super) fn add_text(content: &mut String, piece: &str, progress: &dyn Progress) {
    if !piece.is_empty() {
        content.push_str(piece);
        progress.text(piece);
    }
}

/// Arguments that came as text. Models leave them out where a tool needs none.
pub(super) fn arguments_from_text(text: String) -> AskedArguments {
    if text.trim().is_empty() {
        return AskedArguments::Object(Map::new());
    }
    match serde_json::from_str(&text) {
        Ok(value) => arguments_from_value(value, || text),
        Err(error) => AskedArguments::Unreadable { text, reason: error.to_string() },
    }
}

/// Arguments that came as JSON.
pub(super) fn arguments_from_value(value: Value, text: impl FnOnce() -> String) -> AskedArguments {
    let kind = match value {
        Value::Object(object) => return AskedArguments::Object(object),
        Value::Null => return AskedArguments::Object(Map::new()),
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    AskedArguments::Unreadable { text: text(), reason: format!("expected an object, found {kind}") }
}

/// The schema of a tool's arguments, with what providers insist on: a type, and properties.
pub(super) struct ArgumentsSchema<'a>(pub(super) &'a Map<String, Value>);

impl Serialize for ArgumentsSchema<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.0.contains_key("type") {
            map.serialize_entry("type", "object")?;
        }
        if !self.0.contains_key("properties") {
            map.serialize_entry("properties", &Map::new())?;
        }
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_an_object_or_unreadable_with_a_reason() {
        let object = |value: Value| AskedArguments::Object(value.as_object().unwrap().clone());
        let unreadable = |text: &str, reason: &str| AskedArguments::Unreadable {
            text: text.to_owned(),
            reason: reason.to_owned(),
        };
        for (text, expected) in [
            ("", object(json!({}))),
            (" null ", object(json!({}))),
            (r#"{"a": [1]}"#, object(json!({"a": [1]}))),
            ("[1]", unreadable("[1]", "expected an object, found an array")),
            (r#"{"a":"#, unreadable(r#"{"a":"#, "EOF while parsing a value at line 1 column 5")),
        ] {
            assert_eq!(arguments_from_text(text.to_owned()), expected, "{text}");
        }
    }

    #[test]
    fn a_schema_always_says_that_it_is_an_object_with_properties() {
        let schema = json!({"required": ["a"], "properties": {"a": {"type": "string"}}});
        let sent = serde_json::to_value(ArgumentsSchema(schema.as_object().unwrap())).unwrap();
        let properties = json!({"a": {"type": "string"}});
        let expected = json!({"type": "object", "required": ["a"], "properties": properties});
        assert_eq!(sent, expected);
        let sent = serde_json::to_value(ArgumentsSchema(&Map::new())).unwrap();
        assert_eq!(sent, json!({"type": "object", "properties": {}}));
    }
}

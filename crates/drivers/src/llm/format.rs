//! The request and stream formats of the providers, and what they share.

pub(super) mod anthropic;
pub(super) mod gemini;
pub(super) mod openai;
pub(super) mod tool_names;
pub(super) mod turns;

use polity_engine::driver::{AnswerEnding, AskedArguments, TextSink};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use self::tool_names::WireToolNames;
use self::turns::PromptTurn;
use super::error::ModelCallError;
use crate::json_count::json_count;
use crate::json_size::{JSON_VALUES_MAX, has_too_many_values};

/// The content of one call, independent of the provider.
pub(crate) struct ModelPrompt<'a> {
    pub(super) model: &'a str,
    pub(crate) system: &'a str,
    /// `None` for models that reject a temperature.
    pub(crate) temperature: Option<f64>,
    pub(crate) turns: &'a [PromptTurn<'a>],
    pub(crate) tools: &'a WireToolNames<'a>,
}

/// Assembles an answer from the events of a stream.
pub(crate) trait StreamDecoder: Send {
    fn push_event(&mut self, data: &[u8], progress: &dyn TextSink) -> Result<(), ModelCallError>;

    /// The completeness of the answer so far.
    fn state(&self) -> StreamState;

    /// The input and output tokens that the provider has reported so far.
    fn tokens(&self) -> (Option<u64>, Option<u64>);

    fn finish(self: Box<Self>) -> Result<ModelAnswer, ModelCallError>;
}

/// The completeness of a streamed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    Incomplete,
    /// The answer is complete; metadata may follow.
    Complete,
    /// The provider has ended the stream.
    Ended,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct ModelAnswer {
    pub(crate) content: String,
    pub(crate) calls: Vec<AnswerToolCall>,
    /// `None` if the provider did not report it.
    pub(crate) input_tokens: Option<u64>,
    /// `None` if the provider did not report it.
    pub(crate) output_tokens: Option<u64>,
    pub(crate) ending: AnswerEnding,
    /// The provider's own word for the end.
    pub(crate) stop_reason: Option<String>,
}

/// A tool call in an answer, with the tool's wire name.
#[derive(Debug, PartialEq)]
pub(crate) struct AnswerToolCall {
    pub(crate) name: String,
    pub(crate) arguments: AskedArguments,
    pub(crate) signature: Option<String>,
}

pub(crate) fn parse_event<T: DeserializeOwned>(data: &[u8]) -> Result<T, ModelCallError> {
    if has_too_many_values(data) {
        return Err(ModelCallError::permanent(format!(
            "the stream had an event of more than {JSON_VALUES_MAX} JSON values, the most allowed"
        )));
    }
    serde_json::from_slice(data).map_err(|error| ModelCallError::invalid_json(&error, data))
}

/// Appends a text delta to the answer and reports it as progress.
pub(crate) fn append_text(content: &mut String, piece: &str, progress: &dyn TextSink) {
    if !piece.is_empty() {
        content.push_str(piece);
        progress.text(piece);
    }
}

/// Parses arguments sent as text. Models omit them for tools without parameters.
pub(crate) fn parse_arguments(text: String) -> AskedArguments {
    if text.trim().is_empty() {
        return AskedArguments::Object(Map::new());
    }
    if has_too_many_values(text.as_bytes()) {
        let reason = format!("there are more than {JSON_VALUES_MAX} values, the most allowed");
        return AskedArguments::Unreadable { text, reason };
    }
    match serde_json::from_str(&text) {
        Ok(value) => check_arguments(value, || text),
        Err(error) => AskedArguments::Unreadable { text, reason: error.to_string() },
    }
}

/// Parses the arguments of a call whose answer was cut. Missing arguments are incomplete there, not
/// omitted.
pub(crate) fn parse_cut_arguments(text: String) -> AskedArguments {
    if text.trim().is_empty() {
        let reason = "the answer was cut before the arguments".to_owned();
        return AskedArguments::Unreadable { text, reason };
    }
    parse_arguments(text)
}

/// Reads a token count. Some servers write it as a number with a fraction, such as `100.0`.
pub(crate) fn token_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let value = Option::<Value>::deserialize(from)?;
    Ok(value.as_ref().and_then(json_count))
}

/// Accepts an object or null as arguments; anything else is unreadable.
pub(crate) fn check_arguments(value: Value, text: impl FnOnce() -> String) -> AskedArguments {
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

/// The schema of a tool's arguments, with the `type` and `properties` that providers require.
pub(crate) struct ArgumentsSchema<'a>(pub(super) &'a Map<String, Value>);

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
    use polity_model::usage::TOKENS_MAX;
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_an_object_or_unreadable() {
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
            assert_eq!(parse_arguments(text.to_owned()), expected, "{text}");
        }
    }

    #[test]
    fn token_count_with_a_fraction_counts_and_a_huge_one_is_cut() {
        for (value, expected) in [
            (json!(100), Some(100)),
            (json!(100.0), Some(100)),
            (json!(0), Some(0)),
            (json!(u64::MAX), Some(TOKENS_MAX)),
            (json!(1e30), Some(TOKENS_MAX)),
            (json!(-1), None),
            (json!("100"), None),
            (json!(null), None),
        ] {
            assert_eq!(token_count(&value).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn missing_arguments_of_a_cut_answer_are_unreadable() {
        assert!(matches!(parse_cut_arguments(String::new()), AskedArguments::Unreadable { .. }));
        assert_eq!(parse_cut_arguments("{}".to_owned()), AskedArguments::Object(Map::new()));
    }

    #[test]
    fn schema_always_has_type_and_properties() {
        let schema = json!({"required": ["a"], "properties": {"a": {"type": "string"}}});
        let sent = serde_json::to_value(ArgumentsSchema(schema.as_object().unwrap())).unwrap();
        let properties = json!({"a": {"type": "string"}});
        let expected = json!({"type": "object", "required": ["a"], "properties": properties});
        assert_eq!(sent, expected);
        let sent = serde_json::to_value(ArgumentsSchema(&Map::new())).unwrap();
        assert_eq!(sent, json!({"type": "object", "properties": {}}));
    }
}

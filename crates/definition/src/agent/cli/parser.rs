//! The parser of a CLI agent's output.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use polity_model::inline_schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::value::JsonPointer;

/// The parser of a CLI agent's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputParser {
    /// The form of the output.
    pub format: OutputFormat,
    /// Removes terminal escape sequences first.
    #[serde(default)]
    pub strip_ansi: bool,
    /// The location of the answer.
    pub answer: Option<JsonPick>,
    /// Joins the answers of all events; otherwise the last one counts.
    #[serde(default)]
    pub join_answers: bool,
    /// The location of the progress text; default the answer.
    pub shown: Option<JsonPick>,
    /// The location of an error text. A run with one has failed.
    pub error: Option<JsonPick>,
    /// The location of the status.
    pub status: Option<JsonPick>,
    /// A marker that only the final event of a complete run has. Without it the run has failed.
    pub terminal: Option<JsonPick>,
    /// The location of the CLI agent's own session id.
    pub session_id: Option<JsonPick>,
    /// The location of the number of input tokens.
    pub input_tokens: Option<JsonPick>,
    /// The location of the number of output tokens.
    pub output_tokens: Option<JsonPick>,
    /// The location of the cost in US dollars.
    pub cost: Option<JsonPick>,
}

impl OutputParser {
    /// A parser without locations.
    pub fn new(format: OutputFormat) -> Self {
        Self {
            format,
            strip_ansi: false,
            answer: None,
            join_answers: false,
            shown: None,
            error: None,
            status: None,
            terminal: None,
            session_id: None,
            input_tokens: None,
            output_tokens: None,
            cost: None,
        }
    }
}

/// The form of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// The output is the answer.
    Text,
    /// One JSON document; the items of a list are looked at one after the other.
    Json,
    /// One JSON document on each line; the last that has an answer counts.
    Jsonl,
    /// One event per line, shown as it arrives.
    StreamJson,
}

/// A location in a JSON document: a JSON Pointer, optionally with conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JsonPick {
    /// The place.
    pub at: JsonPointer,
    /// The conditions: values required at other locations.
    pub when: BTreeMap<JsonPointer, JsonScalar>,
}

impl<'de> Deserialize<'de> for JsonPick {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonPickVisitor)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JsonPickFile {
    /// The place, as a JSON Pointer.
    at: JsonPointer,
    /// The conditions: values required at other locations.
    #[serde(default)]
    when: BTreeMap<JsonPointer, JsonScalar>,
}

struct JsonPickVisitor;

impl<'de> Visitor<'de> for JsonPickVisitor {
    type Value = JsonPick;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON Pointer, or a mapping of \"at\" and \"when\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<JsonPick, E> {
        let at = text.parse().map_err(E::custom)?;
        Ok(JsonPick { at, when: BTreeMap::new() })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<JsonPick, A::Error> {
        let file = JsonPickFile::deserialize(MapAccessDeserializer::new(entries))?;
        Ok(JsonPick { at: file.at, when: file.when })
    }
}

impl JsonSchema for JsonPick {
    fn schema_name() -> Cow<'static, str> {
        "JsonPick".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Where something stands in a JSON document: a JSON Pointer, or one with \
                            conditions.",
            "anyOf": [
                JsonPointer::json_schema(generator),
                JsonPickFile::json_schema(generator),
            ]
        })
    }
}

/// A text, whole number or boolean, compared by its text: `"5"` and `5` are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct JsonScalar(Box<str>);

impl JsonScalar {
    /// The value that looks like that.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// True if the value is this one.
    pub fn is(&self, value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::String(text) => **text == *self.0,
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
                let written = value.to_string();
                written.as_str() == &*self.0
            }
            serde_json::Value::Null
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_) => false,
        }
    }
}

impl<'de> Deserialize<'de> for JsonScalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonScalarVisitor)
    }
}

struct JsonScalarVisitor;

impl Visitor<'_> for JsonScalarVisitor {
    type Value = JsonScalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number, true or false")
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonScalar, E> {
        Ok(JsonScalar::new(value))
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonScalar, E> {
        Ok(JsonScalar::new(&value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonScalar, E> {
        Ok(JsonScalar::new(&value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonScalar, E> {
        Ok(JsonScalar::new(&value.to_string()))
    }
}

inline_schema!(JsonScalar, { "type": ["string", "integer", "boolean"] });

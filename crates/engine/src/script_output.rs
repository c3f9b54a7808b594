//! The output of a script: one JSON value, or an object of `output`, `state_updates` and
//! `routing_key`.

use std::borrow::Cow;

use polity_model::event::NodeOutput;
use polity_model::state::StateUpdates;
use polity_model::value::{excerpt, json_text};
use serde_json::{Map, Value};

/// The field of a script's input that has its arguments.
pub(crate) const SCRIPT_ARGUMENTS: &str = "arguments";

const OUTPUT: &str = "output";
const STATE_UPDATES: &str = "state_updates";
const ROUTING_KEY: &str = "routing_key";

/// The parts of a script's output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptOutput {
    /// The output of the step.
    pub(crate) value: Value,
    /// The output as text: a text as it is, any other value as JSON.
    pub(crate) text: String,
    /// The changes to the State.
    pub(crate) state_updates: StateUpdates,
    /// The routing key, if the script sets one.
    pub(crate) routing_key: Option<String>,
    /// True if the printed text as a whole is the output.
    is_whole: bool,
}

impl ScriptOutput {
    /// Parses the text that a script printed. An object without other fields than the three known
    /// ones is taken apart; any other value is the output.
    pub(crate) fn parse(printed: &str) -> Result<Self, String> {
        // The driver lets only a script pass that may print nothing.
        if printed.trim().is_empty() {
            return Self::from_fields(Map::new());
        }
        let value: Value = serde_json::from_str(printed).map_err(|error| {
            format!(
                "the script printed no JSON value ({error}): \"{}\"; a script prints one JSON value \
                 to stdout, and logs to stderr",
                excerpt(printed.trim())
            )
        })?;
        match value {
            Value::Object(fields) if is_taken_apart(&fields) => Self::from_fields(fields),
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => {
                let is_whole = !value.is_string();
                let text =
                    if is_whole { Cow::from(printed) } else { json_text(&value) }.into_owned();
                let state_updates = StateUpdates::default();
                Ok(Self { value, text, state_updates, routing_key: None, is_whole })
            }
        }
    }

    fn from_fields(mut fields: Map<String, Value>) -> Result<Self, String> {
        let updates = match fields.remove(STATE_UPDATES) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(updates)) => updates,
            Some(other) => {
                return Err(format!(
                    "the state_updates of the script must be an object of paths and values, such \
                     as {{\"metadata.score\": 3}}, not {other}"
                ));
            }
        };
        let state_updates = StateUpdates::new(updates)
            .map_err(|error| format!("the state_updates of the script: {error}"))?;
        let routing_key = match fields.remove(ROUTING_KEY) {
            None | Some(Value::Null) => None,
            Some(key @ (Value::String(_) | Value::Bool(_) | Value::Number(_))) => {
                Some(json_text(&key).into_owned())
            }
            Some(other @ (Value::Array(_) | Value::Object(_))) => {
                return Err(format!(
                    "the routing_key of the script must be a text, a number or a truth value, not \
                     {other}"
                ));
            }
        };
        let value = fields.remove(OUTPUT).unwrap_or_else(|| Value::String(String::new()));
        let text = json_text(&value).into_owned();
        Ok(Self { value, text, state_updates, routing_key, is_whole: false })
    }

    /// The place of the output in the journal: that of the whole answer, or its own.
    pub(crate) fn stored(&self, answer: NodeOutput) -> NodeOutput {
        if self.is_whole { answer } else { NodeOutput::Json(self.value.clone()) }
    }
}

fn is_taken_apart(fields: &Map<String, Value>) -> bool {
    let is_known = |name: &String| [OUTPUT, STATE_UPDATES, ROUTING_KEY].contains(&name.as_str());
    !fields.is_empty() && fields.keys().all(is_known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_json_value_is_an_output() {
        for (printed, text) in [
            ("3", "3"),
            ("\"high\"", "high"),
            ("null", "null"),
            ("[1, 2]", "[1, 2]"),
            ("{}", "{}"),
            (r#"{"output": 1, "score": 2}"#, r#"{"output": 1, "score": 2}"#),
        ] {
            let output = ScriptOutput::parse(printed).unwrap();
            assert_eq!(output.text, text, "{printed}");
            assert!(output.state_updates.is_empty() && output.routing_key.is_none(), "{printed}");
        }
    }

    #[test]
    fn known_fields_are_taken_apart() {
        let printed = json!({
            "output": {"score": 3},
            "state_updates": {"metadata.score": 3},
            "routing_key": "high",
        });
        let output = ScriptOutput::parse(&printed.to_string()).unwrap();
        assert_eq!(output.value, json!({"score": 3}));
        assert_eq!(output.routing_key.as_deref(), Some("high"));
        assert_eq!(Value::Object(output.state_updates.into()), json!({"metadata.score": 3}));
        let only_key = ScriptOutput::parse(r#"{"routing_key": true}"#).unwrap();
        assert_eq!((only_key.text.as_str(), only_key.routing_key.as_deref()), ("", Some("true")));
    }

    #[test]
    fn a_text_is_stored_once() {
        assert_eq!(
            ScriptOutput::parse("[1]").unwrap().stored(NodeOutput::Answer),
            NodeOutput::Answer
        );
        assert_eq!(
            ScriptOutput::parse("\"high\"").unwrap().stored(NodeOutput::Answer),
            NodeOutput::Json("high".into())
        );
    }

    #[test]
    fn no_output_is_the_empty_text() {
        let output = ScriptOutput::parse(" \n").unwrap();
        assert_eq!((output.text.as_str(), output.value), ("", json!("")));
    }

    #[test]
    fn wrong_output_is_explained() {
        for (printed, expected) in [
            ("hello", "printed no JSON value"),
            ("{} {}", "printed no JSON value"),
            (r#"{"state_updates": [1]}"#, "must be an object of paths and values"),
            (r#"{"state_updates": {"score": 1}}"#, "the State has no field \"score\""),
            (r#"{"routing_key": ["a"]}"#, "must be a text, a number or a truth value"),
        ] {
            let error = ScriptOutput::parse(printed).unwrap_err();
            assert!(error.contains(expected), "{printed}: {error}");
        }
    }
}

//! Validation of values against JSON Schemas, with messages that say what to change.

mod error;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::{Map, Value};

pub use error::{InvalidSchema, SchemaError};

/// The number of problems of one value that are listed; the rest are only counted.
const PROBLEMS_MAX: usize = 5;

/// The length of a value in a message, in characters.
const VALUE_CHARACTERS_MAX: usize = 80;

/// A JSON Schema, ready to check values.
#[derive(Debug)]
pub struct SchemaValidator(Validator);

impl SchemaValidator {
    /// Compiles a schema. References must be within it: nothing is fetched.
    pub fn compile(schema: &Map<String, Value>) -> Result<Self, InvalidSchema> {
        let schema = Value::Object(schema.clone());
        if let Some(invalid) = InvalidSchema::too_many_references(&schema) {
            return Err(invalid);
        }
        match jsonschema::options().offline().build(&schema) {
            Ok(validator) => Ok(Self(validator)),
            Err(error) => Err(InvalidSchema::new(&schema, &error)),
        }
    }

    /// Describes the problems of a value, for a model that will try again.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let mut errors = self.0.iter_errors(value);
        let messages: Vec<_> =
            errors.by_ref().take(PROBLEMS_MAX).map(|error| describe(&error)).collect();
        if messages.is_empty() {
            return Ok(());
        }
        let text = messages.join("; ");
        match errors.count() {
            0 => Err(text),
            more => Err(format!("{text}; and {more} more")),
        }
    }
}

/// Describes one problem: location, value and expectation.
fn describe(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let place = if place.is_empty() { "at the top level" } else { place };
    format!("{place}: {}", explain(error))
}

fn explain(error: &ValidationError<'_>) -> String {
    let value = shorten(&error.instance().to_string());
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            format!("{value} is {}, expected {}", kind_of(error.instance()), expected(kind))
        }
        ValidationErrorKind::Required { property } => {
            format!("the property {property} is missing")
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<_> = unexpected.iter().map(|name| format!("\"{name}\"")).collect();
            format!("unknown property {}; leave it out", shorten(&names.join(", ")))
        }
        ValidationErrorKind::Enum { options } => {
            format!("{value} is not allowed, expected one of {}", shorten(&options.to_string()))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }
            if !context.is_empty() =>
        {
            let ways: Vec<_> =
                context.iter().filter_map(|errors| errors.first().map(describe)).collect();
            format!("{value} fits none of the allowed forms: {}", ways.join(", or "))
        }
        // The library's own messages are good enough for all others.
        _ => shorten(&error.to_string()),
    }
}

fn expected(kind: &TypeKind) -> String {
    let names: Vec<_> = expected_types(kind).iter().map(ToString::to_string).collect();
    names.join(" or ")
}

fn expected_types(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(kind) => vec![*kind],
        TypeKind::Multiple(kinds) => kinds.iter().collect(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn validator(schema: &Value) -> SchemaValidator {
        SchemaValidator::compile(schema.as_object().unwrap()).unwrap()
    }

    #[test]
    fn problems_have_location_and_expectation() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "unit": {"enum": ["metre", "foot"]},
                "names": {"type": "array", "items": {"type": "string", "minLength": 2}},
                "when": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "required": ["a"],
            "additionalProperties": false,
        });
        let validator = validator(&schema);
        for (value, expected) in [
            (json!({"a": 1}), Ok(())),
            (json!({}), Err("at the top level: the property \"a\" is missing")),
            (json!({"a": "1"}), Err("/a: \"1\" is a string, expected integer")),
            (
                json!({"a": 1, "b": 2}),
                Err("at the top level: unknown property \"b\"; leave it out"),
            ),
            (
                json!({"a": 1, "unit": "mile"}),
                Err("/unit: \"mile\" is not allowed, expected one of [\"metre\",\"foot\"]"),
            ),
            (json!({"a": 1, "names": ["Ada", 7]}), Err("/names/1: 7 is a number, expected string")),
            (
                json!({"a": 1, "when": "now"}),
                Err("/when: \"now\" fits none of the allowed forms: /when: \"now\" is a string, \
                     expected integer, or /when: \"now\" is a string, expected null"),
            ),
        ] {
            assert_eq!(validator.check(&value), expected.map_err(str::to_owned), "{value}");
        }
    }

    #[test]
    fn lists_few_problems_and_shortens_values() {
        let validator = validator(&json!({"items": {"type": "integer"}}));
        let messages = validator.check(&json!(vec!["x".repeat(500); 9])).unwrap_err();
        assert_eq!(messages.matches("expected integer").count(), PROBLEMS_MAX);
        assert!(messages.ends_with("; and 4 more"), "{messages}");
        assert!(messages.len() < 1000, "{messages}");
    }
}

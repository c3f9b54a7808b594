//! Whether a value has the shape that a tool's JSON Schema asks for, and if not, what to change.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value};

/// How many problems of one value are told; the rest are only counted.
pub(super) const PROBLEMS_MAX: usize = 5;

/// How much of a wrong value is repeated, in characters.
const VALUE_CHARACTERS_MAX: usize = 80;

/// A JSON Schema, ready to check values.
#[derive(Debug)]
pub(super) struct Shape(Option<Validator>);

impl Shape {
    /// Compiles a schema. One that cannot be compiled checks nothing: a server's mistake should
    /// not make its tool useless. A `$ref` to another document is such a mistake, and is never
    /// fetched.
    pub(super) fn compile(schema: &Map<String, Value>, whose: &str) -> Self {
        match jsonschema::options().offline().build(&Value::Object(schema.clone())) {
            Ok(validator) => Self(Some(validator)),
            Err(error) => {
                tracing::warn!("{whose} cannot be understood and is not checked: {error}");
                Self(None)
            }
        }
    }

    /// What is wrong with a value, for a model that will try again.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        let Some(validator) = &self.0 else { return Ok(()) };
        let mut errors = validator.iter_errors(value);
        let told: Vec<_> = errors.by_ref().take(PROBLEMS_MAX).map(|error| tell(&error)).collect();
        if told.is_empty() {
            return Ok(());
        }
        let text = told.join("; ");
        match errors.count() {
            0 => Err(text),
            more => Err(format!("{text}; and {more} more")),
        }
    }
}

/// One problem: where it is, what is wrong, and what is expected.
fn tell(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let place = if place.is_empty() { "at the top level" } else { place };
    format!("{place}: {}", what_is_wrong(error))
}

fn what_is_wrong(error: &ValidationError<'_>) -> String {
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
                context.iter().filter_map(|errors| errors.first().map(tell)).collect();
            format!("{value} fits none of the allowed forms: {}", ways.join(", or "))
        }
        // The library's own words say what is wrong and what is expected of all the others.
        _ => shorten(&error.to_string()),
    }
}

fn expected(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => {
            kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
        }
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

    fn shape(schema: &Value) -> Shape {
        Shape::compile(schema.as_object().unwrap(), "the schema")
    }

    #[test]
    fn problems_say_where_and_what_to_change() {
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
        let shape = shape(&schema);
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
            assert_eq!(shape.check(&value), expected.map_err(str::to_owned), "{value}");
        }
    }

    #[test]
    fn only_a_few_problems_are_told_and_long_values_are_shortened() {
        let shape = shape(&json!({"items": {"type": "integer"}}));
        let told = shape.check(&json!(vec!["x".repeat(500); 9])).unwrap_err();
        assert_eq!(told.matches("expected integer").count(), PROBLEMS_MAX);
        assert!(told.ends_with("; and 4 more"), "{told}");
        assert!(told.len() < 1000, "{told}");
    }

    #[test]
    fn a_schema_that_cannot_be_understood_checks_nothing() {
        for schema in [
            json!({"type": "no such type"}),
            json!({"$ref": "https://example.com/schema.json"}),
            json!({"$ref": "#/nowhere"}),
        ] {
            assert_eq!(shape(&schema).check(&json!(7)), Ok(()), "{schema}");
        }
    }
}

//! Validation of values against JSON Schemas, with messages that say what to change.

mod error;
mod work;

use std::fmt::{self, Write};

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use self::work::{DEPTH_MAX, SchemaWork, WorkLimit, count_values};
pub use error::{InvalidSchema, SchemaError};

/// The most values that a schema may consist of.
const SCHEMA_VALUES_MAX: u64 = 100_000;

/// The most subschemas that may apply to one value, each reference to one counted anew.
const UNFOLDED_MAX: u64 = 100_000;

/// The most steps of checking one value.
const STEPS_MAX: u64 = 5_000_000;

/// The most steps of a check whose problems are described. Each step may add a problem, and all of
/// them are in memory at once.
const DESCRIBED_STEPS_MAX: u64 = 200_000;

/// The largest compiled regular expression, in bytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// The most steps back that a regular expression may take in one text.
const PATTERN_BACKTRACKS_MAX: usize = 100_000;

/// The number of problems of one value that are listed; the rest are only counted.
const PROBLEMS_MAX: usize = 5;

/// The length of a value in a message, in characters.
const VALUE_CHARACTERS_MAX: usize = 80;

/// A JSON Schema, ready to check values. The work of a check is bounded, whatever the schema.
#[derive(Debug)]
pub struct SchemaValidator {
    validator: Validator,
    work: SchemaWork,
}

impl SchemaValidator {
    /// Compiles a schema. References must be within it: nothing is fetched.
    pub fn compile(schema: &Map<String, Value>) -> Result<Self, InvalidSchema> {
        let schema = Value::Object(schema.clone());
        if count_values(&schema) > SCHEMA_VALUES_MAX {
            let message = format!("it has more than {SCHEMA_VALUES_MAX} values, the most allowed");
            return Err(InvalidSchema::of_whole(message));
        }
        if let Some(invalid) = InvalidSchema::too_many_references(&schema) {
            return Err(invalid);
        }
        let work = SchemaWork::new(&schema);
        let unfolded = |most: String| {
            let message = format!("its references unfold to {most}, the most allowed");
            InvalidSchema::of_whole(message)
        };
        let limit = work.count(&Value::Null, UNFOLDED_MAX).err();
        if limit == Some(WorkLimit::Steps) {
            return Err(unfolded(format!("more than {UNFOLDED_MAX} subschemas")));
        }
        let patterns = PatternOptions::fancy_regex()
            .size_limit(PATTERN_BYTES_MAX)
            .backtrack_limit(PATTERN_BACKTRACKS_MAX);
        let options = jsonschema::options().offline().with_pattern_options(patterns);
        let validator =
            options.build(&schema).map_err(|error| InvalidSchema::new(&schema, &error))?;
        // Other errors of a schema say more than its depth.
        match limit {
            None => Ok(Self { validator, work }),
            Some(_) => Err(unfolded(format!("subschemas more than {DEPTH_MAX} levels deep"))),
        }
    }

    /// Describes the problems of a value, for a model that will try again.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let steps = self.work.count(value, STEPS_MAX).map_err(|limit| {
            let most = match limit {
                WorkLimit::Steps => format!("takes more than {STEPS_MAX} steps"),
                WorkLimit::Depth => format!("goes more than {DEPTH_MAX} levels deep"),
            };
            format!("checking it against its schema {most}, the most allowed; make it smaller")
        })?;
        if steps > DESCRIBED_STEPS_MAX {
            return if self.validator.is_valid(value) {
                Ok(())
            } else {
                Err("it does not fit its schema, and is too large for a list of the problems"
                    .into())
            };
        }
        let mut errors = self.validator.iter_errors(value);
        let messages: Vec<_> =
            errors.by_ref().take(PROBLEMS_MAX).map(|error| describe(&error)).collect();
        if messages.is_empty() {
            return Ok(());
        }
        Err(listed(&messages, errors.count(), "; ", "; and "))
    }
}

/// Joins messages and counts those that are left out.
fn listed(messages: &[String], more: usize, separator: &str, last: &str) -> String {
    let text = messages.join(separator);
    if more == 0 { text } else { format!("{text}{last}{more} more") }
}

/// Describes one problem: location, value and expectation.
fn describe(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let place = if place.is_empty() { "at the top level" } else { place };
    format!("{place}: {}", explain(error))
}

fn explain(error: &ValidationError<'_>) -> String {
    let value = shorten(error.instance());
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
            format!("{value} is not allowed, expected one of {}", shorten(options))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }
            if !context.is_empty() =>
        {
            let ways = context.iter().filter_map(|errors| errors.first());
            let shown: Vec<_> = ways.clone().take(PROBLEMS_MAX).map(describe).collect();
            let ways = listed(&shown, ways.skip(PROBLEMS_MAX).count(), ", or ", ", or ");
            format!("{value} fits none of the allowed forms: {ways}")
        }
        // The library's own messages are good enough for all others.
        _ => shorten(error),
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

/// The beginning of a text, without building the rest: it may be very long.
fn shorten(text: &(impl fmt::Display + ?Sized)) -> String {
    let mut start = ShortText { text: String::new(), characters: 0 };
    match write!(start, "{text}") {
        Ok(()) => start.text,
        Err(fmt::Error) => start.text + "…",
    }
}

/// A writer that fails at the limit.
struct ShortText {
    text: String,
    characters: usize,
}

impl Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.characters == VALUE_CHARACTERS_MAX {
                return Err(fmt::Error);
            }
            self.characters += 1;
            self.text.push(c);
        }
        Ok(())
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
    fn schema_that_unfolds_without_bound_is_refused() {
        let refuse = |schema: Value| {
            SchemaValidator::compile(schema.as_object().unwrap()).unwrap_err().to_string()
        };
        // Two references to the next of 29 levels: half a billion branches.
        let levels = |keyword: &str, reference: &dyn Fn(usize) -> Value| {
            let level = |number: usize| {
                let next = reference(number + 1);
                (format!("l{number}"), json!({keyword: [next.clone(), next]}))
            };
            let mut levels: Map<String, Value> = (0..29).map(level).collect();
            levels.insert("l29".to_owned(), json!({"type": "string"}));
            levels
        };
        let pointer = |number| json!({"$ref": format!("#/$defs/l{number}")});
        for keyword in ["anyOf", "allOf", "oneOf"] {
            let schema = json!({"$ref": "#/$defs/l0", "$defs": levels(keyword, &pointer)});
            assert_eq!(
                refuse(schema),
                "/: its references unfold to more than 100000 subschemas, the most allowed"
            );
        }
        // The same by encoded pointers, anchors, dynamic anchors and ids.
        let mut schemas = vec![{
            let encoded = |number| json!({"$ref": format!("#/%24defs/%6C{number}")});
            json!({"$ref": "#/$defs/l0", "$defs": levels("anyOf", &encoded)})
        }];
        for (keyword, own, reference) in
            [("$ref", "$anchor", "#"), ("$dynamicRef", "$dynamicAnchor", "#"), ("$ref", "$id", "")]
        {
            let by_name = |number| json!({keyword: format!("{reference}n{number}")});
            let mut defs = levels("anyOf", &by_name);
            for (name, level) in &mut defs {
                let name = name.replace('l', "n");
                let name = if own == "$id" { format!("http://x/{name}") } else { name };
                level.as_object_mut().unwrap().insert(own.to_owned(), json!(name));
            }
            schemas.push(json!({"$ref": "#/$defs/l0", "$defs": defs}));
        }
        // Nested unevaluated members evaluate their branches twice.
        let twice = (0..29).fold(
            json!({"type": "object"}),
            |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
        );
        schemas.push(twice);
        for schema in schemas {
            let refused = refuse(schema.clone());
            assert!(refused.contains("unfold to more than"), "{refused}: {schema}");
        }
        let wide = json!({"enum": (0..200_000).collect::<Vec<_>>()});
        assert_eq!(refuse(wide), "/: it has more than 100000 values, the most allowed");
    }

    #[test]
    fn recursive_schema_on_a_deep_value_has_bounded_work() {
        // Each level of the value doubles the work.
        let branch = json!({"properties": {"a": {"$ref": "#"}, "b": {"type": "string"}}});
        let schema = json!({"anyOf": [branch.clone(), branch]});
        let validator = validator(&schema);
        let deep = |depth| (0..depth).fold(json!({"b": 1}), |inner, _| json!({"a": inner}));
        assert!(validator.check(&deep(3)).unwrap_err().contains("fits none of the allowed forms"));
        let message = validator.check(&deep(15)).unwrap_err();
        assert!(message.contains("too large for a list of the problems"), "{message}");
        let message = validator.check(&deep(100)).unwrap_err();
        assert!(message.contains("takes more than 5000000 steps"), "{message}");
    }

    #[test]
    fn chain_of_references_through_a_deep_value_does_not_overflow_the_stack() {
        let link = |number: usize| {
            let next = json!({"$ref": format!("#/$defs/c{}", number + 1)});
            (format!("c{number}"), next)
        };
        let chain = |length: usize| {
            let mut links: Map<String, Value> = (0..length).map(link).collect();
            let member = json!({"properties": {"a": {"$ref": "#/$defs/c0"}}});
            links.insert(format!("c{length}"), member);
            validator(&json!({"$ref": "#/$defs/c0", "$defs": links}))
        };
        let deep = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        let message = chain(900).check(&deep).unwrap_err();
        assert!(message.contains("goes more than 1200 levels deep"), "{message}");
        // Just below the limit, the validator itself has to manage.
        assert_eq!(chain(9).check(&deep), Ok(()));
    }

    #[test]
    fn large_arrays_are_checked_and_large_values_are_not_copied_into_messages() {
        let row = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let validator = validator(&json!({"items": row}));
        let mut rows = vec![json!({"n": 1}); 300_000];
        assert_eq!(validator.check(&json!(rows)), Ok(()));
        rows.push(json!({"n": "x"}));
        assert!(validator.check(&json!(rows)).is_err());
        let forms: Vec<_> = (0..1000).map(|n| json!({"const": n})).collect();
        let validator = self::validator(&json!({"anyOf": forms}));
        let message = validator.check(&json!("x".repeat(100_000))).unwrap_err();
        assert!(message.ends_with(", or 995 more") && message.len() < 2000, "{message}");
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

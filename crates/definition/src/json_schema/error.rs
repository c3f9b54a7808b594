//! The errors of a JSON Schema, for its author.

use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ReferencingError, ValidationError};
use serde_json::Value;

use super::{expected_types, explain, shorten};

/// The types that a schema can ask for.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// The supported versions of JSON Schema.
const VERSIONS: [&str; 5] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
];

/// The keywords whose value leads to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The most references that a schema may have. Following them takes room on the stack, and a chain
/// of very many would end the process.
const REFERENCES_MAX: usize = 1000;

/// The most errors of one schema that are listed.
const FAULTS_MAX: usize = 50;

/// An invalid schema. It has at least one error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(.faults))]
pub struct InvalidSchema {
    /// Its errors, each once.
    pub faults: Vec<SchemaError>,
}

/// One error of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// The location: keys and indices from the top of the schema.
    pub place: Vec<String>,
    /// The message, to follow the location with `must` or after a colon.
    pub message: String,
    /// The word found, if it may be a typo.
    pub found: Option<String>,
    /// The allowed words, if they are few.
    pub allowed: &'static [&'static str],
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}", self.place.join("/"), self.message)
    }
}

fn listed(faults: &[SchemaError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl InvalidSchema {
    /// An error if a schema has too many references.
    pub(super) fn too_many_references(schema: &Value) -> Option<Self> {
        let mut references = Vec::new();
        collect_references(schema, &mut Vec::new(), &mut references);
        let message = || format!("there are more than {REFERENCES_MAX} references");
        (references.len() > REFERENCES_MAX).then(|| Self::of_whole(message()))
    }

    /// An error of the schema as a whole.
    pub(super) fn of_whole(message: String) -> Self {
        let fault = SchemaError { place: Vec::new(), message, found: None, allowed: &[] };
        Self { faults: vec![fault] }
    }

    /// Collects all errors of a schema that failed to compile.
    pub(super) fn new(schema: &Value, error: &ValidationError<'_>) -> Self {
        let mut faults = Vec::new();
        if let ValidationErrorKind::Referencing(error) = error.kind() {
            faults = reference_faults(schema, error);
        } else if let Ok(meta) = jsonschema::meta::validator_for(schema) {
            // Compiling stops at the first error; validating against the meta-schema finds all.
            for error in meta.iter_errors(schema) {
                if faults.len() >= FAULTS_MAX {
                    break;
                }
                add(&mut faults, &error);
            }
        }
        // Errors that the meta-schema does not cover, such as invalid regular expressions.
        if faults.is_empty() {
            add(&mut faults, error);
        }
        Self { faults }
    }
}

/// Adds an error once: the meta-schema repeats many.
fn add(faults: &mut Vec<SchemaError>, error: &ValidationError<'_>) {
    for fault in of_error(error) {
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
}

fn of_error(error: &ValidationError<'_>) -> Vec<SchemaError> {
    let place = steps(error.instance_path().as_str());
    let found = error.instance();
    let fault =
        |message: String| SchemaError { place: place.clone(), message, found: None, allowed: &[] };
    match error.kind() {
        ValidationErrorKind::AnyOf { .. } if place.last().is_some_and(|last| last == "type") => {
            wrong_types(&place, found)
        }
        ValidationErrorKind::Type { kind } => {
            vec![fault(format!("must be {}, found {}", expected(kind), in_words(found)))]
        }
        ValidationErrorKind::Format { format } if format == "regex" => {
            let message = format!("{} is not a regular expression", shorten(found));
            vec![fault(message)]
        }
        _ => vec![fault(explain(error))],
    }
}

/// The errors of a `type`, which is a word or a list of words.
fn wrong_types(place: &[String], found: &Value) -> Vec<SchemaError> {
    let unknown = |place: Vec<String>, word: &str| SchemaError {
        place,
        message: format!("unknown value \"{}\"", shorten(word)),
        found: Some(word.to_owned()),
        allowed: &TYPES,
    };
    let is_unknown = |word: &str| !TYPES.contains(&word);
    let faults: Vec<_> = match found {
        Value::String(word) => vec![unknown(place.to_vec(), word)],
        Value::Array(words) => words
            .iter()
            .enumerate()
            .filter_map(|(index, word)| Some((index, word.as_str()?)))
            .filter(|(_, word)| is_unknown(word))
            .map(|(index, word)| unknown([place, &[index.to_string()]].concat(), word))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    if !faults.is_empty() {
        return faults;
    }
    let message = format!("must be a type or a list of different types, found {}", in_words(found));
    vec![SchemaError { place: place.to_vec(), message, found: None, allowed: &TYPES }]
}

/// The broken references. The library does not report their locations.
fn reference_faults(schema: &Value, error: &ReferencingError) -> Vec<SchemaError> {
    let mut references = Vec::new();
    collect_references(schema, &mut Vec::new(), &mut references);
    let of_those = |is_meant: &dyn Fn(&str) -> bool, why: &str| -> Vec<SchemaError> {
        let meant = references.iter().filter(|(_, target)| is_meant(target));
        meant
            .map(|(place, target)| SchemaError {
                place: place.clone(),
                message: format!("\"{}\" {why}", shorten(target)),
                found: None,
                allowed: &[],
            })
            .collect()
    };
    let nowhere = "leads nowhere";
    let faults = match error {
        ReferencingError::PointerToNowhere { pointer } => {
            of_those(&|target| target.strip_prefix('#') == Some(pointer), nowhere)
        }
        ReferencingError::NoSuchAnchor { anchor } => {
            of_those(&|target| target.strip_prefix('#') == Some(anchor), nowhere)
        }
        ReferencingError::Unretrievable { uri, .. } => of_those(
            &|target| {
                let document = target.split('#').next().unwrap_or_default();
                !document.is_empty() && uri.ends_with(document)
            },
            "is another document, and no other is read: put what it says under $defs",
        ),
        ReferencingError::UnknownSpecification { specification } => vec![SchemaError {
            place: vec!["$schema".to_owned()],
            message: format!("\"{}\" is no known version of JSON Schema", shorten(specification)),
            found: None,
            allowed: &VERSIONS,
        }],
        _ => Vec::new(),
    };
    if !faults.is_empty() {
        return faults;
    }
    vec![SchemaError {
        place: Vec::new(),
        message: format!("a reference cannot be followed: {}", shorten(error)),
        found: None,
        allowed: &[],
    }]
}

fn collect_references<'s>(
    schema: &'s Value,
    place: &mut Vec<String>,
    references: &mut Vec<(Vec<String>, &'s str)>,
) {
    let entries: Vec<(String, &Value)> = match schema {
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (step, value) in entries {
        let target = value.as_str().filter(|_| REFERENCES.contains(&step.as_str()));
        place.push(step);
        if let Some(target) = target {
            references.push((place.clone(), target));
        }
        collect_references(value, place, references);
        place.pop();
    }
}

/// The steps of a JSON Pointer.
fn steps(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// The expected type, in the words of definition files.
fn expected(kind: &TypeKind) -> String {
    let word = |kind: JsonType| match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Null => "nothing",
        JsonType::Number => "a number",
        JsonType::Object => "a mapping",
        JsonType::String => "a text",
    };
    let mut words: Vec<_> = expected_types(kind).into_iter().map(word).collect();
    let separator = if words.contains(&"true or false") { ", " } else { " or " };
    words.sort_by_key(|word| *word == "true or false");
    words.join(separator)
}

/// The value found, in the words of definition files.
fn in_words(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text \"{}\"", shorten(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::REFERENCES_MAX;
    use crate::json_schema::SchemaValidator;

    fn refused(schema: &Value) -> String {
        SchemaValidator::compile(schema.as_object().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn invalid_schemas_have_reasons() {
        let mut report = String::new();
        for schema in [
            json!({"properties": {"a": {"type": "int"}, "b": 5, "c/d": {"minLength": -1}},
                "required": "a"}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": 5}),
            json!({"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#"}]}),
            json!({"anyOf": [{"$ref": "#b"}, {"$ref": "#"}]}),
            json!({"anyOf": [{"$ref": "https://example.com/b.json#/x"}, {"$ref": "#"}]}),
            json!({"anyOf": [{"$ref": "b.json"}, {"$ref": "#"}]}),
            json!({"$ref": "a b"}),
            json!({"$schema": "https://example.com/my"}),
            json!({"type": ["string", "nil"]}),
            json!({"type": 7}),
            json!({"type": ["null", "null"]}),
            json!({"pattern": "("}),
            json!({"patternProperties": {"(": {}}}),
        ] {
            report.extend([schema.to_string().as_str(), "\n=> ", &refused(&schema), "\n"]);
        }
        insta::assert_snapshot!(report);
    }

    #[test]
    fn accepts_recursive_schemas() {
        let tree = json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object",
            "properties": {"left": {"$ref": "#/$defs/tree"}}}}});
        let shape = SchemaValidator::compile(tree.as_object().unwrap()).unwrap();
        assert_eq!(shape.check(&json!({"left": {"left": {}}})), Ok(()));
        assert!(shape.check(&json!({"left": {"left": 1}})).unwrap_err().starts_with("/left/left:"));
        let cycle = json!({"$ref": "#"});
        assert_eq!(
            SchemaValidator::compile(cycle.as_object().unwrap()).unwrap().check(&json!(1)),
            Ok(())
        );
    }

    #[test]
    fn limits_the_number_of_references() {
        let chain = |length: usize| {
            let link = |number| {
                (format!("a{number}"), json!({"$ref": format!("#/$defs/a{}", number + 1)}))
            };
            let mut links: serde_json::Map<_, _> = (1..length).map(link).collect();
            links.insert(format!("a{length}"), json!({"type": "string"}));
            json!({"$ref": "#/$defs/a1", "$defs": links})
        };
        let longest = SchemaValidator::compile(chain(REFERENCES_MAX).as_object().unwrap()).unwrap();
        assert!(longest.check(&json!(7)).is_err());
        let refused = refused(&chain(REFERENCES_MAX + 1));
        assert_eq!(refused, "/: there are more than 1000 references");
    }
}

//! The JSON Schema of an agent's answers.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::json_schema::{InvalidSchema, SchemaError, SchemaValidator};

/// A JSON Schema that an agent's final answer must satisfy, compiled once.
#[derive(Clone)]
pub struct OutputSchema {
    json: Map<String, Value>,
    shape: Arc<SchemaValidator>,
}

impl OutputSchema {
    /// Compiles a schema. References must be within it: nothing is fetched.
    pub fn new(json: Map<String, Value>) -> Result<Self, InvalidSchema> {
        let shape = Arc::new(SchemaValidator::compile(&json)?);
        Ok(Self { json, shape })
    }

    /// The schema as it was written.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Describes the problems of a value, for a model that will try again.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.shape.check(value)
    }

    /// The instruction about the output format for the model.
    pub(super) fn instruction(&self) -> String {
        format!(
            "Your final answer must be JSON that fits this JSON Schema, and nothing else: no other \
             words, no Markdown.\n{}",
            Value::Object(self.json.clone())
        )
    }

    /// The schema in a file at `path`, or every fault that it has there.
    pub(super) fn read(
        json: Map<String, Value>,
        path: &FieldPath,
        checker: &mut FileChecker,
    ) -> Option<Self> {
        match Self::new(json) {
            Ok(schema) => Some(schema),
            Err(invalid) => {
                for fault in invalid.faults {
                    report(fault, path, checker);
                }
                None
            }
        }
    }
}

fn report(fault: SchemaError, path: &FieldPath, checker: &mut FileChecker) {
    let place = fault.place.iter().fold(path.clone(), |path, step| checker.step_into(&path, step));
    let separator = if fault.message.starts_with("must ") { " " } else { ": " };
    let finding = FindingText::new(format!("{place}{separator}{}", fault.message));
    let finding = match fault.found {
        Some(found) => finding.one_of(&found, fault.allowed),
        None if fault.allowed.is_empty() => finding,
        None => finding.allowed(fault.allowed.join(", ")),
    };
    checker.report(&place, finding);
}

impl PartialEq for OutputSchema {
    /// The compiled form follows from the JSON.
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.json).finish()
    }
}

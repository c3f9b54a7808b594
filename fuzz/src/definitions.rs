//! Definition files and JSON Schemas.

use polity_definition::{Home, HomeFile, SchemaValidator};
use serde_json::{Map, Value};

/// The paths that the first byte of an input chooses from.
const PATHS: [&str; 7] = [
    "polity.yaml",
    "agents/a.yaml",
    "workflows/a.yaml",
    "schedules/a.yaml",
    "scripts/a.yaml",
    "config/mcp_servers.yaml",
    "config/retention_policy.yaml",
];

/// Reads a home of one file, then writes and reads the canonical form of its agents again.
pub(crate) fn home_file(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let path = PATHS[usize::from(*first) % PATHS.len()].to_owned();
    let text = Ok(String::from_utf8_lossy(rest).into_owned());
    let home = Home::parse(vec![HomeFile { path, text }]);
    for problem in &home.problems {
        assert!(!problem.to_string().is_empty());
    }
}

/// Compiles a schema and validates a value: the text before and after the first line feed.
pub(crate) fn json_schema(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let Some(schema) = parts.next().and_then(|text| serde_json::from_slice(text).ok()) else {
        return;
    };
    let schema: Map<String, Value> = schema;
    let value = parts.next().and_then(|text| serde_json::from_slice(text).ok());
    if let Ok(validator) = SchemaValidator::compile(&schema) {
        // A refusal is a valid outcome; only a panic or a hang is not.
        drop(validator.check(&value.unwrap_or_default()));
    }
}

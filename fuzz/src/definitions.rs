//! Definition files and JSON Schemas.
#![expect(clippy::expect_used, reason = "a target reports a broken promise by a panic")]

use polity_definition::{
    AgentDefinition, Home, HomeFile, McpServerDefinition, ScheduleDefinition, SchemaValidator,
    ScriptDefinition, WorkflowDefinition,
};
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

/// Reads a home of one file. A valid definition is read back unchanged from its canonical form.
pub(crate) fn home_file(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let path = PATHS[usize::from(*first) % PATHS.len()].to_owned();
    let text = Ok(String::from_utf8_lossy(rest).into_owned());
    let home = Home::parse(vec![HomeFile { path, text }]);
    for problem in &home.problems {
        assert!(!problem.to_string().is_empty());
    }
    // A file with problems is no definition, and no task pins it.
    if !home.problems.is_empty() {
        return;
    }
    for agent in home.agents.values() {
        let again = AgentDefinition::from_canonical(&agent.canonical_json());
        assert_eq!(again.expect("a valid agent can be read"), **agent);
    }
    for workflow in home.workflows.values() {
        let again = WorkflowDefinition::from_canonical(&workflow.canonical_json());
        assert_eq!(again.expect("a valid workflow can be read"), **workflow);
    }
    for schedule in home.schedules.values() {
        let again = ScheduleDefinition::from_canonical(&schedule.canonical_json());
        assert_eq!(again.expect("a valid schedule can be read"), **schedule);
    }
    for server in home.mcp_servers.values() {
        let again = McpServerDefinition::from_canonical(&server.canonical_json());
        assert_eq!(again.expect("a valid server can be read"), **server);
    }
    for (name, script) in &home.scripts {
        let again = ScriptDefinition::from_canonical(name, &script.canonical_json());
        assert_eq!(again.expect("a valid script can be read"), **script);
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
        let value = value.unwrap_or_default();
        let verdict = || validator.check(&value).map_err(|error| error.clone());
        assert_eq!(verdict(), verdict());
    }
}

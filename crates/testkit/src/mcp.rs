//! An MCP server with faults, and definitions of MCP servers.

use std::path::{Path, PathBuf};

use polity_definition::McpServerDefinition;
use serde_json::{Value, json};

/// The fixture: a Python program that lists its tools and faults at its head.
pub fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/mcp_server.py")
}

/// The fixture as a server with these arguments.
pub fn fixture_server(name: &str, args: &[&str]) -> McpServerDefinition {
    let fixture = fixture();
    let mut all = vec![fixture.to_str().unwrap()];
    all.extend(args);
    stdio_server(name, "python3", &all)
}

/// A stdio server with this command.
pub fn stdio_server(name: &str, command: &str, args: &[&str]) -> McpServerDefinition {
    server(name, "stdio", &json!({"command": command, "args": args}), &json!({}))
}

/// A server with this transport, configuration and tool settings.
pub fn server(name: &str, transport: &str, config: &Value, tools: &Value) -> McpServerDefinition {
    let file = json!({"name": name, "transport": transport, "config": config, "tools": tools});
    McpServerDefinition::from_canonical(&file.to_string()).unwrap()
}

/// A minimal environment in which programs can be found.
#[expect(clippy::disallowed_methods, reason = "tests do not know where Python and Node are")]
pub fn environment(name: &str) -> Option<String> {
    matches!(name, "PATH" | "HOME").then(|| std::env::var(name).ok()).flatten()
}

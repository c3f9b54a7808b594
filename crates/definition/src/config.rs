//! The configuration of a home: settings, MCP servers and the retention policy.

pub(crate) mod mcp_server;
mod redaction;
pub(crate) mod retention;
pub(crate) mod settings;

//! The configuration of a home: settings, MCP servers and the retention policy.

pub(crate) mod mcp_server;
pub(crate) mod protection;
mod redaction;
pub(crate) mod retention;
pub(crate) mod settings;
pub(crate) mod webhooks;

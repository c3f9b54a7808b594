//! Tools of MCP servers: a fixture with faults, and third-party servers.

mod calls;
mod faults;
mod harness;
mod http_sessions;
mod listings;
mod message_limits;
mod peers;
mod secrets;
mod server_urls;
mod streamable_server;

//! Tools of MCP servers: a fixture with faults, and third-party servers.

mod calls;
mod faults;
mod harness;
mod listings;
mod peers;
mod secrets;

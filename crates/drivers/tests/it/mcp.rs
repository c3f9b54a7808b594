//! Tools of MCP servers: one with faults, and servers that others wrote.

mod calls;
mod faults;
mod harness;
mod listings;
mod peers;
mod secrets;

//! Tools of MCP servers: one with faults, and servers that others wrote.

mod bench;
mod calls;
mod faults;
mod listings;
mod peers;
mod secrets;

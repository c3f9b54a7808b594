//! Integration tests of the drivers, with real processes, pipes and connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

#[cfg(target_os = "linux")]
mod cli;
mod llm;
mod mcp;
mod notify;
mod remote;
mod waiting;

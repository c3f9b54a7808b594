//! Effect implementations. Each driver performs one effect and knows nothing of tasks, queues or
//! the journal: the engine tells it what to do and records the outcome.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "only the front end prints")]

pub mod cassette;
pub mod cli;
mod environment;
mod file_work;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod http;
mod json_count;
mod json_size;
mod keys;
pub mod llm;
pub mod mcp;
pub mod notify;
pub mod process;
pub mod remote;
mod secrets;
pub mod sse;
pub mod webhook;

pub use environment::EnvSource;
pub use secrets::SecretSet;

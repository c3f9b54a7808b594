//! Core types: ids, names, state machines, events, messages, checkpoints, executions and the trace.
//!
//! Nothing here performs I/O, waits, reads a clock or draws a random number: time and randomness
//! are passed in, so that every function of this crate gives the same answer every time.

pub mod event;
pub mod execution;
pub mod machine;
pub mod schedule;
pub mod state;
pub mod task;
pub mod trace;
pub mod value;

pub use execution::{remote, run};
pub use state::{checkpoint, message, review, session};
pub use value::{budget, digest, failure, ids, name, number, tool, usage};

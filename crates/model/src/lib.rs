//! Core types: ids, names, state machines, events, messages, checkpoints, executions and the trace.
//!
//! Nothing here performs I/O, waits, reads a clock or draws a random number: time and randomness
//! are passed in, so that every function of this crate gives the same answer every time.

pub mod budget;
pub mod checkpoint;
pub mod digest;
pub mod event;
pub mod execution;
pub mod failure;
pub mod ids;
pub mod machine;
pub mod message;
pub mod name;
pub mod number;
pub mod remote;
pub mod review;
pub mod run;
pub mod session;
pub mod state;
pub mod task;
pub mod tool;
pub mod trace;
pub mod usage;
pub mod value;

//! What things are: ids, definitions, state machines, state, messages, checkpoints, trace.
//!
//! Nothing here performs I/O, waits, reads a clock or draws a random number: time and randomness
//! are passed in, so that every function of this crate gives the same answer every time.

pub mod checkpoint;
pub mod context;
pub mod definition;
pub mod event;
pub mod execution;
pub mod failure;
pub mod ids;
pub mod machine;
pub mod message;
pub mod name;
pub mod remote;
pub mod review;
pub mod run;
pub mod scope;
pub mod session;
pub mod shape;
pub mod state;
pub mod task;
pub mod trace;
pub mod usage;

//! The runtime from the outside.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod budgets;
mod cast;
mod faults;
mod lives;
mod processes;
mod queue;
mod sub_agents;
mod tools;

//! The program from the outside: real processes on real homes.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "these tests start programs")]

mod cassettes;
mod console;
mod definitions;
mod faults;
mod kills;
mod models;
mod outputs;
mod processes;
mod reviews;
mod run;
mod sandbox;
mod store;
mod sub_agents;
mod supervise;
mod tasks;
#[cfg(feature = "otel")]
mod telemetry;
mod tools;
mod workflows;

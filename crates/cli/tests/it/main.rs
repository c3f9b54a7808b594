//! Tests of the `polity` binary: real processes on real homes.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "these tests start programs")]

mod agents;
mod archive;
mod cassettes;
mod cassettes_programs;
mod chart_formats;
mod charts;
mod console;
mod definitions;
mod diffs;
mod faults;
mod forks;
mod journals;
mod kills;
mod kills_workflows;
mod models;
mod notify;
mod outputs;
mod people;
mod processes;
mod programs;
mod real_agents;
mod remote_agents;
mod retention;
mod reviews;
mod run;
mod sandbox;
mod simulation_changes;
mod simulations;
mod store;
mod sub_agents;
mod supervise;
mod tasks;
#[cfg(feature = "otel")]
mod telemetry;
mod tools;
mod workflow_races;
mod workflows;

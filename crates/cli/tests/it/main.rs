//! Tests of the `polity` binary: real processes on real homes.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::disallowed_methods, reason = "these tests start programs")]

mod agents;
mod archive;
mod backup;
mod cassettes;
mod cassettes_cli_agents;
mod chart_formats;
mod charts;
mod cli_agents;
mod crash_recovery;
mod crash_recovery_workflows;
mod definition_files;
mod doctor;
mod documentation;
mod error_edges;
mod forks;
mod home_trust;
mod hostile_text;
mod human_review;
mod imported_tasks;
mod io_faults;
mod maps;
mod model_providers;
mod private_data;
mod process_shim;
mod processes;
mod program_signals;
mod real_agents;
mod recorded_journals;
mod remote_agents;
mod retention;
mod retries;
mod review_notifications;
mod reviews;
mod run;
mod run_folders;
mod sandbox;
mod scenario_changes;
mod script_steps;
mod sealed_secrets;
mod server;
mod service_processes;
mod simulations;
mod structured_output;
mod sub_agents;
mod task_diff;
mod tasks;
#[cfg(feature = "otel")]
mod telemetry;
mod tools;
mod workflow_concurrency;
mod workflows;

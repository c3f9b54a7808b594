//! The composition root and the queries that every front end shares.
//!
//! A front end finds a home with [`HomeFolder`], wraps it in a [`HostContext`], and then reads with
//! [`HomeQueries`] or opens a [`Host`] to perform work. This crate prints nothing and knows no exit
//! codes: problems that do not stop the work go to the context's warning handler.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "only the front end prints")]

mod account_name;
pub mod archive;
mod context;
mod control;
mod data_privacy;
mod definition_changes;
mod definition_yaml;
mod definitions;
pub mod doctor;
mod drivers;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod home_folder;
mod home_trust;
mod home_version;
mod host;
mod queries;
pub mod recording;
mod report;
mod resources;
mod retention;
mod review_notifier;
mod schedules;
mod schemas;
pub mod simulations;
mod telemetry;
pub mod tools;
pub mod views;
mod warning;

pub use account_name::AccountName;
pub use context::{HostContext, process_environment};
pub use control::cancel_task;
pub use definition_changes::{DefinitionChange, definition_changes};
pub use definition_yaml::yaml_file;
pub use definitions::{DefinitionError, find_agent, find_assignee, find_workflow};
pub use drivers::DriverSet;
pub use error::{HostError, LookupError, RecordKind};
pub use home_folder::{HomeFolder, SETTINGS_FILE, home_from_environment, is_home};
pub use home_trust::TrustFault;
pub use home_version::HomeVersion;
pub use host::Host;
pub use queries::{
    AgentStatus, DueTimeRow, HomeQueries, OutputPart, OutputRange, OutputStream, PinnedAccess,
    PoolStatus, ScheduleView, SessionSummary, TaskDiff, next_starts, read_output,
};
pub use report::{ErrorReport, ReportKind};
pub use resources::{free_disk_bytes, free_memory_bytes};
pub use retention::{CleanupReport, clean_up, remove_expired};
pub use schedules::{
    ScheduledStart, add_schedule, delete_schedule, find_schedule, schedule_assignee,
    start_scheduled,
};
pub use schemas::SchemaKind;
pub use warning::{HostWarning, ReviewWarning};

/// Serializes a value as indented JSON with a final newline, as files and `--json` have it.
pub fn to_pretty_json(value: &impl serde::Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

//! Schedules: which due times start a task, which wait, and why the others do not start.
//!
//! [`decide`] maps the state of a schedule, a command and a context to changes of its stream. It is
//! pure: a due time gets its record here, and the runtime commits the record before it creates the
//! task. The stream's sequence decides between processes, so each due time has one decision.

mod command;
mod decision;
mod due_range;
mod rejection;

pub use command::{ScheduleCommand, ScheduleContext, StartFault};
pub use decision::{decide, decide_removal, next_wake, replaced_runs};
pub use due_range::DueRange;
pub use rejection::ScheduleRejection;

/// The time that a start may be late, in seconds, before the due time counts as missed.
pub const LATE_SECONDS_MAX: i64 = 10;

/// The most due times of a schedule that wait at once.
pub const QUEUED_TICKS_MAX: usize = 1_000;

/// The most due times that a record of many counts.
pub const COUNTED_TICKS_MAX: u64 = 10_000;

/// The time between two records of a schedule that is paused or disabled, in seconds.
const PASS_SECONDS: i64 = 60;

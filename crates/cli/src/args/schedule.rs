//! Arguments of `polity schedule`.

use std::num::{NonZeroU32, NonZeroU64};

use clap::{Args as ClapArgs, Subcommand};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleAction {
    /// List schedules with their state, their next time and their last run
    List,
    /// Show a schedule
    Show(ScheduleArgs),
    /// Validate and write the file of a new schedule
    Add(Box<ScheduleAddArgs>),
    /// Delete the file of a schedule; its history and its tasks stay
    Remove(ScheduleArgs),
    /// Pause a schedule: its due times are skipped, running tasks continue
    Pause(SchedulePauseArgs),
    /// Resume a paused schedule
    Resume(ScheduleArgs),
    /// Start a run now; without a server, perform it here
    Run(ScheduleRunArgs),
    /// Show the next times of a schedule, or of all schedules
    Next(ScheduleNextArgs),
    /// Start the due times of a past range that have no task
    Backfill(BackfillArgs),
    /// List due times with their outcomes, newest record first
    History(ScheduleHistoryArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleArgs {
    /// The schedule's name
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SchedulePauseArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    /// The reason, for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleRunArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    /// Print the task's id and return; the server or a background process performs it
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleNextArgs {
    /// The schedule's name. Default: all schedules
    pub(crate) name: Option<String>,
    /// The number of times
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    /// The start of the range, included: 2026-03-01T00:00:00Z, or a date or time in UTC
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    pub(crate) from: Timestamp,
    /// The end of the range, included
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    pub(crate) to: Timestamp,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleHistoryArgs {
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    /// The largest number of rows
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleAddArgs {
    /// The schedule's name and the name of its file
    pub(crate) name: String,
    /// The agent to run
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "workflow",
        required_unless_present = "workflow"
    )]
    pub(crate) agent: Option<String>,
    /// The workflow to run
    #[arg(long, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// The times: minute, hour, day of month, month, day of week; with six fields, seconds come first
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: String,
    /// The time zone of the times, such as Europe/Berlin. Default: UTC
    #[arg(long, value_name = "ZONE")]
    pub(crate) time_zone: Option<String>,
    /// The input of the tasks
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    /// A parameter of the tasks; the value is JSON if it parses, else a string. May be repeated
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// The policy if the previous run is still active: skip, queue_one, queue_all, replace or allow
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, value_name = "POLICY")]
    pub(crate) overlap: Option<String>,
    /// The policy for missed times: none, last or all
    #[arg(long, value_name = "POLICY")]
    pub(crate) catch_up: Option<String>,
    /// The age limit of missed times
    #[arg(long, value_name = "SECONDS")]
    pub(crate) catch_up_window_seconds: Option<NonZeroU64>,
    /// The largest random delay of a start
    #[arg(long, value_name = "SECONDS")]
    pub(crate) jitter_seconds: Option<u64>,
    /// The number of consecutive failures that pauses the schedule
    #[arg(long, value_name = "COUNT")]
    pub(crate) pause_after_failures: Option<NonZeroU32>,
    /// The policy for times that the clock jumps over: shift or skip
    #[arg(long, value_name = "POLICY")]
    pub(crate) dst_missing: Option<String>,
    /// The policy for times that the clock shows twice: first or both
    #[arg(long, value_name = "POLICY")]
    pub(crate) dst_repeated: Option<String>,
    /// Write it disabled
    #[arg(long)]
    pub(crate) disabled: bool,
}

/// Parses a time: RFC 3339, or a date or time in UTC.
fn past_time(text: &str) -> Result<Timestamp, String> {
    let in_utc = |at: DateTime| at.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    text.parse::<Timestamp>()
        .ok()
        .or_else(|| text.parse::<DateTime>().ok().and_then(in_utc))
        .or_else(|| text.parse::<Date>().ok().and_then(|date| in_utc(date.at(0, 0, 0, 0))))
        .ok_or_else(|| {
            "it is not a time: write 2026-03-01T00:00:00Z, 2026-03-01T00:00 or 2026-03-01"
                .to_owned()
        })
}

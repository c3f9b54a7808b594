//! The events of a schedule's stream.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::TaskId;
use crate::schedule::ScheduleState;

/// A change of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum ScheduleChange {
    /// A process began to watch the schedule, or noticed other due times. Due times count from here.
    Register {
        /// The digest of the fields that determine the due times.
        timing: Digest,
    },
    /// The definition was removed.
    Remove,
    /// The schedule was paused.
    Pause {
        /// The person; none if its failures paused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The reason, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A person resumed the schedule.
    Resume {
        /// The person.
        by: String,
    },
    /// The record of a due time. A due time that was queued has a second one when it starts.
    Tick {
        /// The due time.
        due: Timestamp,
        /// The cause.
        trigger: TickTrigger,
        /// The outcome.
        outcome: TickOutcome,
    },
    /// The record of many due times that did not start, for one reason.
    Pass {
        /// The first due time.
        first: Timestamp,
        /// The last due time.
        last: Timestamp,
        /// The number of due times.
        count: u64,
        /// True if there were more than were counted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_more: bool,
        /// The outcome of each.
        outcome: TickOutcome,
    },
    /// A task that the schedule started has ended.
    End {
        /// The task.
        task_id: TaskId,
        /// True if it was completed.
        completed: bool,
        /// True if it was cancelled, which is neither a success nor a failure.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cancelled: bool,
    },
    /// The whole state, written now and then, so that readers need no earlier change.
    Snapshot {
        /// The state after the change before.
        state: Box<ScheduleState>,
    },
}

/// The cause of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickTrigger {
    /// The time came.
    Cron,
    /// A person started it.
    Manual,
    /// A person asked for past due times.
    Backfill,
    /// The time had passed while no process watched.
    CatchUp,
}

/// The outcome of a due time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TickOutcome {
    /// A task was started. The task is created after this record, with this id.
    Started {
        /// The task.
        task_id: TaskId,
        /// The start, which jitter may delay.
        start_at: Timestamp,
    },
    /// It waits for an earlier run to end.
    Queued,
    /// It was skipped.
    Skipped {
        /// The reason.
        reason: SkipReason,
    },
    /// It passed while no process watched, and is not made up.
    Missed {
        /// The reason.
        reason: MissReason,
    },
    /// The task could not be created.
    FailedToStart {
        /// The reason, for programs.
        code: String,
        /// The reason, for people.
        message: String,
    },
}

/// The reason why a due time was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// An earlier run had not ended.
    Overlap,
    /// An earlier run had not ended, and another due time waited already.
    QueueFull,
    /// The schedule was paused.
    Paused,
    /// The schedule's file disables it.
    Disabled,
    /// The due time had a task already.
    AlreadyStarted,
    /// The schedule was removed or changed while the due time waited.
    Withdrawn,
}

/// The reason why a missed due time is not made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissReason {
    /// The schedule does not catch up.
    NoCatchUp,
    /// A later due time is made up instead.
    Superseded,
    /// It is older than the catch-up window.
    OutsideWindow,
}

impl TickTrigger {
    /// The trigger as text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cron => "cron",
            Self::Manual => "manual",
            Self::Backfill => "backfill",
            Self::CatchUp => "catch_up",
        }
    }
}

impl TickOutcome {
    /// The task, if one was started.
    pub fn task_id(&self) -> Option<TaskId> {
        match self {
            Self::Started { task_id, start_at: _ } => Some(*task_id),
            Self::Queued
            | Self::Skipped { .. }
            | Self::Missed { .. }
            | Self::FailedToStart { .. } => None,
        }
    }

    /// The outcome as text.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Queued => "queued",
            Self::Skipped { .. } => "skipped",
            Self::Missed { .. } => "missed",
            Self::FailedToStart { .. } => "failed",
        }
    }
}

impl SkipReason {
    /// The reason as text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::QueueFull => "queue_full",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::AlreadyStarted => "already_started",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl MissReason {
    /// The reason as text.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoCatchUp => "no_catch_up",
            Self::Superseded => "superseded",
            Self::OutsideWindow => "outside_window",
        }
    }
}

/// The id of the task that a due time of a schedule starts. A run by hand at the same second has
/// another id.
pub fn scheduled_task_id(
    schedule: &crate::name::Name,
    timing: Digest,
    due: Timestamp,
    trigger: TickTrigger,
) -> TaskId {
    let (label, due): (&[u8], _) = match trigger {
        TickTrigger::Manual => (b"schedule run\0", due.as_microsecond().to_be_bytes()),
        TickTrigger::Cron | TickTrigger::Backfill | TickTrigger::CatchUp => {
            (b"schedule\0", due.as_second().to_be_bytes())
        }
    };
    let parts = [label, schedule.as_str().as_bytes(), b"\0", timing.as_bytes(), &due];
    TaskId::derived_from(&parts.concat())
}

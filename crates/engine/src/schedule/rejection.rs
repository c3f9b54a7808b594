//! Commands that a schedule refuses.

use polity_model::machine::IllegalTransition;
use polity_model::machine::schedule::ScheduleStatus;
use polity_model::name::Name;

use super::QUEUED_TICKS_MAX;

/// The reason why a schedule refuses a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ScheduleRejection {
    /// It is paused already.
    #[error("the schedule \"{schedule}\" is paused already{}", note.as_ref().map(|note| format!(": {note}")).unwrap_or_default())]
    AlreadyPaused { schedule: Name, note: Option<String> },
    /// It is not paused.
    #[error("the schedule \"{0}\" is not paused")]
    NotPaused(Name),
    /// Its agent or workflow cannot start.
    #[error("the schedule \"{schedule}\" cannot start: {message}")]
    CannotStart { schedule: Name, code: String, message: String },
    /// The range ends before it begins, or in the future.
    #[error("a backfill takes a range of past times: {from} to {to} is not one")]
    InvalidRange { from: jiff::Timestamp, to: jiff::Timestamp },
    /// The range has no due time.
    #[error("the schedule \"{schedule}\" has no due time from {from} to {to}")]
    EmptyRange { schedule: Name, from: jiff::Timestamp, to: jiff::Timestamp },
    /// More due times would wait than may.
    #[error(
        "more than {QUEUED_TICKS_MAX} due times of the schedule \"{0}\" would wait, the limit \
         queued_ticks of a schedule"
    )]
    TooManyTicks(Name),
    /// The stream of the schedule contradicts itself.
    #[error("the records of the schedule \"{schedule}\" make no sense: {reason}")]
    Broken { schedule: Name, reason: String },
}

impl ScheduleRejection {
    /// A change that the state machine does not allow.
    pub(crate) fn broken(schedule: &Name, illegal: IllegalTransition<ScheduleStatus>) -> Self {
        Self::Broken { schedule: schedule.clone(), reason: illegal.to_string() }
    }
}

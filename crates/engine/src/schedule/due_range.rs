//! Ranges of due times, counted without listing all of them.

use jiff::{SignedDuration, Timestamp};
use polity_definition::DueTimes;

use super::COUNTED_TICKS_MAX;

/// The due times after one time and up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueRange {
    /// The first due time.
    pub first: Timestamp,
    /// The last due time.
    pub last: Timestamp,
    /// The number of due times, or the most that are counted.
    pub count: u64,
    /// True if there are more than were counted.
    pub is_more: bool,
}

impl DueRange {
    /// The due times after `from` and up to `to`; none if there are none.
    pub fn between(times: &DueTimes, from: Timestamp, to: Timestamp) -> Option<Self> {
        let first = times.next_due(from).filter(|due| *due <= to)?;
        let mut count = 0;
        let mut newest = first;
        for due in times.due_between(from, to) {
            if count == COUNTED_TICKS_MAX {
                let last = last_due(times, newest, to);
                return Some(Self { first, last, count, is_more: true });
            }
            count += 1;
            newest = due;
        }
        Some(Self { first, last: newest, count, is_more: false })
    }
}

/// The last due time up to a time, given an earlier one. Halves the range instead of listing it.
fn last_due(times: &DueTimes, earlier: Timestamp, to: Timestamp) -> Timestamp {
    let (mut newest, mut end) = (earlier, to);
    while end.duration_since(newest) > SignedDuration::from_secs(1) {
        let half = end.duration_since(newest) / 2;
        let Ok(middle) = newest.checked_add(half) else { break };
        match times.next_due(middle).filter(|due| *due <= to) {
            Some(due) => newest = due,
            None => end = middle,
        }
    }
    times.next_due(newest).filter(|due| *due <= to).unwrap_or(newest)
}

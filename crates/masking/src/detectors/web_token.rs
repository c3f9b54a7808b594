//! JSON web tokens: three parts of base64 joined by dots.

use super::heuristics::{is_name_byte, run_end, starts_word};
use super::{TriggerSpan, TriggerVerdict};

/// The prefix of a JSON web token: the start of a JSON object in base64.
pub(crate) const WEB_TOKEN: &str = "eyJ";

/// The minimum length of a part of a web token.
const PART_BYTES_MIN: usize = 10;

/// Checks for three base64 parts joined by dots; the last may be empty.
pub(crate) fn detect(line: &[u8], trigger: TriggerSpan) -> TriggerVerdict {
    if !starts_word(line, trigger.start) {
        return TriggerVerdict::NotSecret;
    }
    let mut end = trigger.start;
    for part in 0..3 {
        let part_end = run_end(line, end, is_name_byte);
        if part_end == line.len() && part < 2 {
            return TriggerVerdict::Undecided { from: trigger.start };
        }
        let is_last = part == 2;
        let is_short = part_end - end < PART_BYTES_MIN;
        if !is_last && (is_short || line.get(part_end) != Some(&b'.')) {
            return TriggerVerdict::NotSecret;
        }
        end = if is_last { part_end } else { part_end + 1 };
    }
    TriggerVerdict::Secret { start: trigger.start, end, open: end == line.len() }
}

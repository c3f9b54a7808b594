//! Counts in JSON from models, programs and servers.

use polity_model::usage::TOKENS_MAX;
use serde_json::Value;

/// The token count that a value holds, if it is a number of zero or more. Some programs write counts
/// with a fraction, such as `100.0`. A larger count than [`TOKENS_MAX`] is cut to it.
pub(crate) fn json_count(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and a count is a whole number"
    )]
    let rounded = |number: f64| (number >= 0.0).then_some(number as u64);
    let count = value.as_u64().or_else(|| value.as_f64().and_then(rounded));
    count.map(|count| count.min(TOKENS_MAX))
}

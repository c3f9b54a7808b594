//! Whole numbers in JSON, which may be written as `3.0`.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Number;

/// The largest number that every JSON library keeps exactly: 2^53.
pub(crate) const WHOLE_NUMBER_MAX: u64 = 1 << 53;

/// Reads an optional whole number.
pub(crate) fn optional_whole<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let wrong = || Error::custom(format!("{number} is not a whole number of the allowed range"));
    // A larger number would not survive other JSON libraries.
    let exact = number.as_u64().filter(|number| *number <= WHOLE_NUMBER_MAX);
    let is_exact = number.is_u64();
    let value =
        exact.or_else(|| whole(number.as_f64().filter(|_| !is_exact)?)).ok_or_else(wrong)?;
    T::try_from(value).map(Some).map_err(|_| wrong())
}

/// Reads a whole number.
pub(crate) fn whole_number<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    optional_whole(deserializer)?.ok_or_else(|| Error::custom("null is not a whole number"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the number is checked, and 2^53 is exact"
)]
fn whole(number: f64) -> Option<u64> {
    let is_whole = number >= 0.0 && number.fract() == 0.0 && number <= WHOLE_NUMBER_MAX as f64;
    is_whole.then_some(number as u64)
}

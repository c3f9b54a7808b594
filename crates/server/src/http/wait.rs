//! The parameter `?wait=30s`.

use std::time::Duration;

use serde::Deserialize;

/// The longest wait of a request.
const WAIT_SECONDS_MAX: u64 = 300;

/// The form of the parameter.
pub(crate) const WAIT_PATTERN: &str = "^(([0-9]{1,2}|[12][0-9]{2}|300)s?|[0-9]{1,5}ms|[0-5]m)$";

/// The time that a request waits for a task to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct WaitTime(pub(crate) Duration);

impl TryFrom<String> for WaitTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let wrong = || format!("\"{text}\" is not a time such as 30s, 500ms or 2m");
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let time = match &text[digits.len()..] {
            "ms" => Duration::from_millis(number),
            "s" | "" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.saturating_mul(60)),
            _ => return Err(wrong()),
        };
        if time > Duration::from_secs(WAIT_SECONDS_MAX) {
            return Err(format!(
                "{text} is more than {WAIT_SECONDS_MAX} seconds, the longest wait"
            ));
        }
        Ok(Self(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_up_to_the_limit() {
        let millis =
            |text: &str| WaitTime::try_from(text.to_owned()).map(|wait| wait.0.as_millis());
        for (text, expected) in [("30s", 30_000), ("30", 30_000), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        for wrong in ["", "s", "-1s", "1h", "301s", "99999999999999999999s", "99999999999999999m"] {
            assert!(millis(wrong).is_err(), "{wrong}");
        }
    }
}

//! The arguments of `task wait`.

use std::time::Duration;

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct WaitArgs {
    /// The task's id, a unique prefix of it, or "last"
    pub(crate) id: String,
    /// Stop waiting after this time, such as 30, 30s, 5m or 1h. The task goes on; the exit code is 5
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
}

/// A number of seconds, or a number with a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_seconds = match unit {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        _ => None,
    };
    let seconds = number.parse::<u64>().ok().zip(unit_seconds);
    let seconds = seconds.and_then(|(number, unit)| number.checked_mul(unit));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        "must be a number of seconds, or a number with s, m or h, such as 30s or 5m".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_in_seconds_unless_it_has_a_unit() {
        for (text, seconds) in [("0", 0), ("30", 30), ("30s", 30), ("5m", 300), ("1h", 3600)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "-1", "1.5", "5 m", "1d", "18446744073709551615h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}

//! The schedule of the soak test, and the check of its records.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::run::output;

/// A schedule with a due time each second.
pub(super) const FILE: &str = "{name: tick, agent: greeter, cron_expression: \"* * * * * *\", \
                               time_zone: UTC, overlap: allow, catch_up: all, \
                               catch_up_window_seconds: 3600, input_parameters: {}}";

/// Checks that every due time has exactly one record. Returns a summary.
pub(super) fn check(polity: &Path, home: &Path) -> Result<String> {
    let mut help = Command::new(polity);
    if !help.args(["schedule", "history", "--help"]).output()?.status.success() {
        return Ok("schedules are not checked: there is no command for them".to_owned());
    }
    let mut history = Command::new(polity);
    history.arg("--home").arg(home).args(["--json", "schedule", "history", "tick"]);
    history.args(["--limit", "100000"]);
    let rows: Value = serde_json::from_str(&output(history)?)?;
    let rows = rows.as_array().context("the history is a list")?;
    Ok(format!("{} due times recorded once each", count_due_times(rows)?))
}

/// The number of due times in the history. Fails if two records overlap or a second is missing.
fn count_due_times(rows: &[Value]) -> Result<u64> {
    let mut ranges = Vec::new();
    for row in
        rows.iter().filter(|row| matches!(row["trigger"].as_str(), Some("cron" | "catch_up")))
    {
        let first = second_of(&row["due"]).context("a record has a due time")?;
        let last = second_of(&row["last_due"]).unwrap_or(first);
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    ensure!(!ranges.is_empty(), "no due time was recorded");
    for pair in ranges.windows(2) {
        let [(_, end), (next, _)] = pair else { continue };
        if next <= end {
            bail!("the due time {next} has two records");
        }
        ensure!(*next == end + 1, "no record has the due times from {} to {}", end + 1, next - 1);
    }
    Ok(ranges.iter().map(|(first, last)| last - first + 1).sum())
}

/// The second of a time such as `2026-11-18T20:59:46Z`, counted from the start of an era.
fn second_of(time: &Value) -> Option<u64> {
    let (date, clock) = time.as_str()?.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| {
        text.split(separator).map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>()
    };
    let (date, clock) = (numbers(date, '-')?, numbers(clock.split('.').next()?, ':')?);
    let (&[year, month, day], &[hour, minute, second]) = (date.as_slice(), clock.as_slice()) else {
        return None;
    };
    // Years begin in March here, so that a leap day comes last.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn seconds_follow_each_other_over_days_and_leap_days() {
        for (before, after) in [
            ("2026-11-18T20:59:59Z", "2026-11-18T21:00:00Z"),
            ("2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
            ("2028-02-29T23:59:59Z", "2028-03-01T00:00:00Z"),
            ("2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z"),
        ] {
            let (before, after) = (second_of(&json!(before)), second_of(&json!(after)));
            assert_eq!(before.map(|second| second + 1), after);
        }
    }

    #[test]
    fn missing_and_repeated_due_times_are_found() {
        let row = |due: &str, last: Option<&str>| {
            json!({"due": format!("2026-11-18T20:00:{due}Z"), "trigger": "cron",
                   "last_due": last.map(|last| format!("2026-11-18T20:00:{last}Z"))})
        };
        let good = [row("04", None), row("01", Some("03"))];
        assert_eq!(count_due_times(&good).unwrap(), 4);
        let repeated = [row("01", Some("03")), row("03", None)];
        assert!(count_due_times(&repeated).unwrap_err().to_string().contains("two records"));
        let missing = [row("01", None), row("03", None)];
        assert!(count_due_times(&missing).unwrap_err().to_string().contains("no record"));
    }
}

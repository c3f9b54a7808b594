//! The clock: its progress against the monotonic clock, and the time zones of schedules.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use polity_definition::time_zone_database;
use polity_engine::clock::{Clock, SystemClock};

use super::{CheckSubject, DoctorCheck};

const SUBJECT: CheckSubject = CheckSubject::Clock;

/// The largest difference between both clocks that is normal.
const DRIFT_MAX: Duration = Duration::from_secs(1);

/// The start of 2026, before which no clock is right.
const EARLIEST_SECOND: i64 = 1_767_225_600;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    monotonic: Instant,
    wall: Timestamp,
}

impl ClockReading {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemClock.now() }
    }
}

/// Compares the progress of both clocks since the first reading.
pub(super) fn checks(began: ClockReading) -> Vec<DoctorCheck> {
    let now = ClockReading::now();
    let (version, zones) = time_zone_database();
    vec![
        wall_clock(now.wall, now.wall.duration_since(began.wall), now.monotonic - began.monotonic),
        DoctorCheck::ok(
            SUBJECT,
            "time zones",
            format!("{zones} are built in, version {}", version.unwrap_or("unknown")),
        ),
    ]
}

fn wall_clock(now: Timestamp, wall: jiff::SignedDuration, monotonic: Duration) -> DoctorCheck {
    const NAME: &str = "clock";
    const FIX: &str = "let a time service such as systemd-timesyncd or chrony set the clock";
    const MEANING: &str = "schedules start at the wrong time, and tokens may seem expired";
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if now.as_second() < EARLIEST_SECOND {
        return DoctorCheck::missing(
            SUBJECT,
            NAME,
            format!("it shows {seconds}, which has passed"),
        )
        .meaning(MEANING)
        .fix(FIX)
        .needed();
    }
    // A negative progress is no duration: the clock was set back.
    let is_even =
        Duration::try_from(wall).is_ok_and(|progress| progress.abs_diff(monotonic) <= DRIFT_MAX);
    if !is_even {
        let finding =
            format!("it went {} ms while {} ms passed", wall.as_millis(), monotonic.as_millis());
        return DoctorCheck::weaker(SUBJECT, NAME, finding).meaning(MEANING).fix(FIX);
    }
    DoctorCheck::ok(SUBJECT, NAME, format!("{seconds}, and it runs evenly"))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::CheckStatus;
    use super::*;

    #[test]
    fn clock_that_is_early_or_jumps_is_reported() {
        let now = Timestamp::from_second(EARLIEST_SECOND + 1).unwrap();
        let second = Duration::from_secs(1);
        for (now, wall, status) in [
            (now, SignedDuration::from_millis(1100), CheckStatus::Ok),
            (now, SignedDuration::from_hours(1), CheckStatus::Weaker),
            (now, SignedDuration::from_hours(-1), CheckStatus::Weaker),
            (Timestamp::UNIX_EPOCH, SignedDuration::from_secs(1), CheckStatus::Missing),
        ] {
            // One second has passed on the monotonic clock.
            let check = wall_clock(now, wall, second);
            assert_eq!(check.status, status, "{check:?}");
        }
    }
}

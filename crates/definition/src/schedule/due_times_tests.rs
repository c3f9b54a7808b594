use super::*;
use crate::tests::home;

fn times(cron: &str, more: &str) -> DueTimes {
    let agent = ("agents/greeter.yaml", "kind: cli\nname: greeter\nexecutable_path: x\n");
    let text = format!("name: daily\nagent: greeter\ncron_expression: \"{cron}\"\n{more}");
    home([agent, ("schedules/daily.yaml", text.as_str())]).schedules["daily"].due_times()
}

/// The due times of one day or more, in the schedule's time zone.
fn due(cron: &str, zone: &str, dst: &str, (from, to): (&str, &str)) -> Vec<String> {
    let times = times(cron, &format!("time_zone: {zone}\ndst: {dst}\n"));
    let zone = times.zone.clone();
    let at = |text: &str| text.parse::<DateTime>().unwrap().to_zoned(zone.clone()).unwrap();
    let before = at(from).timestamp() - SECOND;
    let found = times.due_between(before, at(to).timestamp() - SECOND);
    found.map(|due| due.to_zoned(zone.clone()).strftime("%m-%d %H:%M%:z").to_string()).collect()
}

const POLICIES: [&str; 4] = [
    "{missing: shift, repeated: first}",
    "{missing: shift, repeated: both}",
    "{missing: skip, repeated: first}",
    "{missing: skip, repeated: both}",
];

#[test]
fn missing_times_shift_or_are_skipped() {
    // Lord Howe's clock jumps by half an hour.
    let cases = [
        ("Europe/Berlin", "30 2 * * *", ("2026-03-29", "2026-03-30"), "03-29 03:00+02:00"),
        ("America/New_York", "30 2 * * *", ("2026-03-08", "2026-03-09"), "03-08 03:00-04:00"),
        ("Australia/Lord_Howe", "15 2 * * *", ("2026-10-04", "2026-10-05"), "10-04 02:30+11:00"),
    ];
    for (zone, cron, day, shifted) in cases {
        for policy in POLICIES {
            let expected = if policy.contains("shift") { vec![shifted] } else { vec![] };
            assert_eq!(due(cron, zone, policy, day), expected, "{zone} {policy}");
        }
    }
}

#[test]
fn repeated_times_are_due_once_or_twice() {
    let cases = [
        (
            "Europe/Berlin",
            "30 2 * * *",
            ("2026-10-25", "2026-10-26"),
            ["10-25 02:30+02:00", "10-25 02:30+01:00"],
        ),
        (
            "America/New_York",
            "30 1 * * *",
            ("2026-11-01", "2026-11-02"),
            ["11-01 01:30-04:00", "11-01 01:30-05:00"],
        ),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            ("2026-04-05", "2026-04-06"),
            ["04-05 01:45+11:00", "04-05 01:45+10:30"],
        ),
    ];
    for (zone, cron, day, [first, second]) in cases {
        for policy in POLICIES {
            let both = policy.contains("both");
            let expected = if both { vec![first, second] } else { vec![first] };
            assert_eq!(due(cron, zone, policy, day), expected, "{zone} {policy}");
        }
    }
}

#[test]
fn several_missing_times_are_due_once() {
    let day = ("2026-03-29", "2026-03-30");
    assert_eq!(due("0,30 2 * * *", "Europe/Berlin", POLICIES[0], day), ["03-29 03:00+02:00"]);
    assert_eq!(due("0 2,3 * * *", "Europe/Berlin", POLICIES[0], day), ["03-29 03:00+02:00"]);
    assert_eq!(due("0 2,3 * * *", "Europe/Berlin", POLICIES[2], day), ["03-29 03:00+02:00"]);
}

#[test]
fn intervals_follow_elapsed_time() {
    for policy in POLICIES {
        let of = |cron, day| due(cron, "Europe/Berlin", policy, day).len();
        let (spring, autumn) = (("2026-03-29", "2026-03-30"), ("2026-10-25", "2026-10-26"));
        assert_eq!((of("@hourly", spring), of("@hourly", autumn)), (23, 25));
        assert_eq!((of("*/15 * * * *", spring), of("*/15 * * * *", autumn)), (92, 100));
        assert_eq!((of("*/30 2 * * *", spring), of("*/30 2 * * *", autumn)), (0, 4));
        assert_eq!((of("0 */30 * * * *", spring), of("0 */30 * * * *", autumn)), (46, 50));
    }
}

#[test]
fn expressions_have_five_or_six_fields_names_and_nicknames() {
    let week = ("2026-06-01", "2026-06-08");
    let of = |cron| due(cron, "UTC", POLICIES[0], week);
    assert_eq!(of("0 9 * * MON,wed"), ["06-01 09:00+00:00", "06-03 09:00+00:00"]);
    assert_eq!(of("0 0 9 * JUN 5"), ["06-05 09:00+00:00"]);
    assert_eq!(of("0 9 * * 7"), of("0 9 * * SUN"));
    // Day of month or day of week, as in Vixie cron.
    assert_eq!(of("0 9 2 * 5"), ["06-02 09:00+00:00", "06-05 09:00+00:00"]);
    assert_eq!((of("@daily").len(), of("@hourly").len(), of("@midnight").len()), (7, 168, 7));
    assert_eq!(of("@weekly"), ["06-07 00:00+00:00"]);
    assert_eq!(of("@monthly"), ["06-01 00:00+00:00"]);
    assert!(of("@yearly").is_empty() && of("@annually").is_empty());
}

#[test]
fn a_rare_day_is_found_across_many_clock_changes() {
    let times = times("0 12 29 2 *", "time_zone: America/New_York\n");
    let after = "2096-03-01T00:00:00Z".parse().unwrap();
    assert_eq!(times.next_due(after).unwrap().to_string(), "2104-02-29T17:00:00Z");
}

#[test]
fn a_due_time_is_after_the_given_time() {
    let times = times("* * * * * *", "");
    let after: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(times.next_due(after).unwrap().to_string(), "2026-01-01T00:00:01Z");
    let within = after + SignedDuration::from_millis(300);
    assert_eq!(times.next_due(within).unwrap().to_string(), "2026-01-01T00:00:01Z");
    assert_eq!(times.next_due(Timestamp::MAX), None);
}

#[test]
fn jitter_is_stable_and_ends_before_the_next_due_time() {
    let times = times("* * * * *", "jitter_seconds: 100\n");
    let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let dues: Vec<_> = times.due_between(from, from + SignedDuration::from_hours(2)).collect();
    let starts: Vec<_> = dues.iter().map(|due| times.start_of(*due)).collect();
    assert_eq!(starts, dues.iter().map(|due| times.start_of(*due)).collect::<Vec<_>>());
    assert!(dues.iter().zip(&starts).all(|(due, start)| due <= start));
    assert!(starts.is_sorted() && starts.iter().zip(&dues[1..]).all(|(start, next)| start < next));
    assert!(dues.iter().zip(&starts).any(|(due, start)| due != start));
}

//! Tests of schedules.

use super::{home, problems, report};
use crate::{CatchUpPolicy, OverlapPolicy};

const GREETER: (&str, &str) =
    ("agents/greeter.yaml", "kind: cli\nname: greeter\nexecutable_path: x\n");
const BASE: &str = "name: daily\nagent: greeter\ncron_expression: \"0 9 * * *\"\n";

#[test]
fn defaults_are_filled_in() {
    let home = home([GREETER, ("schedules/daily.yaml", BASE)]);
    let schedule = &home.schedules["daily"];
    assert_eq!(schedule.time_zone, "UTC");
    assert_eq!((schedule.overlap, schedule.catch_up), (OverlapPolicy::Skip, CatchUpPolicy::None));
    assert!(schedule.enabled && schedule.input_parameters.is_empty());
    assert_eq!((schedule.jitter_seconds, schedule.pause_after_failures), (0, None));
}

#[test]
fn a_time_zone_may_be_written_in_any_case() {
    let text = format!("{BASE}time_zone: europe/berlin\n");
    let home = home([GREETER, ("schedules/daily.yaml", text.as_str())]);
    assert_eq!(home.schedules["daily"].time_zone, "Europe/Berlin");
}

fn of_file(text: &str) -> Vec<String> {
    problems("schedules/daily.yaml", text, [GREETER])
}

#[test]
fn fields_list_their_allowed_values() {
    let lines = [
        "workflow: greeter",
        "time_zone: Europe/Berln",
        "time_zone: Nowhere/Land",
        "overlap: skipp",
        "catch_up: lst",
        "catch_up_window_seconds: 5",
        "jitter_seconds: -1",
        "input_parameters: [1]",
        "dst: {missing: shft}",
        "dst: {repeat: both}",
        "dst: skip",
    ];
    insta::assert_snapshot!(report(lines, |lines| of_file(&format!("{BASE}{lines}\n"))));
}

#[test]
fn a_schedule_has_a_name_a_target_and_times() {
    insta::assert_snapshot!(report(
        [
            "name: daily\nagent: greeter",
            "name: daily\ncron_expression: \"0 9 * * *\"",
            "name: daily\nagent: greter\ncron_expression: \"0 9 * * *\"",
            "name: daily\nworkflow: greeter\ncron_expression: \"0 9 * * *\"",
            "name: weekly\nagent: greeter\ncron_expression: \"0 9 * * *\"",
        ],
        of_file
    ));
}

#[test]
fn rejects_invalid_cron_expressions() {
    let crons = ["0 25 * * *", "often", "0 0 30 2 *", "@daily", "*/5 0 9 L * *", "0 0 29 2 *"];
    insta::assert_snapshot!(report(crons, |cron| of_file(&BASE.replace("0 9 * * *", cron))));
}

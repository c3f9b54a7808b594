//! Schedules.

use super::{check_in, home};
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

#[test]
fn fields_list_their_allowed_values() {
    for (text, expected) in [
        ("name: daily\nagent: greeter\n".to_owned(), "1:1: missing field \"cron_expression\""),
        (
            BASE.replace("agent: greeter\n", ""),
            "1:1: missing field \"agent\" or \"workflow\": what is to be started?; allowed: agent, \
             workflow",
        ),
        (
            format!("{BASE}workflow: greeter\n"),
            "4:11: a schedule starts an agent or a workflow, not both; allowed: agent, workflow",
        ),
        (
            BASE.replace("greeter", "greter"),
            "2:8: agent: there is no agent \"greter\", did you mean \"greeter\"?",
        ),
        (
            BASE.replace("agent:", "workflow:"),
            "2:11: workflow: \"greeter\" is an agent, a workflow is needed",
        ),
        (
            BASE.replace("0 9 * * *", "0 25 * * *"),
            "3:18: cron_expression: \"0 25 * * *\" is not a cron expression: Number out of bounds (its fields are minute, hour, day of month, month, day of week)",
        ),
        (
            BASE.replace("0 9 * * *", "often"),
            "3:18: cron_expression: \"often\" is not a cron expression:",
        ),
        (
            BASE.replace("0 9 * * *", "0 0 30 2 *"),
            "3:18: cron_expression: \"0 0 30 2 *\" names a day that never comes",
        ),
        (
            format!("{BASE}time_zone: Europe/Berln\n"),
            "4:12: time_zone: there is no time zone \"Europe/Berln\", did you mean \"Europe/Berlin\"?",
        ),
        (
            format!("{BASE}time_zone: Nowhere/Land\n"),
            "4:12: time_zone: there is no time zone \"Nowhere/Land\"; allowed: a name such as UTC, \
             Europe/Berlin or America/New_York",
        ),
        (
            format!("{BASE}overlap: skipp\n"),
            "4:10: overlap: unknown value \"skipp\", did you mean \"skip\"?",
        ),
        (
            format!("{BASE}catch_up: lst\n"),
            "4:11: catch_up: unknown value \"lst\", did you mean \"last\"?",
        ),
        (
            format!("{BASE}catch_up_window_seconds: 5\n"),
            "4:26: \"catch_up_window_seconds\" has a meaning only when catch_up is last or all",
        ),
        (
            format!("{BASE}jitter_seconds: -1\n"),
            "4:17: jitter_seconds must be a whole number, 0 or above, found the number -1",
        ),
        (
            format!("{BASE}input_parameters: [1]\n"),
            "4:19: input_parameters must be a mapping, found a list",
        ),
        (
            BASE.replace("name: daily", "name: weekly"),
            "1:7: the name is \"weekly\", but the file is schedules/daily.yaml: name and file must \
             be the same; allowed: daily",
        ),
    ] {
        let home = home([GREETER, ("schedules/daily.yaml", text.as_str())]);
        let shown: Vec<String> = home.problems.iter().map(ToString::to_string).collect();
        let expected = format!("schedules/daily.yaml:{expected}");
        assert!(shown.len() == 1 && shown[0].starts_with(&expected), "{shown:#?}\n{expected}");
    }
    check_in("schedules/daily.yaml", &BASE.replace("0 9 * * *", "@daily"), [GREETER], &[]);
    check_in("schedules/daily.yaml", &BASE.replace("0 9 * * *", "*/5 0 9 L * *"), [GREETER], &[]);
    check_in("schedules/daily.yaml", &BASE.replace("0 9 * * *", "0 0 29 2 *"), [GREETER], &[]);
}

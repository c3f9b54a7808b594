use std::collections::BTreeSet;

use polity_model::schedule::TickRun;

use super::*;

/// A Wednesday, 10:00 UTC.
const START: i64 = 1_767_261_600;

/// A schedule that is due every minute, and its state.
struct Fixture {
    definition: ScheduleDefinition,
    times: DueTimes,
    state: ScheduleState,
    fault: Option<StartFault>,
}

impl Fixture {
    /// A schedule with more fields, registered at the start.
    fn new(fields: &str) -> Self {
        let json = format!(
            r#"{{"name": "often", "agent": "greeter", "cron_expression": "* * * * *"{fields}}}"#
        );
        let definition = ScheduleDefinition::from_canonical(&json).unwrap();
        let times = definition.due_times();
        let state = ScheduleState::default();
        let mut fixture = Self { definition, times, state, fault: None };
        fixture.perform(0, &ScheduleCommand::Register).unwrap();
        fixture
    }

    fn decide(
        &self,
        second: i64,
        command: &ScheduleCommand,
    ) -> Result<Vec<ScheduleChange>, ScheduleRejection> {
        let Self { definition, times, state, fault } = self;
        let now = at(second);
        decide(state, command, &ScheduleContext { now, definition, times, fault: fault.as_ref() })
    }

    /// Decides, applies the changes and returns them as text.
    fn perform(
        &mut self,
        second: i64,
        command: &ScheduleCommand,
    ) -> Result<Vec<String>, ScheduleRejection> {
        let changes = self.decide(second, command)?;
        for change in &changes {
            self.state.apply(change, at(second)).unwrap();
        }
        Ok(changes.iter().map(text).collect())
    }

    fn tick(&mut self, second: i64) -> Vec<String> {
        self.perform(second, &ScheduleCommand::Tick).unwrap()
    }

    /// Ends the oldest run.
    fn end(&mut self, second: i64, completed: bool) -> Vec<String> {
        let task_id = self.state.running[0].task_id;
        let end = ScheduleCommand::End { task_id, completed, cancelled: false };
        let mut changes = self.perform(second, &end).unwrap();
        changes.extend(self.tick(second));
        changes
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

/// A change in a few words; times are seconds after the start.
fn text(change: &ScheduleChange) -> String {
    let seconds = |due: &Timestamp| due.as_second() - START;
    let reason = |outcome: &TickOutcome| match outcome {
        TickOutcome::Skipped { reason } => format!("skipped {}", reason.label()),
        TickOutcome::Missed { reason } => format!("missed {}", reason.label()),
        TickOutcome::FailedToStart { code, .. } => format!("failed {code}"),
        TickOutcome::Started { .. } | TickOutcome::Queued => outcome.label().to_owned(),
    };
    match change {
        ScheduleChange::Register { .. } => "register".to_owned(),
        ScheduleChange::Remove => "remove".to_owned(),
        ScheduleChange::Pause { by, .. } => format!("pause {}", by.as_deref().unwrap_or("itself")),
        ScheduleChange::Resume { by } => format!("resume {by}"),
        ScheduleChange::Tick { due, trigger, outcome } => {
            format!("{} {} {}", seconds(due), trigger.label(), reason(outcome))
        }
        ScheduleChange::Pass { first, last, count, outcome, .. } => {
            format!("{}..{} x{count} {}", seconds(first), seconds(last), reason(outcome))
        }
        ScheduleChange::End { completed, .. } => format!("end {completed}"),
        ScheduleChange::Snapshot { .. } => "snapshot".to_owned(),
    }
}

#[test]
fn each_overlap_policy_decides_on_a_busy_schedule() {
    // The policy; what the second and third due times become; what the end of the first run starts.
    let table: [(&str, &[&str], &[&str]); 5] = [
        ("skip", &["120 cron skipped overlap", "180 cron skipped overlap"], &["end true"]),
        (
            "queue_one",
            &["120 cron queued", "180 cron skipped queue_full"],
            &["end true", "120 cron started"],
        ),
        ("queue_all", &["120 cron queued", "180 cron queued"], &["end true", "120 cron started"]),
        ("replace", &["120 cron started", "180 cron started"], &["end true"]),
        ("allow", &["120 cron started", "180 cron started"], &["end true"]),
    ];
    for (policy, busy, ended) in table {
        let mut one = Fixture::new(&format!(r#", "overlap": "{policy}""#));
        assert_eq!(one.tick(60), ["60 cron started"], "{policy}");
        assert_eq!([one.tick(120), one.tick(181)].concat(), busy, "{policy}");
        let replaced = replaced_runs(&one.state, &one.definition).len();
        assert_eq!(replaced, if policy == "replace" { 2 } else { 0 }, "{policy}");
        assert_eq!(one.end(182, true), ended, "{policy}");
        assert_eq!(one.tick(183), [""; 0], "{policy}");
    }
}

#[test]
fn each_catch_up_policy_decides_on_missed_times() {
    let window = r#", "catch_up_window_seconds": 150"#;
    // The policies, and the records of five due times that no process saw.
    let table: [(&str, &str, &[&str]); 6] = [
        ("none", "", &["60..300 x5 missed no_catch_up"]),
        ("last", "", &["60..240 x4 missed superseded", "300 catch_up started"]),
        (
            "last",
            window,
            &[
                "60..120 x2 missed outside_window",
                "180..240 x2 missed superseded",
                "300 catch_up started",
            ],
        ),
        (
            "all",
            "",
            &[
                "60 catch_up started",
                "120 catch_up queued",
                "180 catch_up queued",
                "240 catch_up queued",
                "300 catch_up queued",
            ],
        ),
        (
            "all",
            window,
            &[
                "60..120 x2 missed outside_window",
                "180 catch_up started",
                "240 catch_up queued",
                "300 catch_up queued",
            ],
        ),
        (
            "all",
            r#", "overlap": "allow""#,
            &[
                "60 catch_up started",
                "120 catch_up started",
                "180 catch_up started",
                "240 catch_up started",
                "300 catch_up started",
            ],
        ),
    ];
    for (policy, more, expected) in table {
        let mut one = Fixture::new(&format!(r#", "catch_up": "{policy}"{more}"#));
        assert_eq!(one.tick(330), expected, "{policy}{more}");
        assert_eq!(one.tick(331), [""; 0], "{policy}{more}");
    }
}

#[test]
fn times_of_a_paused_or_disabled_schedule_are_skipped() {
    let mut paused = Fixture::new("");
    let pause = ScheduleCommand::Pause { by: "ada".into(), note: Some("holiday".into()) };
    assert_eq!(paused.perform(10, &pause).unwrap(), ["pause ada"]);
    let again = paused.perform(11, &pause);
    assert!(again.unwrap_err().to_string().contains("paused already: holiday"));
    assert_eq!(paused.tick(60), ["60 cron skipped paused"]);
    let resume = ScheduleCommand::Resume { by: "ada".into() };
    let resumed = paused.perform(250, &resume).unwrap();
    assert_eq!(resumed, ["120..240 x3 skipped paused", "resume ada"]);
    assert_eq!(paused.tick(300), ["300 cron started"]);
    assert_eq!(
        paused.perform(301, &resume),
        Err(ScheduleRejection::NotPaused("often".parse().unwrap()))
    );
    let mut disabled = Fixture::new(r#", "enabled": false"#);
    assert_eq!(disabled.tick(125), ["60..120 x2 skipped disabled"]);
}

#[test]
fn unusable_agent_fails_each_due_time_and_pauses_after_failures() {
    let mut one = Fixture::new(r#", "pause_after_failures": 2"#);
    one.fault = Some(StartFault { code: "agent_disabled".into(), message: "it is off".into() });
    assert_eq!(one.tick(60), ["60 cron failed agent_disabled"]);
    assert_eq!(one.tick(120), ["120 cron failed agent_disabled", "pause itself"]);
    let refused = one.perform(121, &ScheduleCommand::RunNow { task_id: None });
    assert!(matches!(refused, Err(ScheduleRejection::CannotStart { .. })));
    one.fault = None;
    one.perform(122, &ScheduleCommand::Resume { by: "ada".into() }).unwrap();
    assert_eq!(one.tick(180), ["180 cron started"]);
    assert_eq!(one.end(181, false), ["end false"]);
    assert_eq!(one.tick(240), ["240 cron started"]);
    assert_eq!(one.end(241, false), ["end false", "pause itself"]);
}

#[test]
fn task_that_cannot_be_created_has_a_failed_record() {
    let mut one = Fixture::new("");
    one.tick(60);
    let task_id = one.state.running[0].task_id;
    let fault = StartFault { code: "not_ready".into(), message: "no key".into() };
    let fail = ScheduleCommand::FailStart { task_id, fault };
    assert_eq!(one.perform(61, &fail).unwrap(), ["60 cron failed not_ready"]);
    assert_eq!(one.perform(62, &fail).unwrap(), [""; 0]);
    assert_eq!(one.state.status, ScheduleStatus::Active);
}

#[test]
fn clock_that_jumps_starts_no_due_time_twice() {
    let mut one = Fixture::new(r#", "overlap": "allow""#);
    assert_eq!(one.tick(60), ["60 cron started"]);
    // Back by an hour, then forward over the due times that were decided.
    assert_eq!(one.tick(-3540), [""; 0]);
    assert_eq!(one.tick(119), [""; 0]);
    assert_eq!(one.tick(120), ["120 cron started"]);
    // Forward by a day.
    let day = 86_400;
    assert_eq!(one.tick(120 + day), ["180..86460 x1439 missed no_catch_up", "86520 cron started"]);
}

#[test]
fn run_by_hand_starts_whatever_the_state_and_has_its_own_id() {
    let mut one = Fixture::new("");
    one.tick(60);
    one.perform(61, &ScheduleCommand::Pause { by: "ada".into(), note: None }).unwrap();
    let run = ScheduleCommand::RunNow { task_id: None };
    assert_eq!(one.perform(62, &run).unwrap(), ["62 manual started"]);
    assert_eq!(one.perform(62, &run).unwrap(), ["62 manual started"]);
    assert_eq!(one.perform(62, &ScheduleCommand::RequestRun).unwrap(), ["62 manual queued"]);
    assert_eq!(one.tick(63), ["62 manual started"]);
    let ids: BTreeSet<_> = one.state.running.iter().map(|run: &TickRun| run.task_id).collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn backfill_queues_times_without_a_task() {
    let mut one = Fixture::new("");
    let range = |from, to, started: &[i64]| ScheduleCommand::Backfill {
        from: at(from),
        to: at(to),
        started: started.iter().map(|second| at(*second)).collect(),
    };
    let queued = one.perform(10, &range(-240, -60, &[-120])).unwrap();
    assert_eq!(queued, ["-240 backfill queued", "-180 backfill queued", "-60 backfill queued"]);
    assert_eq!(one.perform(11, &range(-240, -60, &[-120])).unwrap(), [""; 0]);
    assert_eq!(one.tick(12), ["-240 backfill started"]);
    assert_eq!(one.end(13, true), ["end true", "-180 backfill started"]);
    let refusals = [
        (range(-60, 100, &[]), "takes a range of past times"),
        (range(-60, -120, &[]), "takes a range of past times"),
        (range(-30, -10, &[]), "has no due time"),
        (range(-60_000_000_000, 0, &[]), "the limit queued_ticks"),
    ];
    for (command, part) in refusals {
        let refused = one.perform(14, &command).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn changed_times_and_removal_withdraw_what_waits() {
    let mut one = Fixture::new(r#", "overlap": "queue_all""#);
    one.tick(60);
    one.tick(120);
    let removal: Vec<_> = decide_removal(&one.state).iter().map(text).collect();
    assert_eq!(removal, ["120 cron skipped withdrawn", "remove"]);
    let other = r#"{"name": "often", "agent": "greeter", "cron_expression": "30 * * * *"}"#;
    one.definition = ScheduleDefinition::from_canonical(other).unwrap();
    one.times = one.definition.due_times();
    assert_eq!(one.tick(150), ["120 cron skipped withdrawn", "register"]);
    assert_eq!(one.tick(1800), ["1800 cron skipped overlap"]);
    assert_eq!(decide_removal(&ScheduleState::default()), []);
    one.state = ScheduleState::default();
    assert_eq!(one.tick(1860), [""; 0], "a removed schedule stays removed");
}

#[test]
fn many_missed_times_are_counted_up_to_a_limit() {
    let year = 366 * 86_400;
    let mut none = Fixture::new("");
    let changes = none.decide(year, &ScheduleCommand::Tick).unwrap();
    let [ScheduleChange::Pass { last, count: 10_000, is_more: true, .. }, rest] = &*changes else {
        panic!("{changes:?}");
    };
    assert_eq!((*last, text(rest)), (at(year - 60), format!("{year} cron started")));
    let mut all = Fixture::new(r#", "catch_up": "all""#);
    let changes = all.tick(year);
    assert!(changes.contains(&"60 catch_up started".to_owned()));
    // The first of them has started.
    assert_eq!(all.state.queued.len(), QUEUED_TICKS_MAX - 1);
    none.tick(year);
    assert_eq!(none.state.decided_until, all.state.decided_until);
}

#[test]
fn jitter_delays_the_decision_and_a_quiet_schedule_wakes_rarely() {
    let mut late = Fixture::new(r#", "jitter_seconds": 50"#);
    let start = next_wake(&late.state, &late.definition, &late.times).unwrap();
    assert!(start >= at(60) && start < at(111));
    let before = start.as_second() - START - 1;
    assert_eq!(late.tick(before), [""; 0]);
    assert_eq!(late.tick(before + 2), ["60 cron started"]);
    let off = Fixture::new(r#", "enabled": false"#);
    assert_eq!(next_wake(&off.state, &off.definition, &off.times), Some(at(60)));
}

use std::fmt::Write;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::kernel::BehaviourId;

const CHART: &str = "
name: day
states: [asleep, awake, busy]
initial: asleep
fields: {energy: {default: 0.5, min: 0, max: 1}, mood: calm}
transitions:
  - {trigger: dawn, source: asleep, target: awake}
  - {trigger: work, source: awake, target: busy}
  - {trigger: rest, source: busy, target: awake}
  - {trigger: dusk, source: [awake, busy], target: asleep}
timeouts: [{state: busy, threshold: 3, target: awake}]
world: {light: 0.5, season: spring}
";

fn chart() -> Arc<Chart> {
    Arc::new(Chart::from_text(CHART).unwrap())
}

fn read(mut document: Value) -> Result<Scenario, Vec<ScenarioError>> {
    document["name"] = "town".into();
    document["chart"] = "day".into();
    Scenario::new(&serde_json::from_value(document).unwrap(), chart())
}

/// Lists scenarios, each followed by its errors.
fn report<const N: usize>(documents: [Value; N]) -> String {
    let mut text = String::new();
    for document in documents {
        writeln!(text, "{:.200}", document.to_string()).unwrap();
        match read(document) {
            Ok(_) => text.push_str("    valid\n"),
            Err(errors) => {
                for ScenarioError { location, message, .. } in errors {
                    writeln!(text, "    {location}: {message}").unwrap();
                }
            }
        }
    }
    text
}

#[test]
fn minimal_scenario_has_defaults() {
    let scenario = read(json!({})).unwrap();
    assert_eq!((scenario.agents(), scenario.max_agents), (0, 25));
    assert_eq!((scenario.turns, scenario.ticks_per_turn, scenario.seed), (100, 10, 0));
    assert_eq!(scenario.time_of_tick(1).to_string(), "2026-01-01T00:00:00Z");
    assert_eq!((scenario.checkpoint_interval(0, 100), scenario.keep_checkpoints.get()), (1, 20));
    assert_eq!(read(json!({"ticks_per_turn": 100_000})).unwrap().ticks_per_turn, 100_000);
}

#[test]
fn reports_all_population_errors() {
    let population = |groups: Value| json!({"population": groups});
    assert_snapshot!(report([
        population(json!([{}])),
        population(json!([{"name": ""}])),
        population(json!([{"name": "a"}, {"name": "a"}])),
        population(json!([{"name": "a", "count": 3}, {"name": "a_2"}])),
        population(json!([{"name": "a", "fields": {"energy": 2}}])),
        population(json!([{"name": "a", "fields": {"mood": 2}}])),
        population(json!([{"name": "a", "fields": {"energy": [1]}}])),
        population(json!([{"name": "a", "fields": {"state": "awake"}}])),
        population(json!([{"name": "a", "behaviour": "lazy"}])),
        population(json!([{"name": "n".repeat(99), "count": 2}])),
        population(json!([
            {"name": "b", "fields": {"x": 1}}, {"name": "a", "count": 3}, {"name": "a_2"}
        ])),
        population(json!([{"name": "a", "count": 26}])),
        population(json!([{
            "name": "y", "state": "ill", "behaviour": "z",
            "fields": {"nope": 1, "energy": 7, "state": "awake"}
        }])),
        json!({"population": [{"name": "a", "count": 6}], "max_agents": 5}),
        json!({"max_agents": 1_000_000_000}),
    ]));
}

#[test]
fn reports_all_world_and_time_errors() {
    let rate = |rate: Value| json!({"world": {"rates": [rate]}});
    assert_snapshot!(report([
        rate(json!({"rate": 1})),
        rate(json!({"trigger": "dawn"})),
        rate(json!({"trigger": "noon", "rate": 1})),
        rate(json!({"trigger": "timeout", "rate": 1})),
        rate(json!({"trigger": "dawn", "rate": -0.1})),
        rate(json!({"trigger": "dawn", "rate": 1, "state": "ill"})),
        rate(json!({"trigger": "dawn", "rate": 1, "state": "busy"})),
        json!({"world": {"behaviours": {"lazy": [{"trigger": "x", "rate": 1}]}}}),
        json!({"world": {"behaviours": {"": []}}}),
        json!({"world": {"values": {"ligth": 1}}}),
        json!({"world": {"values": {"light": "much"}}}),
        json!({"world": {"values": {"light": [1]}}}),
        json!({"start_time": "noon"}),
        json!({"tick_seconds": 0}),
        json!({"turns": 1_000_000_000_000_u64}),
        json!({"ticks_per_turn": 100_000_000_000_u64}),
        json!({"ticks_per_turn": 100_001}),
        json!({"ticks_per_turn": 100_000}),
        // An end after the year 9999.
        json!({"turns": 20, "ticks_per_turn": 30, "tick_seconds": 1e10}),
        json!({"turns": 20, "ticks_per_turn": 30, "tick_seconds": 1e8}),
        json!({"tick_seconds": 0, "start_time": "", "max_agents": 1,
            "population": [{"name": "a", "count": 2}]}),
    ]));
}

/// A scenario with one scheduled change.
fn event(operation: &str, more: Value) -> Value {
    let mut event = json!({"turn": 2, "operation": operation, "target_agent_name": "ada"});
    if let Value::Object(more) = more {
        event.as_object_mut().unwrap().extend(more);
    }
    json!({
        "population": [{"name": "ada"}, {"name": "bee", "count": 3}],
        "lifecycle": [event],
    })
}

#[test]
fn reports_all_lifecycle_errors() {
    assert_snapshot!(report([
        json!({"lifecycle": [{}]}),
        event("remove_agent", json!({"target_agent_name": ""})),
        event("remove_agent", json!({"initial_state": {}})),
        event("remove_agent", json!({"initiating_agent": format!("a{}", "_1".repeat(100_000))})),
        event("add_agent", json!({})),
        event("add_agent", json!({"initial_state": {"state": "ill"}})),
        event("add_agent", json!({"initial_state": {"speed": 1}})),
        event("add_agent", json!({"initial_state": {"energy": 3}})),
        event("add_agent", json!({"initial_state": {"behaviour": "lazy"}})),
        event("add_agent", json!({"initial_state": {"state": "ill", "nope": 2, "energy": "x"}})),
        event("add_agent", json!({"initial_state": {}, "auto_resume_turns": 2})),
        event("pause_agent", json!({"auto_resume_turns": 0})),
        event("pause_agent", json!({"auto_resume_turns": -2})),
        event("pause_agent", json!({"initiating_agent": "eve"})),
        event("pause_agent", json!({"initiating_agent": "bee_4"})),
        event("pause_agent", json!({"initiating_agent": "ada"})),
        event("pause_agent", json!({"initiating_agent": "ada_1"})),
        event("pause_agent", json!({"initiating_agent": "bee_3"})),
        event("pause_agent", json!({"initiating_agent": "bee_3_2"})),
    ]));
}

#[test]
fn reports_events_after_the_last_turn() {
    let mut document = event("resume_agent", json!({"turn": 7}));
    document["turns"] = 6.into();
    assert!(read(document.clone()).is_ok());
    let file: ScenarioFile = serde_json::from_value(document).unwrap();
    let never = file.unreachable_events(0);
    assert_eq!(never.len(), 1);
    assert_eq!(never[0].location, "lifecycle[0].turn");
    assert!(never[0].message.contains("turn 7 does not exist: there are 6 turns"));
}

#[test]
fn rates_apply_in_order_to_valid_triggers() {
    let scenario = read(json!({"world": {"rates": [
        {"trigger": "work", "rate": 0.5},
        {"trigger": "dusk", "rate": 0.5},
        {"trigger": "rest", "rate": 1, "state": "busy"},
    ]}}))
    .unwrap();
    let expected = [("asleep", vec![]), ("awake", vec![0.5, 0.25]), ("busy", vec![0.5, 0.5])];
    let chart = chart();
    for (state, shares) in expected {
        let state = chart.state(state).unwrap();
        let found: Vec<f64> =
            scenario.shares(&scenario.behaviours[0], state).iter().map(|rate| rate.rate).collect();
        assert_eq!(found, shares, "{}", chart.state_name(state));
    }
    assert!(scenario.rates().is_ok());
}

#[test]
fn checks_initial_states_against_the_chart() {
    let scenario =
        read(json!({"world": {"behaviours": {"lazy": [{"trigger": "dusk", "rate": 1}]}}})).unwrap();
    let start = |initial: Value| scenario.start(initial.as_object().unwrap());
    let given = start(json!({"state": "awake", "energy": 1, "behaviour": "lazy"})).unwrap();
    assert_eq!(given.state, chart().state("awake").unwrap());
    assert_eq!(given.behaviour, BehaviourId(1));
    assert_eq!(given.fields, [(chart().field("energy").unwrap(), ScalarValue::Number(1.0))]);
    let cases = [
        json!({"state": "ill"}),
        json!({"state": 1}),
        json!({"energy": 7}),
        json!({"speed": 7}),
        json!({"behaviour": "x"}),
    ];
    let reasons = cases.map(|initial| start(initial).unwrap_err());
    assert_snapshot!(reasons.join("\n"), @r#"
    initial_state.state: there is no state "ill"; allowed: asleep, awake, busy
    initial_state.state: must be a text
    initial_state.energy: energy must be from 0 to 1, found 7
    initial_state.speed: there is no field "speed"; allowed: energy, mood
    initial_state.behaviour: there is no behaviour "x"; allowed: lazy
    "#);
}

#[test]
fn groups_and_world_can_override_initial_values() {
    let scenario = read(json!({
        "population": [{"name": "up", "count": 3, "state": "awake"}, {"name": "down"}],
        "world": {"values": {"light": 1, "season": "autumn"}}
    }))
    .unwrap();
    let states: Vec<_> = scenario.groups.iter().map(|group| group.start.state).collect();
    assert_eq!(states, ["awake", "asleep"].map(|state| chart().state(state).unwrap()));
    let light = (chart().world("light").unwrap(), ScalarValue::Number(1.0));
    let season = (chart().world("season").unwrap(), ScalarValue::text("autumn"));
    assert_eq!(scenario.values, [light, season]);
}

#[test]
fn round_ends_has_the_time_of_the_last_tick() {
    let document = json!({
        "name": "town", "chart": "day",
        "ticks_per_turn": 10, "tick_seconds": 0.5, "start_time": "2026-03-01T12:00:00Z"
    });
    let file: ScenarioFile = serde_json::from_value(document).unwrap();
    let with_rounds = CHART.replace("trigger: dusk", "trigger: round_ends");
    let with_rounds = Arc::new(Chart::from_text(&with_rounds).unwrap());
    for (kernel_tick, without, with) in [
        (1, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
        (2, "2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.5Z"),
        (10, "2026-03-01T12:00:04.5Z", "2026-03-01T12:00:04.5Z"),
        (11, "2026-03-01T12:00:05Z", "2026-03-01T12:00:05Z"),
        (12, "2026-03-01T12:00:05.5Z", "2026-03-01T12:00:05Z"),
        (22, "2026-03-01T12:00:10.5Z", "2026-03-01T12:00:10Z"),
    ] {
        for (chart, time) in [(chart(), without), (Arc::clone(&with_rounds), with)] {
            let scenario = Scenario::new(&file, chart).unwrap();
            assert_eq!(scenario.time_of_tick(kernel_tick).to_string(), time, "{kernel_tick}");
        }
    }
}

#[test]
fn large_and_long_runs_have_fewer_checkpoints() {
    let (all, own) = (read(json!({})).unwrap(), read(json!({"checkpoint_every": 3})).unwrap());
    for (agents, turns, every) in [
        (0, 0, 1),
        (25, 100, 1),
        (25, 101, 2),
        (25, 5000, 50),
        (1000, 20, 1),
        (1001, 20, 2),
        (2000, 1000, 10),
        (50_000, 1000, 50),
        (1_000_000, 100, 100),
        (1_000_000, 20_000, 200),
    ] {
        assert_eq!(all.checkpoint_interval(agents, turns), every, "{agents} for {turns}");
        assert_eq!(own.checkpoint_interval(agents, turns), 3);
    }
}

#[test]
fn rejects_reserved_field_names() {
    let chart = "{name: odd, states: [a, b], initial: a, fields: {state: 1, behaviour: 2}, \
        transitions: [{trigger: go, source: a, target: b}]}";
    let chart = Arc::new(Chart::from_text(chart).unwrap());
    let file = serde_json::from_value(json!({"name": "x", "chart": "odd"})).unwrap();
    let errors = Scenario::new(&file, chart).unwrap_err();
    assert_eq!(errors.len(), 2);
    assert!(errors[0].message.contains("has a field \"state\""), "{errors:?}");
}

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

/// Returns the errors of a scenario with their locations.
fn problems(document: Value) -> Vec<(String, String)> {
    let errors = read(document).unwrap_err();
    errors.into_iter().map(|error| (error.location, error.message)).collect()
}

fn assert_errors<const N: usize>(cases: [(Value, &str, &str); N]) {
    for (document, location, message) in cases {
        let problems = problems(document);
        let messages =
            |(at, messages): &(String, String)| at == location && messages.contains(message);
        assert!(problems.iter().any(messages), "{location}: {message}\n{problems:#?}");
    }
}

#[test]
fn minimal_scenario_has_defaults() {
    let scenario = read(json!({})).unwrap();
    assert_eq!((scenario.agents(), scenario.max_agents), (0, 25));
    assert_eq!((scenario.turns, scenario.ticks_per_turn, scenario.seed), (100, 10, 0));
    assert_eq!(scenario.time_of_tick(1).to_string(), "2026-01-01T00:00:00Z");
    assert_eq!((scenario.checkpoint_interval(0, 100), scenario.keep_checkpoints.get()), (1, 20));
}

#[test]
fn reports_all_population_errors() {
    assert_errors([
        (json!({"population": [{}]}), "population[0].name", "missing field"),
        (json!({"population": [{"name": ""}]}), "population[0].name", "must not be empty"),
        (
            json!({"population": [{"name": "a"}, {"name": "a"}]}),
            "population[1].name",
            "two groups have the name \"a\"",
        ),
        (
            json!({"population": [{"name": "a", "count": 3}, {"name": "a_2"}]}),
            "population[1].name",
            "\"a_2\" is an agent of the group \"a\"",
        ),
        (
            json!({"population": [{"name": "a", "fields": {"energy": 2}}]}),
            "population[0].fields.energy",
            "from 0 to 1, found 2",
        ),
        (
            json!({"population": [{"name": "a", "fields": {"mood": 2}}]}),
            "population[0].fields.mood",
            "must be a text",
        ),
        (
            json!({"population": [{"name": "a", "fields": {"energy": [1]}}]}),
            "population[0].fields.energy",
            "must be a number, a text, true or false",
        ),
        (
            json!({"population": [{"name": "a", "fields": {"state": "awake"}}]}),
            "population[0].fields.state",
            "it is not a field; use population[0].state instead",
        ),
        (
            json!({"population": [{"name": "a", "behaviour": "lazy"}]}),
            "population[0].behaviour",
            "there is no behaviour \"lazy\"",
        ),
        (
            json!({"population": [{"name": "n".repeat(99), "count": 2}]}),
            "population[0].name",
            "the name is too long with a number appended",
        ),
        (
            json!({"population": [{"name": "b", "fields": {"x": 1}}, {"name": "a", "count": 3},
                {"name": "a_2"}]}),
            "population[2].name",
            "\"a_2\" is an agent of the group \"a\"",
        ),
        (
            json!({"world": {"behaviours": {"": []}}}),
            "world.behaviours",
            "a name must not be empty",
        ),
        (json!({"population": [{"name": "a", "count": 26}]}), "population", "max_agents is 25"),
        (
            json!({"population": [{"name": "a", "count": 6}], "max_agents": 5}),
            "max_agents",
            "has 6 agents, and max_agents is 5",
        ),
        (json!({"max_agents": 1_000_000_000}), "max_agents", "at most 100000000"),
    ]);
}

#[test]
fn reports_all_world_and_time_errors() {
    assert_errors([
        (json!({"world": {"rates": [{"rate": 1}]}}), "world.rates[0].trigger", "missing field"),
        (json!({"world": {"rates": [{"trigger": "dawn"}]}}), "world.rates[0].rate", "missing"),
        (
            json!({"world": {"rates": [{"trigger": "noon", "rate": 1}]}}),
            "world.rates[0].trigger",
            "there is no trigger \"noon\"",
        ),
        (
            json!({"world": {"rates": [{"trigger": "timeout", "rate": 1}]}}),
            "world.rates[0].trigger",
            "timeouts come by themselves",
        ),
        (
            json!({"world": {"rates": [{"trigger": "dawn", "rate": -0.1}]}}),
            "world.rates[0].rate",
            "from 0 to 1, found -0.1",
        ),
        (
            json!({"world": {"rates": [{"trigger": "dawn", "rate": 1, "state": "ill"}]}}),
            "world.rates[0].state",
            "there is no state \"ill\"",
        ),
        (
            json!({"world": {"rates": [{"trigger": "dawn", "rate": 1, "state": "busy"}]}}),
            "world.rates[0].state",
            "no transition for \"dawn\" in the state \"busy\"",
        ),
        (
            json!({"world": {"behaviours": {"lazy": [{"trigger": "x", "rate": 1}]}}}),
            "world.behaviours.lazy[0].trigger",
            "there is no trigger \"x\"",
        ),
        (json!({"start_time": "noon"}), "start_time", "must be a time such as"),
        (json!({"tick_seconds": 0}), "tick_seconds", "above 0"),
        (json!({"turns": 1_000_000_000_000_u64}), "turns", "must be at most"),
        (json!({"lifecycle": [{}]}), "lifecycle[0].turn", "missing field"),
        (
            json!({"lifecycle": [
                {"turn": 1, "operation": "remove_agent", "target_agent_name": ""}
            ]}),
            "lifecycle[0].target_agent_name",
            "must not be empty",
        ),
    ]);
    assert_eq!(
        problems(json!({"tick_seconds": 0, "start_time": "", "max_agents": 1,
        "population": [{"name": "a", "count": 2}]}))
        .len(),
        3
    );
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
    assert_errors([
        (event("add_agent", json!({})), "lifecycle[0].initial_state", "a new agent needs one"),
        (
            event("add_agent", json!({"initial_state": {"state": "ill"}})),
            "lifecycle[0].initial_state.state",
            "there is no state \"ill\"",
        ),
        (
            event("add_agent", json!({"initial_state": {"speed": 1}})),
            "lifecycle[0].initial_state.speed",
            "there is no field \"speed\"",
        ),
        (
            event("add_agent", json!({"initial_state": {"energy": 3}})),
            "lifecycle[0].initial_state.energy",
            "from 0 to 1, found 3",
        ),
        (
            event("add_agent", json!({"initial_state": {"behaviour": "lazy"}})),
            "lifecycle[0].initial_state.behaviour",
            "there is no behaviour \"lazy\"",
        ),
        (
            event("add_agent", json!({"initial_state": {}, "auto_resume_turns": 2})),
            "lifecycle[0].auto_resume_turns",
            "only pause_agent has this field, and this is add_agent",
        ),
        (
            event("remove_agent", json!({"initial_state": {}})),
            "lifecycle[0].initial_state",
            "only add_agent has this field, and this is remove_agent",
        ),
        (
            event("pause_agent", json!({"auto_resume_turns": 0})),
            "lifecycle[0].auto_resume_turns",
            "from 1 to 4294967295, found 0",
        ),
        (
            event("pause_agent", json!({"auto_resume_turns": -2})),
            "lifecycle[0].auto_resume_turns",
            "found -2",
        ),
        (
            event("pause_agent", json!({"initiating_agent": "eve"})),
            "lifecycle[0].initiating_agent",
            "there is no agent \"eve\"",
        ),
        (
            event("pause_agent", json!({"initiating_agent": "bee_4"})),
            "lifecycle[0].initiating_agent",
            "there is no agent \"bee_4\"",
        ),
    ]);
    for initiator in ["ada", "ada_1", "bee_3", "bee_3_2"] {
        assert!(read(event("pause_agent", json!({"initiating_agent": initiator}))).is_ok());
    }
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
    for (initial, reason) in [
        (
            json!({"state": "ill"}),
            "initial_state.state: there is no state \"ill\"; allowed: asleep",
        ),
        (json!({"state": 1}), "initial_state.state: must be a text"),
        (json!({"energy": 7}), "initial_state.energy: energy must be from 0 to 1, found 7"),
        (json!({"speed": 7}), "initial_state.speed: there is no field \"speed\""),
        (json!({"behaviour": "x"}), "initial_state.behaviour: there is no behaviour \"x\""),
    ] {
        let messages = start(initial).unwrap_err();
        assert!(messages.starts_with(reason), "{messages}");
    }
}

#[test]
fn reports_all_errors_of_a_group() {
    let places = |document: Value| -> Vec<String> {
        problems(document).into_iter().map(|(location, _)| location).collect()
    };
    let group = json!({
        "name": "y", "state": "ill", "behaviour": "z", "fields": {"nope": 1, "energy": 7, "state": "awake"}
    });
    let expected = ["fields.state", "behaviour", "fields.energy", "fields.nope", "state"];
    let expected = expected.map(|location| format!("population[0].{location}"));
    assert_eq!(places(json!({"population": [group]})), expected);
    let initial = json!({"initial_state": {"state": "ill", "nope": 2, "energy": "x"}});
    let expected = ["energy", "nope", "state"];
    let expected = expected.map(|location| format!("lifecycle[0].initial_state.{location}"));
    assert_eq!(places(event("add_agent", initial)), expected);
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
    assert_errors([
        (
            json!({"world": {"values": {"ligth": 1}}}),
            "world.values.ligth",
            "there is no value of the world \"ligth\"",
        ),
        (
            json!({"world": {"values": {"light": "much"}}}),
            "world.values.light",
            "light is a number in the chart, found \"much\"",
        ),
        (json!({"world": {"values": {"light": [1]}}}), "world.values.light", "must be a number"),
        (
            event(
                "remove_agent",
                json!({"initiating_agent": format!("a{}", "_1".repeat(100_000))}),
            ),
            "lifecycle[0].initiating_agent",
            "100 characters at most",
        ),
        (json!({"ticks_per_turn": 100_000_000_000u64}), "ticks_per_turn", "at most 100000,"),
    ]);
}

#[test]
fn round_ends_has_the_time_of_the_last_tick() {
    let scenario = read(json!({
        "ticks_per_turn": 10, "tick_seconds": 0.5, "start_time": "2026-03-01T12:00:00Z"
    }))
    .unwrap();
    for (kernel_tick, time) in [
        (1, "2026-03-01T12:00:00Z"),
        (2, "2026-03-01T12:00:00.5Z"),
        (10, "2026-03-01T12:00:04.5Z"),
        (11, "2026-03-01T12:00:05Z"),
        (12, "2026-03-01T12:00:05Z"),
        (22, "2026-03-01T12:00:10Z"),
    ] {
        assert_eq!(scenario.time_of_tick(kernel_tick).to_string(), time, "{kernel_tick}");
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

#[test]
fn ticks_per_turn_has_a_limit() {
    assert_errors([(
        json!({"ticks_per_turn": 100_001}),
        "ticks_per_turn",
        "ticks_per_turn must be at most 100000, found 100001: use more turns",
    )]);
    assert_eq!(read(json!({"ticks_per_turn": 100_000})).unwrap().ticks_per_turn, 100_000);
}

#[test]
fn rejects_an_end_after_the_year_9999() {
    let file = json!({"turns": 20, "ticks_per_turn": 30, "tick_seconds": 1e10});
    let message = "the run would end after the year 9999: 20 turns of 30 ticks of 10000000000 \
        seconds from 2026-01-01T00:00:00Z on";
    assert_errors([(file, "tick_seconds", message)]);
    read(json!({"turns": 20, "ticks_per_turn": 30, "tick_seconds": 1e8})).unwrap();
}

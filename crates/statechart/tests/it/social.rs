use insta::assert_snapshot;
use polity_statechart::{
    FireContext, FireDecision, ScalarValue, agents_in_state, state_distribution,
};
use serde_json::json;

use super::{agent, chart, fire, named, state, trigger};

const SOCIAL: &str = include_str!("social.yaml");

#[test]
fn social_chart_visits_every_state() {
    let chart = chart(SOCIAL);
    let empty = FireContext::new(&chart);
    let mut agent = agent(&chart);
    for (name, context, expected) in [
        ("feed_ready", json!(null), "scrolling"),
        ("sees_post", json!(null), "evaluating"),
        ("decides", json!({"score": 0.6}), "composing"),
        ("compose_done", json!(null), "engaging_reply"),
        ("action_done", json!(null), "resting"),
        ("round_ends", json!(null), "idle"),
        ("feed_ready", json!(null), "scrolling"),
        ("sees_post", json!(null), "evaluating"),
        ("decides", json!({"score": 0.95}), "composing"),
        ("compose_done", json!(null), "engaging_reshare"),
        ("action_done", json!(null), "resting"),
    ] {
        let fired = agent.fire(trigger(&chart, name), &chart.context(&context));
        assert_eq!(fired.map(|state| chart.state_name(state)), Some(expected));
    }
    agent = agent.in_state(named(&chart, "evaluating"));
    let decides = trigger(&chart, "decides");
    let context = chart.context(&json!({"score": 0.1}));
    let FireDecision::AskOracle(candidates) = agent.decide(decides, &context) else {
        panic!("not asked")
    };
    let offered: Vec<&str> =
        candidates.iter().map(|row| chart.state_name(chart.outcome(*row).unwrap().to)).collect();
    assert_eq!(offered, ["engaging_like", "scrolling"]);
    agent.take(candidates[0], decides, &context);
    assert_eq!(state(&agent), "engaging_like");
    assert_eq!(agent.fire(decides, &empty), None, "nothing fits here");
}

#[test]
fn falls_back_to_oracle_default() {
    let chart = chart(SOCIAL);
    let mut agent = agent(&chart).in_state(named(&chart, "evaluating"));
    agent.fire(trigger(&chart, "decides"), &chart.context(&json!({"score": 0.1})));
    assert_eq!(state(&agent), "scrolling");
}

#[test]
fn valid_triggers_have_candidates() {
    let chart = chart(SOCIAL);
    let names = |state: &str| {
        let triggers = chart.valid_triggers(named(&chart, state));
        triggers.iter().map(|trigger| chart.trigger_name(*trigger)).collect::<Vec<_>>()
    };
    assert_eq!(names("idle"), ["feed_ready"]);
    assert_eq!(names("evaluating"), ["ignores", "decides", "round_ends", "timeout"]);
}

#[test]
fn timeout_fires_above_its_threshold() {
    let chart = chart(SOCIAL);
    let empty = FireContext::new(&chart);
    let mut agent = agent(&chart).in_state(named(&chart, "scrolling"));
    for tick in 1..=5 {
        assert_eq!(agent.begin_tick(&empty), None);
        assert_eq!(agent.ticks_in_state(), tick);
    }
    assert_eq!(agent.begin_tick(&empty), chart.state("resting"));
    assert_eq!(agent.ticks_in_state(), 0);
    let field = chart.field("timeout_threshold").unwrap();
    agent.set_field(field, ScalarValue::Number(2.0)).unwrap();
    assert_eq!(agent.begin_tick(&empty), None);
    assert_eq!(agent.begin_tick(&empty), None);
    assert_eq!(agent.begin_tick(&empty), chart.state("idle"));
    for _ in 0..20 {
        assert_eq!(agent.begin_tick(&empty), None, "idle has no timeout");
    }
}

#[test]
fn fields_stay_in_range() {
    let chart = chart(SOCIAL);
    let mut agent = agent(&chart);
    let threshold = chart.field("engagement_threshold").unwrap();
    let timeout = chart.field("timeout_threshold").unwrap();
    let cases = [
        (threshold, ScalarValue::Number(1.5)),
        (threshold, ScalarValue::Number(-0.1)),
        (threshold, ScalarValue::text("high")),
        (timeout, ScalarValue::Number(0.0)),
        (timeout, ScalarValue::Number(f64::NAN)),
    ];
    let errors = cases.map(|(field, value)| agent.set_field(field, value).unwrap_err());
    assert_snapshot!(errors.join("\n"), @r#"
    engagement_threshold must be from 0 to 1, found 1.5
    engagement_threshold must be from 0 to 1, found -0.1
    engagement_threshold must be a number, found "high"
    timeout_threshold must be at least 1, found 0
    timeout_threshold must be a finite number
    "#);
    assert_eq!(agent.field(threshold), Some(&ScalarValue::Number(0.5)));
}

#[test]
fn exports_an_agent_as_json() {
    let chart = chart(SOCIAL);
    let mut agent = agent(&chart);
    let empty = FireContext::new(&chart);
    fire(&mut agent, "feed_ready");
    agent.begin_tick(&empty);
    agent.fire(trigger(&chart, "sees_post"), &chart.context(&json!({"post_id": "post_123"})));
    agent.begin_tick(&empty);
    agent.begin_tick(&empty);
    let record = agent.record("agent_001", |tick| format!("2026-01-30T10:00:{tick:02}Z"));
    let expected = r#"{"agent_id":"agent_001","current_state":"evaluating","ticks_in_state":2,"state_history":[{"from_state":"idle","to_state":"scrolling","trigger":"feed_ready","timestamp":"2026-01-30T10:00:00Z","context":null},{"from_state":"scrolling","to_state":"evaluating","trigger":"sees_post","timestamp":"2026-01-30T10:00:01Z","context":{"post_id":"post_123"}}]}"#;
    assert_eq!(serde_json::to_string(&record).unwrap(), expected);
}

#[test]
fn counts_agents_by_state() {
    let chart = chart(SOCIAL);
    let idle = agent(&chart);
    let resting = idle.clone().in_state(named(&chart, "resting"));
    let agents = [("ada", &idle), ("bob", &resting), ("cleo", &idle)];
    let counts = state_distribution(&chart, agents.iter().map(|(_, agent)| agent.state()));
    assert_eq!(counts[0], ("idle", 2));
    assert_eq!(counts[7], ("resting", 1));
    assert_eq!(counts.len(), 8);
    let states = agents.iter().map(|(name, agent)| (*name, agent.state()));
    assert_eq!(agents_in_state(states, chart.initial()), ["ada", "cleo"]);
}

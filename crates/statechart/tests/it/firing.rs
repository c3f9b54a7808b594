use polity_statechart::{Chart, ChartSource, FireContext, ScalarValue, TransitionSource};

use super::{agent, build, chart, fire, named, state};

fn lamp() -> ChartSource {
    ChartSource::new("lamp", ["off", "on"], "off")
        .transition(TransitionSource::new("press", ["off"], "on"))
        .transition(TransitionSource::new("press", ["on"], "off"))
        .transition(
            TransitionSource::new("stay", ["off", "on"], "on").action("add agent.stays = 1"),
        )
        .field("stays", 0.0)
}

#[test]
fn fire_returns_the_new_state_or_none() {
    let go = TransitionSource::new("go", ["x"], "y");
    let chart = build(&ChartSource::new("a", ["x", "y"], "x").transition(go));
    let mut agent = agent(&chart);
    assert_eq!(fire(&mut agent, "go"), chart.state("y"));
    assert_eq!(fire(&mut agent, "go"), None);
    assert_eq!(state(&agent), "y");
}

#[test]
fn keeps_the_last_fifty_transitions() {
    let chart = build(&lamp());
    let empty = FireContext::new(&chart);
    let mut agent = agent(&chart);
    for pressed in 1..=120_u64 {
        agent.begin_tick(&empty);
        fire(&mut agent, "press");
        assert_eq!(agent.history().len(), usize::try_from(pressed.min(50)).unwrap());
    }
    let ticks: Vec<u64> = agent.history().map(|entry| entry.tick).collect();
    assert_eq!(ticks, (71..=120).collect::<Vec<_>>());
    assert!(agent.history().all(|entry| entry.from != entry.to));
}

#[test]
fn self_transition_is_not_recorded() {
    let chart = build(&lamp());
    let mut agent = agent(&chart).in_state(named(&chart, "on"));
    agent.begin_tick(&FireContext::new(&chart));
    assert_eq!(fire(&mut agent, "stay"), chart.state("on"));
    assert_eq!(agent.history().len(), 0);
    assert_eq!(agent.ticks_in_state(), 1, "the state did not change");
    assert_eq!(agent.field(chart.field("stays").unwrap()), Some(&1.0.into()));
}

#[test]
fn takes_the_first_eligible_transition() {
    let source = ChartSource::new("a", ["x", "y", "z"], "x")
        .field("n", 5.0)
        .transition(TransitionSource::new("go", ["x"], "z").guard("agent.n > 7"))
        .transition(TransitionSource::new("go", ["x"], "y").guard("agent.n > 3"))
        .transition(TransitionSource::new("go", ["x"], "z"));
    let mut agent = agent(&build(&source));
    fire(&mut agent, "go");
    assert_eq!(state(&agent), "y");
}

#[test]
fn loads_json() {
    let chart = Chart::from_text(
        r#"{"name": "a", "states": ["x", "y"], "initial": "x",
            "transitions": [{"trigger": "go", "source": "*", "target": "y"}]}"#,
    )
    .unwrap();
    assert_eq!(chart.valid_triggers(chart.initial()).len(), 1);
    assert!(chart.valid_triggers(chart.state("y").unwrap()).is_empty(), "not from the target");
}

#[test]
fn oracle_default_respects_guards() {
    let chart = chart(
        "name: n\nstates: [a, b, c, d]\ninitial: a\nfields: {keen: 0, way: 0}\noracle_default: c\n\
         transitions:\n  \
         - {trigger: u, source: a, target: b, oracle: true, action: set agent.way = 1}\n  \
         - {trigger: u, source: a, target: c, oracle: true, guard: agent.keen > 0, action: set agent.way = 2}\n  \
         - {trigger: u, source: a, target: d, oracle: true, action: set agent.way = 3}\n",
    );
    let way = chart.field("way").unwrap();
    for (keen, to, action_lists) in [(0.0, "b", 1.0), (1.0, "c", 2.0)] {
        let mut agent = agent(&chart);
        agent.set_field(chart.field("keen").unwrap(), ScalarValue::Number(keen)).unwrap();
        fire(&mut agent, "u");
        assert_eq!(chart.state_name(agent.state()), to);
        assert_eq!(agent.field(way), Some(&ScalarValue::Number(action_lists)));
    }
}

use polity_statechart::{ChartInstance, FireContext, ScalarValue};

use super::{agent, chart, fire, named, state};

const CHART: &str = "
name: nested
states:
  - idle
  - name: engaging
    initial: like
    history: shallow
    entry: set agent.log = agent.log * 10 + 1
    exit: set agent.log = agent.log * 10 + 2
    states:
      - {name: like, entry: set agent.log = agent.log * 10 + 3, exit: set agent.log = agent.log * 10 + 4}
      - {name: reply, entry: set agent.log = agent.log * 10 + 5}
      - reshare
initial: idle
fields: {log: 0}
transitions:
  - {trigger: engage, source: idle, target: engaging, action: set agent.log = agent.log * 10 + 9}
  - {trigger: next, source: like, target: reply}
  - {trigger: next, source: engaging, target: reshare}
  - {trigger: done, source: engaging, target: idle}
timeouts:
  - {state: engaging, threshold: 2, target: idle}
";

fn log(agent: &ChartInstance) -> f64 {
    match agent.field(agent.chart().field("log").unwrap()) {
        Some(ScalarValue::Number(log)) => *log,
        other => panic!("{other:?}"),
    }
}

#[test]
fn exits_inside_out_and_enters_outside_in() {
    let mut agent = agent(&chart(CHART));
    fire(&mut agent, "engage");
    assert_eq!((state(&agent), log(&agent)), ("like", 913.0));
    fire(&mut agent, "next");
    assert_eq!((state(&agent), log(&agent)), ("reply", 91_345.0), "the one around is not left");
    fire(&mut agent, "done");
    assert_eq!((state(&agent), log(&agent)), ("idle", 913_452.0));
}

#[test]
fn removed_agent_exits_its_state_and_all_around_it() {
    let chart = chart(CHART);
    let context = FireContext::new(&chart);
    let mut agent = agent(&chart);
    agent.exit(&context);
    assert_eq!((state(&agent), log(&agent)), ("idle", 0.0), "idle has no exit action");
    fire(&mut agent, "engage");
    agent.exit(&context);
    assert_eq!((state(&agent), log(&agent)), ("like", 91_342.0));
    let [idle, like, reshare] = ["idle", "like", "reshare"].map(|name| chart.state(name).unwrap());
    assert_eq!(
        [idle, like, reshare].map(|state| chart.has_exit_actions(state)),
        [false, true, true]
    );
}

#[test]
fn own_transitions_precede_inherited_ones() {
    let mut agent = agent(&chart(CHART));
    fire(&mut agent, "engage");
    fire(&mut agent, "next");
    assert_eq!(state(&agent), "reply");
    fire(&mut agent, "next");
    assert_eq!(state(&agent), "reshare", "reply says nothing of its own");
}

#[test]
fn shallow_history_returns_to_the_last_child() {
    let chart = chart(CHART);
    let mut agent = agent(&chart);
    for name in ["engage", "next", "done", "engage"] {
        fire(&mut agent, name);
    }
    assert_eq!(state(&agent), "reply");
    let recorded = agent.history().last().unwrap();
    assert_eq!(chart.state_name(recorded.from), "idle");
    assert_eq!(chart.state_name(recorded.to), "reply");
}

#[test]
fn history_applies_to_every_entry() {
    let chart = self::chart(
        "name: a\nstates:\n  - out\n  - name: site\n    initial: shop\n    states:\n      \
         - {name: shop, initial: door, history: shallow, states: [door, {name: hall, initial: \
         left, history: shallow, states: [left, right]}]}\n      - roof\ninitial: out\n\
         transitions:\n  - {trigger: enter, source: out, target: site}\n  \
         - {trigger: next, source: door, target: left}\n  \
         - {trigger: next, source: left, target: right}\n  \
         - {trigger: climb, source: shop, target: roof}\n  \
         - {trigger: knock, source: out, target: door}\n  \
         - {trigger: leave, source: site, target: out}\n",
    );
    for (triggers, expected) in [
        (&["enter"][..], "door"),
        (&["enter", "next", "next", "leave", "enter"], "right"),
        (&["enter", "next", "leave", "enter", "leave", "enter"], "left"),
        (&["enter", "next", "climb", "leave", "enter"], "left"),
        (&["enter", "next", "next", "leave", "knock"], "door"),
    ] {
        let mut agent = agent(&chart);
        for name in triggers {
            fire(&mut agent, name);
        }
        assert_eq!(state(&agent), expected, "{triggers:?}");
    }
    let scxml = chart.to_scxml();
    assert!(scxml.contains("<state id=\"site\" initial=\"shop\">"), "{scxml}");
    assert!(scxml.contains("<state id=\"shop\" initial=\"shop_history\">"), "{scxml}");
}

#[test]
fn children_inherit_timeouts() {
    let chart = chart(CHART);
    let empty = FireContext::new(&chart);
    let mut agent = agent(&chart).in_state(named(&chart, "reshare"));
    assert_eq!(agent.begin_tick(&empty), None);
    assert_eq!(agent.begin_tick(&empty), None);
    assert_eq!(agent.begin_tick(&empty), chart.state("idle"));
}

#[test]
fn own_timeout_precedes_inherited_one() {
    let chart = self::chart(
        "name: a\nstates: [out, late, {name: busy, initial: one, states: [one, two]}]\n\
         initial: one\ntransitions:\n  - {trigger: go, source: one, target: two}\n\
         timeouts:\n  - {state: busy, threshold: 1, target: out}\n  \
         - {state: two, threshold: 3, target: late}\n",
    );
    let empty = FireContext::new(&chart);
    let ticks = |from: &str| {
        let mut agent = agent(&chart).in_state(named(&chart, from));
        let ticks = (1..10).find(|_| agent.begin_tick(&empty).is_some());
        (ticks, state(&agent).to_owned())
    };
    assert_eq!(ticks("one"), (Some(2), "out".to_owned()));
    assert_eq!(ticks("two"), (Some(4), "late".to_owned()));
}

#[test]
fn composite_state_precedes_wildcard() {
    let chart = self::chart(
        "name: a\nstates: [x, y, {name: busy, initial: one, states: [one, {name: deep, initial: \
         two, states: [two]}]}]\ninitial: one\ntransitions:\n  \
         - {trigger: stop, source: '*', target: x}\n  \
         - {trigger: stop, source: deep, target: y}\n  \
         - {trigger: go, source: one, target: two}\n",
    );
    let mut agent = agent(&chart);
    fire(&mut agent, "go");
    fire(&mut agent, "stop");
    assert_eq!(state(&agent), "y");
}

#[test]
fn max_draws_covers_guards_and_longest_path() {
    let draws = |idle_guard: &str, exit: &str, entry: &str| {
        let text = format!(
            "
name: drawing
states:
  - idle
  - name: busy
    initial: low
    history: shallow
    exit: {exit}
    states: [low, {{name: high, entry: {entry}}}]
initial: idle
fields: {{n: 0}}
transitions:
  - {{trigger: go, source: idle, target: busy, guard: {idle_guard}}}
  - {{trigger: go, source: idle, target: busy, guard: draw() < 0.5}}
  - {{trigger: go, source: busy, target: idle}}
  - {{trigger: rise, source: low, target: high}}
"
        );
        chart(&text).max_draws()
    };
    let (none, one) = ("set agent.n = 1", "set agent.n = draw()");
    assert_eq!(draws("agent.n < 1", none, none), 1);
    assert_eq!(draws("draw() < 0.5", none, none), 2);
    assert_eq!(draws("draw() + draw() < 0.5", none, none), 3);
    // A state that only a history enters counts, too.
    assert_eq!(draws("draw() < 0.5", none, one), 3);
    assert_eq!(draws("agent.n < 1", "[set agent.n = draw() + draw() + draw()]", none), 3);
    assert_eq!(chart(CHART).max_draws(), 0);
}

//! Errors of invalid charts. The snapshots list each case with its errors.

use std::fmt::Write;

use insta::assert_snapshot;
use polity_statechart::{
    Chart, ChartErrors, ChartSource, GuardSource, STATE_DEPTH_MAX, StateSelector, StateSource,
    TransitionSource,
};

/// Lists the cases, each followed by its errors.
fn report<const N: usize>(
    cases: [&str; N],
    build: impl Fn(&str) -> Result<Chart, ChartErrors>,
) -> String {
    let mut text = String::new();
    for case in cases {
        writeln!(text, "{case}").unwrap();
        match build(case) {
            Ok(chart) => writeln!(text, "    valid, {} states", chart.states().len()).unwrap(),
            Err(errors) => {
                errors.0.iter().for_each(|error| writeln!(text, "    {error}").unwrap());
            }
        }
    }
    text
}

/// Returns a chart of two states with further lines.
fn around(lines: &str) -> String {
    format!(
        "name: lamp\nstates: [off, on]\ninitial: off\ntransitions:\n  \
         - {{trigger: press, source: off, target: on}}\n{lines}"
    )
}

fn lamp() -> ChartSource {
    ChartSource::new("lamp", ["off", "on"], "off").field("energy", 1.0).field("mood", "calm")
}

#[test]
fn rejects_invalid_transitions() {
    let cases = [
        "{trigger: press, source: onn, target: off}",
        "{trigger: press, source: [on, nowhere], target: far_away}",
        "{trigger: '', source: on, target: off}",
        "{source: on, target: off}",
        "{trigger: press, source: off, target: off}",
        "{trigger: press, source: off, target: off, guard: 'draw() < 0.5'}",
        "{trigger: press, source: '*', target: on}",
        "{trigger: reset, source: '*', target: off}",
        "{trigger: reset, source: ['*', on], target: off}",
        "{trigger: timeout, source: on, target: off}",
        "{trigger: press, source: on, target: off, guard: chance(2)}",
        "{trigger: press, source: on, target: off, guard: chance(1)}",
    ];
    assert_snapshot!(report(cases, |line| Chart::from_text(&around(&format!("  - {line}")))));
}

#[test]
fn rejects_invalid_timeouts() {
    let cases = [
        "timeouts: [{state: on, threshold: 5, target: of}]",
        "timeouts: [{state: on, threshold: 0, target: off}]",
        "timeouts: [{state: on, threshold: -1, target: off}]",
        "timeouts: [{state: on, target: off}]",
        "timeouts: [{state: on, threshold: soon, target: off}]",
        "timeouts: [{threshold: 1, target: off}]",
        "timeouts: [{state: on, threshold: 1}]",
        "timeouts: [{state: on, threshold: 1, target: off}, {state: '*', threshold: 2, target: off}]",
        "fields: {patience: -3}\ntimeouts: [{state: on, threshold: agent.patience, target: off}]",
        "fields: {patience: 0.5}\ntimeouts: [{state: on, threshold: agent.patience, target: off}]",
    ];
    assert_snapshot!(report(cases, |lines| Chart::from_text(&around(lines))));
}

#[test]
fn rejects_invalid_fields_and_undeclared_names() {
    let cases = [
        "fields: {x: {default: 2, min: 0, max: 1}}",
        "fields: {x: {default: 2, min: 3, max: 1}}",
        "fields: {x: {default: calm, min: 3}}",
        "fields: {x: {min: 3}}",
        "fields: {x: [1]}",
        "fields: {X: 1}",
        "max_history_depth: 0",
        "  - {trigger: press, source: on, target: off, guard: agent.n > 1, action: add world.m = 1}\n\
         timeouts: [{state: on, threshold: agent.patience, target: off}]",
    ];
    assert_snapshot!(report(cases, |lines| Chart::from_text(&around(lines))));
}

#[test]
fn rejects_invalid_guards() {
    let cases = [
        "agent.enrgy > 1",
        "world.likes > 1",
        "agent.energy / 0 > 1",
        "1 / (2 - 2) > agent.energy",
        "agent.energy == \"high\"",
        "agent.mood < \"high\"",
        "agent.energy && true",
        "agent.energy + 1",
        "energy > 1",
        "agent.energy > ",
        "(agent.energy > 1",
        "0 < agent.energy < 1",
        "agent.energy = 1",
        "",
        "agent.mood == 'calm",
        "agent.energy > 1 # really",
    ];
    assert_snapshot!(report(cases, |guard| {
        let transition = TransitionSource::new("press", ["off"], "on").guard(guard);
        let world = [("alarm".to_owned(), false.into())].into();
        Chart::build(&ChartSource { world, ..lamp().transition(transition) })
    }));
}

#[test]
fn rejects_invalid_actions() {
    let cases = [
        "set agent.enrgy = 1",
        "set energy = 1",
        "set agent.energy = \"high\"",
        "add agent.mood = 1",
        "add agent.energy = 1 / 0",
        "pause 0",
        "pause 1.5",
        "remove \"\"",
        "puase 3",
    ];
    assert_snapshot!(report(cases, |action| {
        let transition = TransitionSource::new("press", ["off"], "on").action(action);
        Chart::build(&lamp().transition(transition))
    }));
}

#[test]
fn rejects_constant_assignment_out_of_range() {
    let cases = [
        "set agent.n = 7",
        "set agent.n = 2 - 3",
        "set agent.patience = 0",
        "set agent.n = 5",
        "add agent.n = 7",
        "set agent.patience = 0.5",
    ];
    assert_snapshot!(report(cases, |action| {
        Chart::from_text(&format!(
            "name: a\nstates: [x, y]\ninitial: x\nfields: {{n: {{default: 3, min: 1, max: 5}}, \
             patience: 4}}\ntransitions:\n  \
             - {{trigger: go, source: x, target: y, action: {action}}}\n\
             timeouts: [{{state: y, threshold: agent.patience, target: x}}]\n"
        ))
    }));
}

#[test]
fn rejects_invalid_composite_states() {
    let cases = [
        "{name: busy, states: [a]}",
        "{name: busy, initial: b, states: [a]}",
        "{name: busy, initial: b}",
        "{name: busy, history: shallow}",
        "{name: busy, initial: idle, states: [idle]}",
        "{name: busy, history: deep, initial: a, states: [a]}",
    ];
    assert_snapshot!(report(cases, |state| {
        Chart::from_text(&format!(
            "name: a\nstates: [idle, {state}]\ninitial: idle\ntransitions:\n  \
             - {{trigger: go, source: idle, target: busy}}\n"
        ))
    }));
}

/// The default must be a candidate of every oracle choice with several candidates.
#[test]
fn oracle_needs_a_default_that_is_a_choice() {
    let two = "states: [x, y, z]\ninitial: x\ntransitions:\n  \
        - {trigger: go, source: x, target: y, oracle: true}\n  \
        - {trigger: go, source: x, target: z, oracle: true}\n";
    let one_each = "states: [x, y, z]\ninitial: x\ntransitions:\n  \
        - {trigger: go, source: x, target: y, oracle: true}\n  \
        - {trigger: on, source: y, target: z, oracle: true}\n";
    let nested = "states: [x, {name: out, initial: y, states: [y, z]}]\ninitial: x\ntransitions:\n  \
        - {trigger: go, source: x, target: x, oracle: true}\n  \
        - {trigger: go, source: x, target: z, oracle: true}\n  \
        - {trigger: stay, source: out, target: y, oracle: true}\n  \
        - {trigger: stay, source: out, target: z, oracle: true}\n  \
        - {trigger: back, source: out, target: z, oracle: true}\n";
    let cases = [
        two,
        &format!("{two}oracle_default: x"),
        &format!("{two}oracle_default: z"),
        &format!("{}oracle_default: z", two.replacen(", oracle: true", "", 1)),
        &format!("{one_each}oracle_default: z"),
        &format!("{nested}oracle_default: x"),
        &format!(
            "{nested}  - {{trigger: stay, source: out, target: x, oracle: true}}\noracle_default: x"
        ),
    ];
    assert_snapshot!(report(cases, |text| Chart::from_text(&format!("name: a\n{text}"))));
}

#[test]
fn rejects_invalid_charts() {
    let unreachable = around("").replace("[off, on]", "[off, on, broken]");
    let cases = [
        "- a list",
        "{}",
        &around("").replace("initial: off", "initial: of"),
        &around("").replace("initial: off\n", ""),
        &unreachable,
        // A timeout makes a state reachable.
        &format!("{unreachable}timeouts: [{{state: on, threshold: 3, target: broken}}]"),
        // A history does not.
        "name: a\nstates: [out, {name: w, initial: x, history: shallow, states: [x, y]}]\n\
         initial: out\ntransitions:\n  - {trigger: go, source: out, target: w}",
        // A history reaches a nested state left before.
        "name: a\nstates: [s, {name: h, initial: a, history: shallow, states: \
         [a, {name: c, initial: x, states: [x, y]}]}]\ninitial: s\ntransitions:\n  \
         - {trigger: in, source: s, target: y}\n  - {trigger: out, source: h, target: s}\n  \
         - {trigger: back, source: s, target: h}",
        // A wildcard conflicts with a composite state.
        "name: a\nstates: [x, {name: busy, initial: one, states: [one]}]\ninitial: one\n\
         transitions:\n  - {trigger: stop, source: '*', target: x}\n  \
         - {trigger: stop, source: busy, target: one}",
        // Lists all unknown fields and wrong types.
        "name: 7\nstates: [off, on]\ninital: off\ninitial: off\ntransitions:\n  \
         - {trigger: press, source: off, target: on, guards: x, oracle: maybe}\n  - press",
    ];
    assert_snapshot!(report(cases, Chart::from_text));
    assert_eq!(Chart::from_text("name: [unclosed").unwrap_err().0.len(), 1);
}

/// Returns the first error of a chart.
#[track_caller]
fn error_of(source: &ChartSource) -> String {
    Chart::build(source).unwrap_err().0[0].to_string()
}

#[test]
fn errors_name_the_exceeded_limit() {
    let states: Vec<String> = (0..300).map(|index| format!("s{index}")).collect();
    let many = ChartSource::new("many", states.iter().map(String::as_str), "s0");
    assert!(error_of(&many).contains("there are 300 states, and the limit states is 255"));

    let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
    let guard = Some(GuardSource::Text(deep));
    let transition = TransitionSource { guard, ..TransitionSource::new("press", ["off"], "on") };
    assert!(error_of(&lamp().transition(transition)).contains("the limit expression_depth is 32"));

    let transitions = vec![TransitionSource::new("press", ["off"], "on"); 10_001];
    let error = error_of(&ChartSource { transitions, ..lamp() });
    assert!(error.contains("there are 10001 transitions, and the limit transitions is 10000"));

    let states = (0..128).map(|number| {
        format!(
            "{{name: a{number}, history: shallow, initial: b{number}, states: [{{name: b{number}, \
             history: shallow, initial: c{number}, states: [c{number}]}}]}}"
        )
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let text = format!("name: a\nstates: [{states}]\ninitial: a0\n");
    let error = Chart::from_text(&text).unwrap_err().0[0].to_string();
    assert_snapshot!(error, @"states: 256 states have a history, and the limit histories is 255");
}

#[test]
fn limits_the_number_of_transition_paths() {
    let names = |stem: &str| (0..100).map(|n| format!("{stem}{n}")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "name: n\nstates: [{}, {{name: w, initial: in0, history: shallow, states: [{}]}}]\n\
         initial: out0\ntransitions:\n",
        names("out"),
        names("in")
    );
    for _ in 0..120 {
        text.push_str("  - {trigger: t, source: '*', target: w, guard: draw() < 0.5}\n");
    }
    for (stem, next) in (0..100).flat_map(|n| [("out", n), ("in", n)]) {
        let to = (next + 1) % 100;
        writeln!(text, "  - {{trigger: n, source: {stem}{next}, target: {stem}{to}}}").unwrap();
    }
    let errors = Chart::from_text(&text).unwrap_err().0;
    let [error] = &*errors else { panic!("{errors:?}") };
    assert!(error.message.contains("the limit transition_paths is 1000000"), "{error:?}");
}

#[test]
fn rejects_invalid_sources_from_code() {
    let valid = || {
        ChartSource::new("n", ["a", "b"], "a")
            .transition(TransitionSource::new("t", ["*"], "b"))
            .transition(TransitionSource::new("u", ["b"], "a"))
    };
    assert!(Chart::build(&valid()).is_ok());
    let nan = error_of(&valid().field("n", f64::NAN));
    assert_snapshot!(nan, @"fields.n: n must be a finite number, and so its min and max");
    let world = [("w".to_owned(), f64::INFINITY.into())].into();
    let endless = error_of(&ChartSource { world, ..valid() });
    assert_snapshot!(endless, @"world.w: w must be a finite number");
    let mut state = StateSource::new("inmost");
    for depth in 0..STATE_DEPTH_MAX {
        let name = format!("s{depth}");
        let initial = Some(state.name.clone());
        state = StateSource { initial, states: vec![state], ..StateSource::new(&name) };
    }
    let mut deep = valid();
    deep.states.push(state);
    let deep = error_of(&deep);
    assert_snapshot!(deep, @"states: states are nested too deep: the limit state_depth is 16");
    let source = StateSelector::Listed(Vec::new());
    let empty = TransitionSource { source, ..TransitionSource::new("a", [], "b") };
    let empty = error_of(&valid().transition(empty));
    assert_snapshot!(empty, @"transitions[2].source: source is missing or empty");
}

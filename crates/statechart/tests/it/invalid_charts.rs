use std::fmt::Write;

use polity_statechart::{
    Chart, ChartSource, GuardSource, STATE_DEPTH_MAX, StateSelector, StateSource, TransitionSource,
};

/// Returns the errors of a chart.
fn problems(text: &str) -> Vec<String> {
    Chart::from_text(text).unwrap_err().0.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    assert_eq!(problems(text), expected, "{text}");
}

/// Returns a chart of two states with further lines.
fn around(lines: &str) -> String {
    format!(
        "name: lamp\nstates: [off, on]\ninitial: off\ntransitions:\n  \
         - {{trigger: press, source: off, target: on}}\n{lines}"
    )
}

#[test]
fn suggests_the_closest_state() {
    refused(
        &around("  - {trigger: press, source: onn, target: off}"),
        &["transitions[1].source: source: unknown state \"onn\", did you mean \"on\"?"],
    );
    refused(
        &around("  - {trigger: press, source: [on, nowhere], target: far_away}"),
        &[
            "transitions[1].target: target: unknown state \"far_away\"; allowed: off, on",
            "transitions[1].source[1]: source: unknown state \"nowhere\"; allowed: off, on",
        ],
    );
    refused(
        &around("timeouts:\n  - {state: on, threshold: 5, target: of}"),
        &["timeouts[0].target: target: unknown state \"of\", did you mean \"off\"?"],
    );
}

#[test]
fn rejects_empty_trigger() {
    refused(
        &around("  - {trigger: '', source: on, target: off}"),
        &["transitions[1].trigger: trigger is missing or empty"],
    );
    refused(
        &around("  - {source: on, target: off}"),
        &["transitions[1].trigger: trigger is missing or empty"],
    );
}

#[test]
fn rejects_unknown_initial_state() {
    let text = around("").replace("initial: off", "initial: of");
    refused(&text, &["initial: initial \"of\" is not one of the states, did you mean \"off\"?"]);
    let text = around("").replace("initial: off\n", "");
    refused(&text, &["initial: initial is missing or empty"]);
}

#[test]
fn rejects_unreachable_state() {
    let text = around("").replace("[off, on]", "[off, on, broken]");
    refused(&text, &["states[2]: state \"broken\" cannot be reached: no transition leads to it"]);
    let text = text.replace(
        "transitions:",
        "timeouts: [{state: on, threshold: 3, target: broken}]\ntransitions:",
    );
    assert!(Chart::from_text(&text).is_ok(), "a timeout leads there too");
}

#[test]
fn rejects_two_transitions_without_guard() {
    let second = "  - {trigger: press, source: off, target: off}\n";
    refused(
        &around(second),
        &["transitions[1]: state \"off\" has two transitions on \"press\" that could both hold, \
           this one and transitions[0]; give one a guard, or declare both \"oracle: true\""],
    );
    let both = around(second).replace("target: on}", "target: on, oracle: true}");
    let both = both.replace("target: off}", "target: off, oracle: true}");
    refused(
        &both,
        &["oracle_default: oracle_default is missing: transitions[0] is left to the oracle, and \
           an answer that is of no use needs a state to go to"],
    );
    assert!(Chart::from_text(&format!("{both}oracle_default: off\n")).is_ok());
    let one = around(second).replace("target: on}", "target: on, oracle: true}");
    assert_eq!(problems(&format!("{one}oracle_default: on\n")).len(), 1, "one is not both");
}

#[test]
fn oracle_default_must_be_a_choice() {
    let text = "name: a\nstates: [x, y, z]\ninitial: x\noracle_default: x\ntransitions:\n  \
        - {trigger: go, source: x, target: y, oracle: true}\n  \
        - {trigger: go, source: x, target: z, oracle: true}\n";
    refused(
        text,
        &["oracle_default: oracle_default \"x\" is not one of the choices that the oracle has in \
           state \"x\" on \"go\": add a transition with \"oracle: true\" that leads there; allowed: \
           y, z"],
    );
    assert!(Chart::from_text(&text.replace("default: x", "default: z")).is_ok());
}

#[test]
fn oracle_default_must_be_a_choice_everywhere() {
    let text = "name: a\nstates: [x, {name: out, initial: y, states: [y, z]}]\ninitial: x\n\
        oracle_default: x\ntransitions:\n  \
        - {trigger: go, source: x, target: x, oracle: true}\n  \
        - {trigger: go, source: x, target: z, oracle: true}\n  \
        - {trigger: stay, source: out, target: y, oracle: true}\n  \
        - {trigger: stay, source: out, target: z, oracle: true}\n  \
        - {trigger: back, source: out, target: z, oracle: true}\n";
    refused(
        text,
        &["oracle_default: oracle_default \"x\" is not one of the choices that the oracle has in \
           state \"y\" on \"stay\": add a transition with \"oracle: true\" that leads there; \
           allowed: y, z"],
    );
    let served = format!("{text}  - {{trigger: stay, source: out, target: x, oracle: true}}\n");
    assert!(Chart::from_text(&served).is_ok());
}

#[test]
fn rejects_constant_assignment_out_of_range() {
    let chart = |action: &str| {
        format!(
            "name: a\nstates: [x, y]\ninitial: x\nfields: {{n: {{default: 3, min: 1, max: 5}}, \
             patience: 4}}\ntransitions:\n  \
             - {{trigger: go, source: x, target: y, action: {action}}}\n\
             timeouts: [{{state: y, threshold: agent.patience, target: x}}]\n"
        )
    };
    for (action, reason) in [
        ("set agent.n = 7", "n must be from 1 to 5, found 7"),
        ("set agent.n = 2 - 3", "n must be from 1 to 5, found -1"),
        ("set agent.patience = 0", "patience must be above 0, because it is a threshold, found 0"),
    ] {
        let problem = format!("transitions[0].action: \"{action}\" can never be done: {reason}");
        refused(&chart(action), &[&problem]);
    }
    for action in ["set agent.n = 5", "add agent.n = 7", "set agent.patience = 0.5"] {
        assert!(Chart::from_text(&chart(action)).is_ok(), "{action}");
    }
}

#[test]
fn single_oracle_choice_needs_no_matching_default() {
    let text = "name: a\nstates: [x, y, z]\ninitial: x\noracle_default: z\ntransitions:\n  \
        - {trigger: go, source: x, target: y, oracle: true}\n  \
        - {trigger: on, source: y, target: z, oracle: true}\n";
    assert!(Chart::from_text(text).is_ok(), "where there is one choice, the oracle is not asked");
}

#[test]
fn wildcard_conflicts_with_other_sources() {
    let text = around("  - {trigger: press, source: '*', target: on}\n");
    assert_eq!(problems(&text).len(), 1);
    assert!(Chart::from_text(&around("  - {trigger: reset, source: '*', target: off}")).is_ok());
}

#[test]
fn wildcard_conflicts_with_composite_state() {
    refused(
        "name: a\nstates: [x, {name: busy, initial: one, states: [one]}]\ninitial: one\n\
         transitions:\n  - {trigger: stop, source: '*', target: x}\n  \
         - {trigger: stop, source: busy, target: one}\n",
        &["transitions[1]: state \"one\" has two transitions on \"stop\" that could both hold, \
           this one and transitions[0]; give one a guard, or declare both \"oracle: true\""],
    );
}

#[test]
fn wildcard_cannot_be_listed_with_states() {
    refused(
        &around("  - {trigger: reset, source: ['*', on], target: off}"),
        &["transitions[1].source: \"*\" stands for every state, so it stands alone"],
    );
}

#[test]
fn rejects_transition_after_one_without_guard() {
    refused(
        &around("  - {trigger: press, source: off, target: off, guard: 'draw() < 0.5'}"),
        &["transitions[1]: this transition can never be taken: in state \"off\" transitions[0] \
           comes first on \"press\" and has no guard; put this one before it"],
    );
}

#[test]
fn rejects_invalid_timeouts() {
    for (line, expected) in [
        (
            "{state: on, threshold: 0, target: off}",
            "timeouts[0].threshold: threshold must be above 0, found 0",
        ),
        (
            "{state: on, threshold: -1, target: off}",
            "timeouts[0].threshold: threshold must be above 0, found -1",
        ),
        ("{state: on, target: off}", "timeouts[0].threshold: threshold is missing"),
        (
            "{state: on, threshold: soon, target: off}",
            "timeouts[0].threshold: \"soon\" is not a number of ticks; allowed: a number, agent.FIELD",
        ),
        ("{threshold: 1, target: off}", "timeouts[0].state: state is missing or empty"),
        ("{state: on, threshold: 1}", "timeouts[0].target: target is missing or empty"),
    ] {
        refused(&around(&format!("timeouts:\n  - {line}")), &[expected]);
    }
    let twice = "timeouts:\n  - {state: on, threshold: 1, target: off}\n  - {state: '*', threshold: 2, target: off}";
    refused(
        &around(twice),
        &["timeouts[1].state: state \"on\" has a timeout already, in timeouts[0]"],
    );
    refused(
        &around("  - {trigger: timeout, source: on, target: off}"),
        &[
            "transitions[1].trigger: the trigger \"timeout\" is kept for timeouts; declare it under \"timeouts\"",
        ],
    );
}

#[test]
fn threshold_field_must_start_above_zero() {
    let timeout = "timeouts:\n  - {state: on, threshold: agent.patience, target: off}\n";
    refused(
        &around(&format!("fields: {{patience: -3}}\n{timeout}")),
        &["timeouts[0].threshold: agent.patience must be above 0 as a threshold, and is -3"],
    );
    assert!(Chart::from_text(&around(&format!("fields: {{patience: 0.5}}\n{timeout}"))).is_ok());
}

#[test]
fn limits_the_number_of_histories() {
    let states = (0..128).map(|number| {
        format!(
            "{{name: a{number}, history: shallow, initial: b{number}, states: [{{name: b{number}, \
             history: shallow, initial: c{number}, states: [c{number}]}}]}}"
        )
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let text = format!("name: a\nstates: [{states}]\ninitial: a0\n");
    assert_eq!(
        problems(&text)[0],
        "states: 256 states have a history, and the limit histories is 255"
    );
}

#[test]
fn chance_must_be_from_0_to_1() {
    refused(
        &around("  - {trigger: press, source: on, target: off, guard: chance(2)}"),
        &["transitions[1].guard: guard \"chance(2)\": chance(2) must be from 0 to 1"],
    );
    let always = around("  - {trigger: press, source: on, target: off, guard: chance(1)}");
    assert!(Chart::from_text(&always).is_ok());
}

#[test]
fn rejects_invalid_field_ranges() {
    for (fields, expected) in [
        (
            "{x: {default: 2, min: 0, max: 1}}",
            "fields.x.default: default 2 is not between min and max",
        ),
        ("{x: {default: 2, min: 3, max: 1}}", "fields.x: min 3 is greater than max 1"),
        (
            "{x: {default: calm, min: 3}}",
            "fields.x: only a number can have min and max, and x is a text",
        ),
        ("{x: {min: 3}}", "fields.x.default: default is missing"),
        ("{x: [1]}", "fields.x: x must be a value or a mapping with its default, found a list"),
        (
            "{X: 1}",
            "fields.X: field \"X\" must begin with a small letter, and have nothing but small letters, digits and _",
        ),
    ] {
        refused(&around(&format!("fields: {fields}")), &[expected]);
    }
}

#[test]
fn rejects_invalid_guards() {
    for (guard, expected) in [
        ("agent.enrgy > 1", "unknown field \"agent.enrgy\", did you mean \"energy\"?"),
        ("world.likes > 1", "unknown value \"world.likes\"; allowed: alarm"),
        ("agent.energy / 0 > 1", "it divides by zero"),
        ("1 / (2 - 2) > agent.energy", "it divides by zero"),
        ("agent.energy == \"high\"", "\"==\" cannot compare a number with a text"),
        ("agent.mood < \"high\"", "\"<\" needs numbers and is given a text"),
        ("agent.energy && true", "\"&&\" needs true or false and is given a number"),
        ("agent.energy + 1", "it must be true or false, and is a number"),
        (
            "energy > 1",
            "\"energy\" is not known; a name is agent.energy, context.energy or world.energy, and the functions are draw() and chance(p)",
        ),
        ("agent.energy > ", "a value is missing at the end"),
        ("(agent.energy > 1", "\")\" is missing at the end"),
        ("0 < agent.energy < 1", "comparisons do not chain; join two of them with \"&&\""),
        ("agent.energy = 1", "\"=\" has no meaning here; equality is \"==\""),
        ("", "it is empty; leave the field out where there is no guard"),
        ("agent.mood == 'calm", "the text that begins with ' has no end"),
        ("agent.energy > 1 # really", "\"#\" has no meaning here"),
    ] {
        let source = ChartSource::new("lamp", ["off", "on"], "off")
            .field("energy", 1.0)
            .field("mood", "calm")
            .transition(TransitionSource::new("press", ["off"], "on").guard(guard));
        let source = ChartSource { world: [("alarm".to_owned(), false.into())].into(), ..source };
        let errors = Chart::build(&source).unwrap_err();
        let shown: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(shown, [format!("transitions[0].guard: guard \"{guard}\": {expected}")]);
    }
}

#[test]
fn rejects_undeclared_names() {
    refused(
        &around(
            "  - {trigger: press, source: on, target: off, guard: agent.n > 1, action: add world.m = 1}\n\
             timeouts:\n  - {state: on, threshold: agent.patience, target: off}\n",
        ),
        &[
            "transitions[1].guard: guard \"agent.n > 1\": unknown field \"agent.n\": declare it \
             under \"fields\"",
            "transitions[1].action: unknown value \"world.m\": declare it under \"world\"",
            "timeouts[0].threshold: unknown field \"agent.patience\": declare it under \"fields\"",
        ],
    );
}

#[test]
fn rejects_invalid_actions() {
    for (action, expected) in [
        ("set agent.enrgy = 1", "unknown field \"agent.enrgy\", did you mean \"energy\"?"),
        ("set energy = 1", "\"energy\" cannot be changed, did you mean \"agent.energy\"?"),
        ("set agent.energy = \"high\"", "\"set agent.energy\" needs a number and is given a text"),
        ("add agent.mood = 1", "agent.mood is not a number, so nothing can be added to it"),
        ("add agent.energy = 1 / 0", "it divides by zero"),
        ("pause 0", "turns must be a whole number from 1, found 0"),
        ("pause 1.5", "turns must be a whole number from 1, found 1.5"),
        ("remove \"\"", "the name of an agent must not be empty"),
    ] {
        let source = ChartSource::new("lamp", ["off", "on"], "off")
            .field("energy", 1.0)
            .field("mood", "calm")
            .transition(TransitionSource::new("press", ["off"], "on").action(action));
        let errors = Chart::build(&source).unwrap_err();
        assert_eq!(errors.to_string(), format!("transitions[0].action: {expected}"));
    }
    let source = ChartSource::new("lamp", ["off", "on"], "off")
        .transition(TransitionSource::new("press", ["off"], "on").action("puase 3"));
    let errors = Chart::build(&source).unwrap_err();
    assert_eq!(errors.0[0].suggestion.as_deref(), Some("pause"));
}

#[test]
fn lists_all_unknown_fields_and_wrong_types() {
    let text = "name: 7\nstates: [off, on]\ninital: off\ninitial: off\ntransitions:\n  \
                - {trigger: press, source: off, target: on, guards: x, oracle: maybe}\n  - press\n";
    refused(
        text,
        &[
            "inital: unknown field \"inital\", did you mean \"initial\"?",
            "name: name must be a text, found 7",
            "transitions[0].guards: unknown field \"guards\", did you mean \"guard\"?",
            "transitions[0].oracle: oracle must be true or false, found \"maybe\"",
            "transitions[1]: transitions[1] must be a mapping, found \"press\"",
        ],
    );
}

#[test]
fn rejects_documents_that_are_no_charts() {
    refused("- a list", &["a chart must be a mapping, found a list"]);
    assert_eq!(problems("name: [unclosed").len(), 1);
    let empty = problems("{}");
    assert!(empty.contains(
        &"states: states is missing or empty: a chart has at least one state".to_owned()
    ));
}

#[test]
fn rejects_invalid_composite_states() {
    let chart = |state: &str| {
        format!(
            "name: a\nstates: [idle, {state}]\ninitial: idle\ntransitions:\n  \
             - {{trigger: go, source: idle, target: busy}}\n"
        )
    };
    for (state, expected) in [
        (
            "{name: busy, states: [a]}",
            "states[1]: state \"busy\" has states inside, and no initial; allowed: a",
        ),
        (
            "{name: busy, initial: b, states: [a]}",
            "states[1].initial: initial \"b\" is not one of the states inside \"busy\"; allowed: a",
        ),
        (
            "{name: busy, initial: b}",
            "states[1].initial: only a state with states inside has an initial",
        ),
        (
            "{name: busy, history: shallow}",
            "states[1].history: only a state with states inside has a history",
        ),
        (
            "{name: busy, initial: idle, states: [idle]}",
            "states[1].states[0]: state \"idle\" is declared twice, first in states[0]",
        ),
        (
            "{name: busy, history: deep, initial: a, states: [a]}",
            "states[1].history: unknown value \"deep\"; allowed: shallow",
        ),
    ] {
        let problems = problems(&chart(state));
        assert_eq!(problems[0], expected);
    }
}

#[test]
fn errors_name_the_exceeded_limit() {
    let states: Vec<String> = (0..300).map(|index| format!("s{index}")).collect();
    let source = ChartSource::new("many", states.iter().map(String::as_str), "s0");
    let errors = Chart::build(&source).unwrap_err();
    assert!(errors.to_string().contains("there are 300 states, and the limit states is 255"));

    let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
    let guard = Some(GuardSource::Text(deep));
    let transition = TransitionSource { guard, ..TransitionSource::new("press", ["off"], "on") };
    let source = ChartSource::new("lamp", ["off", "on"], "off").transition(transition);
    let errors = Chart::build(&source).unwrap_err();
    assert!(errors.to_string().contains("the limit expression_depth is 32"));

    let mut source = ChartSource::new("lamp", ["off", "on"], "off");
    source.transitions = vec![TransitionSource::new("press", ["off"], "on"); 10_001];
    let errors = Chart::build(&source).unwrap_err();
    assert!(
        errors
            .to_string()
            .contains("there are 10001 transitions, and the limit transitions is 10000")
    );

    let text = around("max_history_depth: 0");
    refused(&text, &["max_history_depth: max_history_depth must be from 1 to 1000, found 0"]);
}

#[test]
fn rejects_empty_source_list() {
    let transition = TransitionSource {
        source: StateSelector::Listed(Vec::new()),
        ..TransitionSource::new("a", [], "on")
    };
    let source = ChartSource::new("lamp", ["on"], "on").transition(transition);
    let errors = Chart::build(&source).unwrap_err();
    assert_eq!(errors.to_string(), "transitions[0].source: source is missing or empty");
}

#[test]
fn history_does_not_make_a_state_reachable() {
    refused(
        "name: a\nstates: [out, {name: w, initial: x, history: shallow, states: [x, y]}]\n\
         initial: out\ntransitions:\n  - {trigger: go, source: out, target: w}\n",
        &["states[1].states[1]: state \"y\" cannot be reached: no transition leads to it"],
    );
}

#[test]
fn history_reaches_a_nested_state_left_before() {
    let text = "name: a\nstates: [s, {name: h, initial: a, history: shallow, states: \
        [a, {name: c, initial: x, states: [x, y]}]}]\ninitial: s\ntransitions:\n  \
        - {trigger: in, source: s, target: y}\n  - {trigger: out, source: h, target: s}\n  \
        - {trigger: back, source: s, target: h}\n";
    let chart = super::chart(text);
    assert_eq!(chart.states().len(), 4);
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
    let go = || {
        ChartSource::new("n", ["a", "b"], "a").transition(TransitionSource::new("t", ["*"], "b"))
    };
    let back = |source: ChartSource| source.transition(TransitionSource::new("u", ["b"], "a"));
    assert!(Chart::build(&back(go())).is_ok());
    let error_of = |source: ChartSource| Chart::build(&source).unwrap_err().0[0].to_string();
    let nan = error_of(back(go()).field("n", f64::NAN));
    assert_eq!(nan, "fields.n: n must be a finite number, and so its min and max");
    let mut endless = back(go());
    endless.world.insert("w".to_owned(), f64::INFINITY.into());
    assert_eq!(error_of(endless), "world.w: w must be a finite number");
    let mut state = StateSource::new("inmost");
    for depth in 0..STATE_DEPTH_MAX {
        let name = format!("s{depth}");
        let initial = Some(state.name.clone());
        state = StateSource { initial, states: vec![state], ..StateSource::new(&name) };
    }
    let mut deep = back(go());
    deep.states.push(state);
    assert_eq!(error_of(deep), "states: states are nested too deep: the limit state_depth is 16");
}

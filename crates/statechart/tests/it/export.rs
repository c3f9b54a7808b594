use insta::assert_snapshot;

use super::chart;

const NESTED: &str = "
name: nested
states:
  - idle
  - {name: engaging, initial: like, history: shallow, states: [like, reply], entry: add agent.energy = 1}
initial: idle
fields: {energy: 3}
oracle_default: idle
transitions:
  - {trigger: engage, source: idle, target: engaging, guard: agent.energy > 1 && chance(0.5)}
  - {trigger: done, source: engaging, target: idle, oracle: true, action: ['set agent.energy = 0', 'pause 3']}
  - {trigger: done, source: engaging, target: reply, oracle: true}
timeouts:
  - {state: like, threshold: 5, target: reply}
";

#[test]
fn nested_chart_as_scxml() {
    assert_snapshot!(chart(NESTED).to_scxml());
}

/// `stay` has no target, `next` is internal, and `again` targets the child.
#[test]
fn scxml_keeps_common_ancestors() {
    let text = "name: a\nstates: [x, {name: busy, initial: one, states: [one, two]}]\ninitial: x\n\
         transitions:\n  - {trigger: stay, source: x, target: x}\n  \
         - {trigger: go, source: x, target: busy}\n  - {trigger: next, source: busy, target: two}\n  \
         - {trigger: again, source: two, target: busy}\n";
    assert_snapshot!(chart(text).to_scxml());
}

/// A state overrides inherited transitions where the rules of SCXML differ: `*` excludes the target
/// (`in` and `inner`), and the target stays in its state (`same` in `low`).
#[test]
fn scxml_overrides_inherited_transitions() {
    let text = "name: a\nstates: [off, {name: on, initial: low, states: [low, {name: box, initial: x, \
         entry: add agent.h = 1, states: [x, y]}]}]\ninitial: off\nfields: {h: 0}\ntransitions:\n  \
         - {trigger: go, source: off, target: x}\n  - {trigger: go, source: x, target: on}\n  \
         - {trigger: in, source: '*', target: x, guard: agent.h > 0}\n  \
         - {trigger: in, source: on, target: off, guard: agent.h > 1}\n  \
         - {trigger: inner, source: '*', target: y}\n  - {trigger: same, source: on, target: low}\n";
    assert_snapshot!(chart(text).to_scxml());
}

#[test]
fn scxml_escapes_texts_and_names() {
    let text = "name: a\nstates: [{name: x, initial: one, history: shallow, states: [one, two]}, \
         x_history]\ninitial: one\nfields: {path: ''}\ntransitions:\n  \
         - {trigger: go, source: x, target: x_history, guard: 'agent.path == \"c:\\new\"'}\n  \
         - {trigger: go, source: x_history, target: x, action: 'set agent.path = \"c:\\new\"'}\n  \
         - {trigger: next, source: one, target: two, action: 'pause\"bob & co\"3'}\n";
    assert_snapshot!(chart(text).to_scxml());
}

/// The innermost transition is taken; `*` is outside of all states, after their own transitions.
#[test]
fn scxml_puts_wildcards_on_outermost_states() {
    let text = "name: a\nstates: [x, {name: busy, initial: one, states: [one, two]}, y]\ninitial: x\n\
         transitions:\n  - {trigger: any, source: x, target: busy, guard: chance(0.5)}\n  \
         - {trigger: any, source: '*', target: y}\n  - {trigger: any, source: one, target: two}\n";
    assert_snapshot!(chart(text).to_scxml());
}

#[test]
fn scxml_lists_the_oracle_default_first() {
    let text = "name: a\nstates: [x, y, z]\ninitial: x\noracle_default: z\ntransitions:\n  \
         - {trigger: go, source: x, target: y, oracle: true}\n  \
         - {trigger: go, source: x, target: z, oracle: true}\n";
    assert_snapshot!(chart(text).to_scxml());
}

#[test]
fn arrows_with_the_same_ends_are_merged() {
    let chart = chart(
        "name: a\nstates: [x, y]\ninitial: x\ntransitions:\n  \
         - {trigger: go, source: x, target: y}\n  - {trigger: run, source: '*', target: y}\n",
    );
    let arrows = chart.arrows();
    assert_eq!(arrows.len(), 1);
    assert_eq!(arrows[0].labels, ["go", "run"]);
}

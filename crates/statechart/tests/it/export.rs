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
fn a_chart_is_a_mermaid_diagram() {
    insta::assert_snapshot!(chart(NESTED).to_mermaid());
}

#[test]
fn a_chart_is_scxml() {
    insta::assert_snapshot!(chart(NESTED).to_scxml());
}

#[test]
fn arrows_with_the_same_ends_are_one() {
    let chart = chart(
        "name: a\nstates: [x, y]\ninitial: x\ntransitions:\n  \
         - {trigger: go, source: x, target: y}\n  - {trigger: run, source: '*', target: y}\n",
    );
    let arrows = chart.arrows();
    assert_eq!(arrows.len(), 1);
    assert_eq!(arrows[0].labels, ["go", "run"]);
}

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
fn scxml_leaves_no_state_that_is_not_left_here() {
    let text = chart(
        "name: a\nstates: [x, {name: busy, initial: one, states: [one, two]}]\ninitial: x\n\
         transitions:\n  - {trigger: stay, source: x, target: x}\n  \
         - {trigger: go, source: x, target: busy}\n  - {trigger: next, source: busy, target: two}\n  \
         - {trigger: again, source: two, target: busy}\n",
    )
    .to_scxml();
    for line in [
        "<transition event=\"stay\"/>",
        "<transition event=\"go\" target=\"busy\"/>",
        "<transition event=\"next\" target=\"two\" type=\"internal\"/>",
        "<transition event=\"again\" target=\"one\"/>",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// Of transitions that could be taken, the innermost is; `*` is outside of all.
#[test]
fn scxml_has_what_leads_from_all_states_outermost() {
    let text = chart(
        "name: a\nstates: [x, {name: busy, initial: one, states: [one, two]}, y]\ninitial: x\n\
         transitions:\n  - {trigger: any, source: x, target: busy, guard: chance(0.5)}\n  \
         - {trigger: any, source: '*', target: y}\n  - {trigger: any, source: one, target: two}\n",
    )
    .to_scxml();
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
    let to_y = "<transition event=\"any\" target=\"y\"/>";
    assert!(place("target=\"busy\"") < place(to_y), "{text}");
    let one = &text[place("<state id=\"one\"")..];
    assert!(!one[..one.find("</state>").unwrap()].contains(to_y), "{text}");
    let busy = &text[place("<state id=\"busy\"")..place("<state id=\"one\"")];
    assert!(busy.contains(to_y), "{text}");
}

#[test]
fn scxml_has_the_default_of_the_oracle_first() {
    let text = chart(
        "name: a\nstates: [x, y, z]\ninitial: x\noracle_default: z\ntransitions:\n  \
         - {trigger: go, source: x, target: y, oracle: true}\n  \
         - {trigger: go, source: x, target: z, oracle: true}\n",
    )
    .to_scxml();
    assert!(text.find("target=\"z\"").unwrap() < text.find("target=\"y\"").unwrap(), "{text}");
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

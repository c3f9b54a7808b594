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
    insta::assert_snapshot!(chart(NESTED).to_scxml());
}

#[test]
fn scxml_keeps_common_ancestors() {
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

/// A state overrides inherited transitions where the rules of SCXML differ.
#[test]
fn scxml_overrides_inherited_transitions() {
    let text = chart(
        "name: a\nstates: [off, {name: on, initial: low, states: [low, {name: box, initial: x, \
         entry: add agent.h = 1, states: [x, y]}]}]\ninitial: off\nfields: {h: 0}\ntransitions:\n  \
         - {trigger: go, source: off, target: x}\n  - {trigger: go, source: x, target: on}\n  \
         - {trigger: in, source: '*', target: x, guard: agent.h > 0}\n  \
         - {trigger: in, source: on, target: off, guard: agent.h > 1}\n  \
         - {trigger: inner, source: '*', target: y}\n  - {trigger: same, source: on, target: low}\n",
    )
    .to_scxml();
    let state = |name: &str| {
        let begin = text.find(&format!("<state id=\"{name}\">")).unwrap();
        let end = begin + text[begin..].find("</state>").unwrap();
        text[begin..end].trim_end().lines().skip(1).map(str::trim).collect::<Vec<_>>().join("\n")
    };
    // `*` excludes the target.
    let from_x = "<transition event=\"go\" target=\"low\"/>\n\
        <transition event=\"in\" target=\"off\" cond=\"agent.h &gt; 1\"/>\n\
        <transition event=\"in\"/>\n<transition event=\"inner\" target=\"y\"/>";
    assert!(state("x").starts_with(from_x), "{text}");
    // The target stays in its state.
    assert_eq!(state("low"), "<transition event=\"same\"/>", "{text}");
    assert!(state("y").contains("<transition event=\"inner\"/>"), "{text}");
}

#[test]
fn scxml_escapes_texts_and_names() {
    let text = chart(
        "name: a\nstates: [{name: x, initial: one, history: shallow, states: [one, two]}, x_history]\n\
         initial: one\nfields: {path: ''}\ntransitions:\n  \
         - {trigger: go, source: x, target: x_history, guard: 'agent.path == \"c:\\new\"'}\n  \
         - {trigger: go, source: x_history, target: x, action: 'set agent.path = \"c:\\new\"'}\n  \
         - {trigger: next, source: one, target: two, action: 'pause\"bob & co\"3'}\n",
    )
    .to_scxml();
    let pause =
        r#"<send event="request.pause"><content>&quot;bob &amp; co&quot;3</content></send>"#;
    assert!(text.contains(pause), "{text}");
    assert!(text.contains("<history id=\"x_history_\""), "{text}");
    assert!(text.contains("<transition event=\"go\" target=\"x_history_\">"), "{text}");
    assert!(text.contains(r#"cond="agent.path == &quot;c:\\new&quot;""#), "{text}");
    assert!(text.contains(r#"expr="&quot;c:\\new&quot;""#), "{text}");
}

/// The innermost transition is taken; `*` is outside of all states.
#[test]
fn scxml_puts_wildcards_on_outermost_states() {
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
fn scxml_lists_the_oracle_default_first() {
    let text = chart(
        "name: a\nstates: [x, y, z]\ninitial: x\noracle_default: z\ntransitions:\n  \
         - {trigger: go, source: x, target: y, oracle: true}\n  \
         - {trigger: go, source: x, target: z, oracle: true}\n",
    )
    .to_scxml();
    assert!(text.find("target=\"z\"").unwrap() < text.find("target=\"y\"").unwrap(), "{text}");
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

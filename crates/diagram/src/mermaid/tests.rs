use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::node::NodeState;
use polity_model::machine::task::TaskStatus;
use polity_model::machine::tool_call::CallState;
use polity_statechart::Chart;

use super::{chart_to_mermaid, machine_to_mermaid};

const REFERENCE: &str = include_str!("../../../../docs/reference/state-machines.md");

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

fn mermaid(text: &str) -> String {
    chart_to_mermaid(&Chart::from_text(text).unwrap())
}

#[test]
fn a_chart_is_a_mermaid_diagram() {
    insta::assert_snapshot!(mermaid(NESTED));
}

#[test]
fn mermaid_ids_avoid_reserved_words() {
    let text = mermaid(
        "name: a\nstates: [note, note_, {name: class, initial: x, states: [x]}]\ninitial: note\n\
         transitions:\n  - {trigger: go, source: note, target: note_}\n  \
         - {trigger: go, source: note_, target: class}\n",
    );
    for line in [
        "[*] --> note__",
        "state \"note\" as note__",
        "state \"class\" as class_ {",
        "note__ --> note_ : go",
        "note_ --> class_ : go",
    ] {
        assert!(text.contains(&format!("    {line}\n")), "{line} in {text}");
    }
}

#[test]
fn the_reference_has_every_state_machine() {
    for diagram in [
        machine_to_mermaid::<TaskStatus>(),
        machine_to_mermaid::<ExecutionState>(),
        machine_to_mermaid::<LoopState>(),
        machine_to_mermaid::<CallState>(),
        machine_to_mermaid::<NodeState>(),
    ] {
        assert!(REFERENCE.contains(&format!("```mermaid\n{diagram}```")), "{diagram}");
    }
}

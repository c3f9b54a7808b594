//! State machines as Mermaid state diagrams, for the documentation.

use std::fmt::Write;

use polity_model::machine::Machine;

/// The state machine as Mermaid text: one line per transition, with final states marked.
pub fn machine_to_mermaid<M: Machine>() -> String {
    let mut text = format!("stateDiagram-v2\n    [*] --> {}\n", M::INITIAL.label());
    for &state in M::STATES {
        for &event in M::EVENTS {
            if let Some(after) = state.after(event) {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    text,
                    "    {} --> {}: {}",
                    state.label(),
                    after.label(),
                    M::event_label(event)
                );
            }
        }
        if state.legal_events().next().is_none() {
            let _ = writeln!(text, "    {} --> [*]", state.label());
        }
    }
    text
}

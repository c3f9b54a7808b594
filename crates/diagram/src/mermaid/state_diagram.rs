//! A chart as a Mermaid state diagram.

use std::fmt::Write;

use polity_statechart::{Chart, StateId, StateNode};

/// The reserved words of Mermaid.
const WORDS: [&str; 18] = [
    "accdescr",
    "acctitle",
    "as",
    "class",
    "classdef",
    "click",
    "default",
    "direction",
    "end",
    "hide",
    "href",
    "left",
    "note",
    "over",
    "right",
    "scale",
    "state",
    "style",
];

/// The chart as a Mermaid state diagram, which many web pages and editors show as a picture.
pub fn chart_to_mermaid(chart: &Chart) -> String {
    let mut text = format!("---\ntitle: Chart {}\n---\nstateDiagram-v2\n", chart.name());
    let initial = tree_index(chart, chart.initial());
    states_inside(chart, None, initial, 1, &mut text);
    for arrow in chart.arrows() {
        let to = mermaid_id(chart, arrow.to);
        for from in drawn_from(chart, arrow.from, arrow.to) {
            let from = mermaid_id(chart, from);
            for label in &arrow.labels {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "    {from} --> {to} : {}", escaped(label));
            }
        }
    }
    text
}

fn states_inside(
    chart: &Chart,
    parent: Option<usize>,
    initial: Option<usize>,
    depth: usize,
    text: &mut String,
) {
    let indent = "    ".repeat(depth);
    let entered = match parent {
        Some(parent) => chart.tree()[parent].initial,
        None => initial.and_then(|initial| outermost(chart, initial)),
    };
    if let Some(entered) = entered {
        let _ = writeln!(text, "{indent}[*] --> {}", mermaid_id(chart, entered));
    }
    for (number, node) in chart.tree().iter().enumerate().filter(|(_, node)| node.parent == parent)
    {
        let (id, name) = (mermaid_id(chart, number), &node.name);
        let declared = if id == *name { id.clone() } else { format!("state \"{name}\" as {id}") };
        if node.children.is_empty() {
            let _ = writeln!(text, "{indent}{declared}");
        } else {
            let declared = declared.strip_prefix("state ").unwrap_or(&declared);
            let _ = writeln!(text, "{indent}state {declared} {{");
            states_inside(chart, Some(number), initial, depth + 1, text);
            let _ = writeln!(text, "{indent}}}");
        }
        note(node, &id, &indent, text);
    }
}

/// The id of a state, which avoids Mermaid's reserved words.
fn mermaid_id(chart: &Chart, node: usize) -> String {
    let mut id = chart.tree()[node].name.clone();
    if WORDS.contains(&id.as_str()) {
        while chart.tree().iter().any(|node| node.name == id) {
            id.push('_');
        }
    }
    id
}

/// The sources to draw for a transition. Mermaid draws no arrow from a state to one inside it, so
/// the other inner states take its place.
fn drawn_from(chart: &Chart, from: usize, to: usize) -> Vec<usize> {
    let is_inside = |state: usize, outer: usize| {
        let mut around = std::iter::successors(Some(state), |state| chart.tree()[*state].parent);
        around.any(|around| around == outer)
    };
    if from == to || !is_inside(to, from) {
        return vec![from];
    }
    let leaves = chart.states().filter_map(|state| tree_index(chart, state));
    leaves.filter(|leaf| is_inside(*leaf, from) && !is_inside(*leaf, to)).collect()
}

/// The index in the tree of a state that agents can be in.
fn tree_index(chart: &Chart, state: StateId) -> Option<usize> {
    chart.tree().iter().position(|node| node.state == Some(state))
}

/// The outermost state around a state.
fn outermost(chart: &Chart, state: usize) -> Option<usize> {
    std::iter::successors(Some(state), |state| chart.tree()[*state].parent).last()
}

/// Writes the note of a state: its history and actions.
fn note(node: &StateNode, id: &str, indent: &str, text: &mut String) {
    let history = node.history.then(|| "history".to_owned());
    let entry = node.entry.iter().map(|action| format!("entry / {action}"));
    let exit = node.exit.iter().map(|action| format!("exit / {action}"));
    let lines: Vec<String> = history.into_iter().chain(entry).chain(exit).collect();
    match lines.as_slice() {
        [] => {}
        [line] => {
            let _ = writeln!(text, "{indent}note right of {id} : {}", escaped(line));
        }
        lines => {
            let _ = writeln!(text, "{indent}note right of {id}");
            for line in lines {
                let _ = writeln!(text, "{indent}    {}", escaped(line));
            }
            let _ = writeln!(text, "{indent}end note");
        }
    }
}

/// Characters that mean something to Mermaid, written as its entities.
fn escaped(label: &str) -> String {
    let mut text = String::new();
    for letter in label.chars() {
        match letter {
            '#' => text.push_str("#35;"),
            ';' => text.push_str("#59;"),
            ':' => text.push_str("#58;"),
            '<' => text.push_str("#lt;"),
            '>' => text.push_str("#gt;"),
            '"' => text.push_str("#quot;"),
            '\n' | '\r' => text.push(' '),
            other => text.push(other),
        }
    }
    text
}

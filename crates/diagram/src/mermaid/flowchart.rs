//! A workflow as a Mermaid flowchart.

use std::fmt::Write;

use crate::graph::{
    CHECKPOINT_LINE, DiagramEdge, DiagramGraph, DiagramNode, EdgeKind, NodeColours, NodeMark,
    NodeShape,
};
use crate::text::shorten;

/// The most characters of a line.
const CHARACTERS_MAX: usize = 48;

pub(crate) fn write(graph: &DiagramGraph<'_>) -> String {
    let mut text = format!("---\ntitle: {} {}\n---\nflowchart TD\n", graph.what, graph.name);
    let mut line = |content: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {content}");
    };
    line(&format!("accTitle: {} {}", graph.what, graph.name));
    for node in &graph.nodes {
        line(&node_line(node));
    }
    if let Some(entry) = graph.entry {
        line(&format!("start((start)) --> {}", id(&graph.nodes[entry])));
    }
    for edge in &graph.edges {
        line(&edge_line(graph, edge));
    }
    for node in &graph.nodes {
        let NodeColours { fill, line: stroke, text } = node.colours();
        let border = match (node.is_checkpoint, node.shape) {
            (true, _) => format!("stroke:{CHECKPOINT_LINE},stroke-width:3px"),
            (false, NodeShape::Human) => format!("stroke:{stroke},stroke-width:3px"),
            (false, _) => format!("stroke:{stroke}"),
        };
        line(&format!("style {} fill:{fill},{border},color:{text}", id(node)));
    }
    if graph.is_marked {
        line("subgraph legend");
        for mark in NodeMark::ALL {
            line(&format!("    legend_{0}[{0}]", mark.label()));
        }
        line("end");
        for mark in NodeMark::ALL {
            let NodeColours { fill, line: stroke, text } = mark.colours();
            let label = mark.label();
            line(&format!("style legend_{label} fill:{fill},stroke:{stroke},color:{text}"));
        }
    }
    text
}

/// The id of a node. The prefix avoids Mermaid's reserved words, such as `end`.
fn id(node: &DiagramNode<'_>) -> String {
    format!("n_{}", node.name)
}

fn node_line(node: &DiagramNode<'_>) -> String {
    let (open, close) = match node.shape {
        NodeShape::Tool | NodeShape::Script | NodeShape::Parallel | NodeShape::Map => ("[", "]"),
        NodeShape::Condition => ("{", "}"),
        NodeShape::Human => ("{{", "}}"),
        NodeShape::Workflow => ("[[", "]]"),
        _ => ("(", ")"),
    };
    let kind = node.kind();
    let mut lines = vec![node.name, &kind, &node.uses];
    if node.is_checkpoint {
        lines.push("checkpoint");
    }
    format!("{}{open}\"{}\"{close}", id(node), escaped_lines(lines))
}

fn edge_line(graph: &DiagramGraph<'_>, edge: &DiagramEdge) -> String {
    let (from, to) = (id(&graph.nodes[edge.from]), id(&graph.nodes[edge.to]));
    let arrow = match edge.kind {
        EdgeKind::Forward => "-->",
        EdgeKind::Branch => "==>",
        EdgeKind::Back | EdgeKind::Error => "-.->",
    };
    if edge.labels.is_empty() {
        return format!("{from} {arrow} {to}");
    }
    let labels = escaped_lines(edge.labels.iter().map(String::as_str));
    format!("{from} {arrow}|\"{labels}\"| {to}")
}

fn escaped_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let lines: Vec<String> =
        lines.into_iter().map(|line| escaped(&shorten(line, CHARACTERS_MAX))).collect();
    lines.join("<br/>")
}

/// Escapes a text for Mermaid, Markdown and HTML, which all interpret labels.
fn escaped(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut escaped = String::with_capacity(text.len());
    for (index, &c) in characters.iter().enumerate() {
        let is_inside_word = || {
            let before = index.checked_sub(1).and_then(|before| characters.get(before));
            let is_letter = |c: Option<&char>| c.is_some_and(char::is_ascii_alphanumeric);
            is_letter(before) && is_letter(characters.get(index + 1))
        };
        let is_harmless = match c {
            ' ' | ',' | '/' | ':' | '?' => true,
            '_' | '.' | '-' => is_inside_word(),
            c => c.is_alphanumeric() || !c.is_ascii(),
        };
        if is_harmless {
            escaped.push(c);
        } else {
            let _ = write!(escaped, "#{};", u32::from(c));
        }
    }
    escaped
}

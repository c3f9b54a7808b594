//! A workflow in DOT, the language of Graphviz.

use std::fmt::Write;

use super::graph::{
    CHECKPOINT_LINE, DiagramEdge, DiagramGraph, DiagramNode, EDGE_LINE, ERROR_LINE, EdgeKind,
    NodeColours, NodeMark, NodeShape,
};
use super::layout::frames::{FrameMember, around};
use super::text::shorten;

/// The most characters of a line.
const CHARACTERS_MAX: usize = 48;

pub(super) fn write(graph: &DiagramGraph<'_>) -> String {
    let mut text = format!("digraph \"{}\" {{\n", graph.name);
    let mut line = |content: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {content}");
    };
    let title = format!("{} {}", graph.what, graph.name);
    // Arrows may end at a frame.
    let has_frames = graph.nodes.iter().any(|node| node.shape == NodeShape::Frame);
    let compound = if has_frames { ", compound=true" } else { "" };
    line(&format!(
        "graph [rankdir=TB{compound}, label=\"{title}\", labelloc=t, fontname=\"Helvetica\", \
         fontcolor=\"{EDGE_LINE}\", bgcolor=transparent]"
    ));
    line("node [fontname=\"Helvetica\", fontsize=12]");
    line(&format!(
        "edge [fontname=\"Helvetica\", fontsize=10, color=\"{EDGE_LINE}\", \
         fontcolor=\"{EDGE_LINE}\"]"
    ));
    if let Some(entry) = graph.entry {
        // Node names have no brackets, so a name with one is not a node.
        line(&format!("\"(start)\" [shape=point, width=0.15, color=\"{EDGE_LINE}\"]"));
        line(&format!("\"(start)\" -> \"{}\"", graph.nodes[entry].name));
    }
    for node in node_lines(graph, None) {
        line(&node);
    }
    for edge in &graph.edges {
        line(&edge_line(graph, edge));
    }
    if graph.is_marked {
        line("subgraph cluster_legend {");
        line(&format!("    label=legend; color=\"{EDGE_LINE}\"; fontcolor=\"{EDGE_LINE}\""));
        for mark in NodeMark::ALL {
            let NodeColours { fill, line: border, text } = mark.colours();
            let label = mark.label();
            line(&format!(
                "    \"({label})\" [label={label}, shape=box, style=filled, fillcolor=\"{fill}\", \
                 color=\"{border}\", fontcolor=\"{text}\"]"
            ));
        }
        line("}");
    }
    text.push_str("}\n");
    text
}

/// The nodes inside of a frame. A frame is a cluster of Graphviz.
fn node_lines(graph: &DiagramGraph<'_>, parent: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        if node.parent != parent {
            continue;
        }
        if node.shape == NodeShape::Frame {
            let label = escaped_lines(std::iter::once(node.name).chain(notes(node)));
            let NodeColours { fill, line, text } = node.colours();
            lines.push(format!("subgraph cluster_{number} {{"));
            lines.push(format!(
                "    graph [label=\"{label}\", labeljust=l, style=\"filled,rounded\", \
                 fillcolor=\"{fill}\", color=\"{line}\", fontcolor=\"{text}\"]"
            ));
            let inside = node_lines(graph, Some(number));
            lines.extend(inside.into_iter().map(|line| format!("    {line}")));
            lines.push("}".to_owned());
        } else {
            lines.push(node_line(node));
        }
    }
    lines
}

fn notes<'a>(node: &'a DiagramNode<'_>) -> impl Iterator<Item = &'a str> {
    node.notes.iter().map(String::as_str)
}

fn node_line(node: &DiagramNode<'_>) -> String {
    let shape = match node.shape {
        NodeShape::Agent | NodeShape::State | NodeShape::Frame => {
            "shape=box, style=\"filled,rounded\""
        }
        NodeShape::Tool | NodeShape::Parallel => "shape=box, style=filled",
        NodeShape::Script => "shape=note, style=filled",
        NodeShape::Map => "shape=box3d, style=filled",
        NodeShape::Condition => "shape=diamond, style=filled",
        NodeShape::Human => "shape=box, style=filled, peripheries=2",
        NodeShape::Workflow => "shape=component, style=filled",
        NodeShape::Initial => "shape=point, width=0.15",
        NodeShape::History => "shape=circle, style=filled, margin=0, width=0.3",
    };
    let kind = node.kind();
    let mut lines = match node.shape {
        NodeShape::State | NodeShape::Frame => {
            std::iter::once(node.name).chain(notes(node)).collect()
        }
        NodeShape::Initial => Vec::new(),
        NodeShape::History => vec!["H"],
        _ => vec![node.name, &kind, &node.uses],
    };
    if node.is_checkpoint {
        lines.push("checkpoint");
    }
    let NodeColours { fill, line, text } = node.colours();
    let border = if node.is_checkpoint { CHECKPOINT_LINE } else { line };
    let width = if node.is_checkpoint { ", penwidth=2" } else { "" };
    format!(
        "\"{}\" [label=\"{}\", {shape}, fillcolor=\"{fill}\", color=\"{border}\"{width}, \
         fontcolor=\"{text}\"]",
        node.name,
        escaped_lines(lines)
    )
}

fn edge_line(graph: &DiagramGraph<'_>, edge: &DiagramEdge) -> String {
    let mut attributes = Vec::new();
    if !edge.labels.is_empty() {
        // The padding keeps labels off the lines that they belong to.
        let labels = escaped_lines(edge.labels.iter().map(String::as_str));
        attributes.push(format!("label=\" {labels} \""));
    }
    match edge.kind {
        EdgeKind::Forward => {}
        EdgeKind::Branch => attributes.push("style=bold".to_owned()),
        EdgeKind::Back => attributes.push("style=dashed".to_owned()),
        EdgeKind::Error => {
            attributes.push("style=dashed".to_owned());
            attributes.push(format!("color=\"{ERROR_LINE}\""));
        }
    }
    let nesting: Vec<FrameMember> =
        graph.nodes.iter().map(|node| FrameMember { parent: node.parent, header: None }).collect();
    let is_inside = |node: usize, frame: usize| around(&nesting, node).any(|outer| outer == frame);
    let is_frame = |node: usize| graph.nodes[node].shape == NodeShape::Frame;
    // Graphviz cuts an arrow off at a frame only if it comes from outside.
    if is_frame(edge.from) && !is_inside(edge.to, edge.from) {
        attributes.push(format!("ltail=cluster_{}", edge.from));
    }
    if is_frame(edge.to) && !is_inside(edge.from, edge.to) {
        attributes.push(format!("lhead=cluster_{}", edge.to));
    }
    let attributes = match attributes.as_slice() {
        [] => String::new(),
        some => format!(" [{}]", some.join(", ")),
    };
    let (from, to) = (end(graph, edge.from), end(graph, edge.to));
    format!("\"{from}\" -> \"{to}\"{attributes}")
}

/// The node that an arrow ends at. Graphviz knows no arrows to frames, so that it is the mark inside.
fn end<'a>(graph: &DiagramGraph<'a>, node: usize) -> &'a str {
    let mark = |inside: &&DiagramNode<'_>| {
        inside.parent == Some(node)
            && matches!(inside.shape, NodeShape::Initial | NodeShape::History)
    };
    graph.nodes.iter().find(mark).unwrap_or(&graph.nodes[node]).name
}

fn escaped_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let lines: Vec<String> =
        lines.into_iter().map(|line| escaped(&shorten(line, CHARACTERS_MAX))).collect();
    lines.join("\\n")
}

/// A text in a quoted string. Graphviz knows escapes in labels, and names of characters as in HTML.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('&', "&amp;")
}

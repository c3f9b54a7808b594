//! A workflow in DOT, the language of Graphviz.

use std::fmt::Write;

use super::text::shorten;
use super::{
    CHECKPOINT_LINE, Colours, EDGE_LINE, EdgeKind, NodeMark, Picture, PictureEdge, PictureNode,
    Shape,
};

/// The most characters of a line.
const CHARACTERS_MAX: usize = 48;

pub(super) fn write(picture: &Picture<'_>) -> String {
    let mut text = format!("digraph \"{}\" {{\n", picture.name);
    let mut line = |content: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {content}");
    };
    let title = format!("{} {}", picture.what, picture.name);
    line(&format!(
        "graph [rankdir=TB, label=\"{title}\", labelloc=t, fontname=\"Helvetica\", \
         fontcolor=\"{EDGE_LINE}\", bgcolor=transparent]"
    ));
    line("node [fontname=\"Helvetica\", fontsize=12]");
    line(&format!(
        "edge [fontname=\"Helvetica\", fontsize=10, color=\"{EDGE_LINE}\", \
         fontcolor=\"{EDGE_LINE}\"]"
    ));
    // Names of nodes hold no brackets, so that what has one is no node.
    line(&format!("\"(start)\" [shape=point, width=0.15, color=\"{EDGE_LINE}\"]"));
    for node in &picture.nodes {
        line(&node_line(node));
    }
    line(&format!("\"(start)\" -> \"{}\"", picture.nodes[picture.entry].name));
    for edge in &picture.edges {
        line(&edge_line(picture, edge));
    }
    if picture.is_marked {
        line("subgraph cluster_legend {");
        line(&format!("    label=legend; color=\"{EDGE_LINE}\"; fontcolor=\"{EDGE_LINE}\""));
        for mark in NodeMark::ALL {
            let Colours { fill, line: border, text } = mark.colours();
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

fn node_line(node: &PictureNode<'_>) -> String {
    let shape = match node.shape {
        Shape::Agent | Shape::State => "shape=box, style=\"filled,rounded\"",
        Shape::Tool | Shape::Parallel => "shape=box, style=filled",
        Shape::Condition => "shape=diamond, style=filled",
        Shape::Human => "shape=box, style=filled, peripheries=2",
        Shape::Workflow => "shape=component, style=filled",
    };
    let kind = node.kind();
    let mut lines = match node.shape {
        Shape::State if node.uses.is_empty() => vec![node.name],
        Shape::State => vec![node.name, &node.uses],
        Shape::Agent
        | Shape::Tool
        | Shape::Condition
        | Shape::Human
        | Shape::Parallel
        | Shape::Workflow => vec![node.name, &kind, &node.uses],
    };
    if node.is_checkpoint {
        lines.push("checkpoint");
    }
    let Colours { fill, line, text } = node.colours();
    let border = if node.is_checkpoint { CHECKPOINT_LINE } else { line };
    let width = if node.is_checkpoint { ", penwidth=2" } else { "" };
    format!(
        "\"{}\" [label=\"{}\", {shape}, fillcolor=\"{fill}\", color=\"{border}\"{width}, \
         fontcolor=\"{text}\"]",
        node.name,
        escaped_lines(lines)
    )
}

fn edge_line(picture: &Picture<'_>, edge: &PictureEdge) -> String {
    let mut attributes = Vec::new();
    if !edge.labels.is_empty() {
        // The padding keeps labels off the lines that they belong to.
        let labels = escaped_lines(edge.labels.iter().map(String::as_str));
        attributes.push(format!("label=\" {labels} \""));
    }
    match edge.kind {
        EdgeKind::Way => {}
        EdgeKind::Branch => attributes.push("style=bold".to_owned()),
        EdgeKind::Back => attributes.push("style=dashed".to_owned()),
    }
    let attributes = match attributes.as_slice() {
        [] => String::new(),
        some => format!(" [{}]", some.join(", ")),
    };
    let name = |node: usize| picture.nodes[node].name;
    format!("\"{}\" -> \"{}\"{attributes}", name(edge.from), name(edge.to))
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

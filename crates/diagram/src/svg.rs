//! SVG output. It has no style sheet, script or link, so that it looks the same everywhere and
//! pages allow it.

use std::fmt::Write;

use super::graph::{
    CHECKPOINT_LINE, DARK_TEXT, DiagramEdge, DiagramGraph, DiagramNode, EDGE_LINE, ERROR_LINE,
    EdgeKind, NodeColours, NodeMark, NodeShape,
};
use super::layout::frames::{FrameMember, lay_out_frames};
use super::layout::{EdgeRoute, GraphLayout, LayoutEdge, LayoutRect, NodeBox, NodeOutline};
use super::text::{number, shorten, width};

const MARGIN: f64 = 24.0;
/// The space above the nodes, for the title and for the arrow to the entry.
const HEAD: f64 = 64.0;
const LEGEND_HEIGHT: f64 = 48.0;
const LEGEND_WIDTH: f64 = 500.0;
const ARROW: f64 = 8.0;
/// The space in a frame above its inside, for its name.
const FRAME_HEAD: f64 = 36.0;

const NAME_SIZE: f64 = 14.0;
const TEXT_SIZE: f64 = 12.0;
const SMALL_SIZE: f64 = 11.0;
const LABEL_LINE: f64 = 14.0;

/// The most characters of a node's name, of what it uses, and of a line of a label.
const NAME_MAX: usize = 36;
const USES_MAX: usize = 36;
const USES_IN_DIAMOND_MAX: usize = 24;
const LABEL_MAX: usize = 36;

pub(super) fn write(graph: &DiagramGraph<'_>) -> String {
    let mut boxes: Vec<NodeBox> =
        (0..graph.nodes.len()).map(|node| node_box(graph, node)).collect();
    let layout_edges: Vec<LayoutEdge> = graph.edges.iter().map(layout_edge).collect();
    let nesting: Vec<FrameMember> = graph.nodes.iter().map(frame_member).collect();
    let layout = lay_out_frames(&mut boxes, &nesting, &layout_edges, &graph.wishes());
    let mut canvas = SvgCanvas::new(graph, &layout);
    canvas.frames(graph, &layout, None);
    for (edge, route) in graph.edges.iter().zip(&layout.routes) {
        if let Some(route) = route {
            canvas.edge(edge, route);
        }
    }
    if let Some(entry) = graph.entry {
        canvas.start(&layout.nodes[entry], boxes[entry].half_height_at(0.0));
    }
    for (number, (node, area)) in graph.nodes.iter().zip(&layout.nodes).enumerate() {
        canvas.loops(graph, number, *area, &boxes[number]);
        canvas.node(node, *area);
    }
    // Labels are above everything else, and cover only their own edge.
    for (edge, route) in graph.edges.iter().zip(&layout.routes) {
        if let Some(label) = route.as_ref().and_then(|route| route.label) {
            canvas.label(edge, label);
        }
    }
    canvas.text.push_str("</g>\n");
    if graph.is_marked {
        canvas.legend(HEAD + layout.height);
    }
    canvas.text.push_str("</svg>\n");
    canvas.text
}

impl DiagramGraph<'_> {
    /// The nodes after a parallel node are best placed below its branches.
    fn wishes(&self) -> Vec<(usize, usize)> {
        let branches = self.edges.iter().filter(|edge| edge.kind == EdgeKind::Branch);
        let after = |parallel: usize| {
            let from = move |edge: &&DiagramEdge| edge.from == parallel;
            self.edges.iter().filter(from).filter(|edge| edge.kind == EdgeKind::Forward)
        };
        branches.flat_map(|edge| after(edge.from).map(|next| (edge.to, next.to))).collect()
    }
}

/// The lines in a node with their size and the distance of their base from its middle.
fn lines(node: &DiagramNode<'_>) -> Vec<(String, f64, f64)> {
    let name = shorten(node.name, NAME_MAX);
    let uses_max = match node.shape {
        NodeShape::Condition => USES_IN_DIAMOND_MAX,
        _ => USES_MAX,
    };
    let uses = shorten(&node.uses, uses_max);
    match node.shape {
        NodeShape::State | NodeShape::Frame => {
            let above = number(node.notes.len()) * LABEL_LINE / 2.0;
            let mut lines = vec![(name, NAME_SIZE, 5.0 - above)];
            for (index, note) in node.notes.iter().enumerate() {
                lines.push((note.clone(), SMALL_SIZE, 19.0 - above + number(index) * LABEL_LINE));
            }
            lines
        }
        NodeShape::Initial => Vec::new(),
        NodeShape::History => vec![("H".to_owned(), TEXT_SIZE, 4.0)],
        NodeShape::Parallel => {
            let about = format!("{}, {uses}", node.kind());
            vec![(name, NAME_SIZE, -2.0), (about, SMALL_SIZE, 13.0)]
        }
        _ => {
            vec![(node.kind(), SMALL_SIZE, -15.0), (name, NAME_SIZE, 4.0), (uses, TEXT_SIZE, 21.0)]
        }
    }
}

fn node_box(graph: &DiagramGraph<'_>, number: usize) -> NodeBox {
    let node = &graph.nodes[number];
    let lines = lines(node);
    let widths = lines.iter().map(|(text, size, _)| width(text, *size));
    let widest = widths.fold(0.0, f64::max);
    let (width, height, outline) = match node.shape {
        NodeShape::Agent
        | NodeShape::Tool
        | NodeShape::Script
        | NodeShape::Human
        | NodeShape::Map
        | NodeShape::Workflow => (widest + 36.0, 68.0, NodeOutline::Box),
        // The layout determines the size of a frame.
        NodeShape::State | NodeShape::Frame => {
            (widest + 36.0, 44.0 + self::number(node.notes.len()) * LABEL_LINE, NodeOutline::Box)
        }
        NodeShape::Initial => (12.0, 12.0, NodeOutline::Box),
        NodeShape::History => (22.0, 22.0, NodeOutline::Box),
        NodeShape::Parallel => (widest.max(150.0) + 48.0, 44.0, NodeOutline::Box),
        NodeShape::Condition => {
            // A diamond is narrower away from its centre.
            let half_height = 58.0;
            let needed = lines.iter().map(|(text, size, base)| {
                let farthest = (base - size * 0.8).abs().max((base + size * 0.2).abs());
                self::width(text, *size) / (1.0 - farthest / half_height)
            });
            (needed.fold(0.0, f64::max) + 12.0, 2.0 * half_height, NodeOutline::Diamond)
        }
    };
    let loops = graph.edges.iter().filter(|edge| edge.from == number && edge.to == number);
    let beside = loops.map(|edge| 34.0 + label_size(edge).map_or(0.0, |(width, _)| width));
    // The mark of a checkpoint is in a corner, clear of the arrow that comes from above.
    let width_min = match node.shape {
        NodeShape::Initial | NodeShape::History => 0.0,
        _ => {
            if node.is_checkpoint {
                150.0
            } else {
                120.0
            }
        }
    };
    NodeBox {
        // Half of an even number is a whole one.
        width: (f64::max(width, width_min) / 2.0).ceil() * 2.0,
        height,
        outline,
        beside: beside.fold(0.0, f64::max).ceil(),
    }
}

fn layout_edge(edge: &DiagramEdge) -> LayoutEdge {
    LayoutEdge {
        from: edge.from,
        to: edge.to,
        leads_back: edge.kind == EdgeKind::Back,
        label: label_size(edge),
        from_at: None,
        to_at: None,
    }
}

/// The nesting of a node, with the size of a frame's header.
fn frame_member(node: &DiagramNode<'_>) -> FrameMember {
    let header = (node.shape == NodeShape::Frame).then(|| {
        let widths = lines(node).into_iter().map(|(text, size, _)| width(&text, size));
        let height = FRAME_HEAD + number(node.notes.len()) * LABEL_LINE;
        (widths.fold(0.0, f64::max).ceil(), height)
    });
    FrameMember { parent: node.parent, header }
}

fn label_size(edge: &DiagramEdge) -> Option<(f64, f64)> {
    let widths = edge.labels.iter().map(|line| width(&shorten(line, LABEL_MAX), SMALL_SIZE));
    let widest = widths.fold(0.0, f64::max);
    let height = number(edge.labels.len()) * LABEL_LINE + 4.0;
    (!edge.labels.is_empty()).then(|| ((widest / 2.0).ceil() * 2.0 + 14.0, height))
}

struct SvgCanvas {
    text: String,
}

impl SvgCanvas {
    fn new(graph: &DiagramGraph<'_>, layout: &GraphLayout) -> Self {
        let title = format!("{} {}", graph.what, graph.name);
        let legend = if graph.is_marked { LEGEND_HEIGHT } else { 0.0 };
        let title_width =
            width(&title, NAME_SIZE).max(if graph.is_marked { LEGEND_WIDTH } else { 0.0 });
        let page_width = layout.width.max(title_width.ceil()) + 2.0 * MARGIN;
        let page_height = HEAD + layout.height + legend + MARGIN;
        // A diagram that is narrower than its title is centred.
        let left = ((page_width - layout.width) / 2.0).round();
        let mut canvas = Self { text: String::new() };
        canvas.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{page_width}\" \
             height=\"{page_height}\" viewBox=\"0 0 {page_width} {page_height}\" role=\"img\" \
             aria-labelledby=\"title desc\" font-family=\"system-ui, 'Segoe UI', Roboto, \
             'DejaVu Sans', sans-serif\" font-size=\"{TEXT_SIZE}\" text-anchor=\"middle\">"
        ));
        canvas.line(format_args!("<title id=\"title\">{title}</title>"));
        canvas.line(format_args!("<desc id=\"desc\">{}</desc>", escaped(&in_words(graph))));
        canvas.line(format_args!(
            "<text x=\"{MARGIN}\" y=\"28\" font-size=\"{NAME_SIZE}\" fill=\"{EDGE_LINE}\" \
             text-anchor=\"start\">{title}</text>"
        ));
        canvas.line(format_args!("<g transform=\"translate({left} {HEAD})\">"));
        canvas
    }

    fn line(&mut self, content: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{content}");
    }

    fn edge(&mut self, edge: &DiagramEdge, route: &EdgeRoute) {
        let (dashes, stroke) = match edge.kind {
            EdgeKind::Forward => ("", 1.5),
            EdgeKind::Branch => ("", 2.5),
            EdgeKind::Back => (" stroke-dasharray=\"6 4\"", 1.5),
            EdgeKind::Error => (" stroke-dasharray=\"3 3\"", 1.5),
        };
        let colour = if edge.kind == EdgeKind::Error { ERROR_LINE } else { EDGE_LINE };
        let Some(&(x, tip)) = route.points.last() else { return };
        let goes_up = edge.kind == EdgeKind::Back;
        let base = if goes_up { tip + ARROW } else { tip - ARROW };
        let mut path = String::new();
        let mut before: Option<(f64, f64)> = None;
        let last = route.points.len() - 1;
        for (index, &(x, y)) in route.points.iter().enumerate() {
            // The line ends where the head of the arrow begins.
            let y = if index == last { base } else { y };
            let _ = match before {
                None => write!(path, "M{x} {y}"),
                Some((x_before, _)) if (x_before - x).abs() < 0.5 => write!(path, "V{y}"),
                Some((x_before, y_before)) => {
                    let middle = f64::midpoint(y_before, y);
                    write!(path, "C{x_before} {middle} {x} {middle} {x} {y}")
                }
            };
            before = Some((x, y));
        }
        self.line(format_args!(
            "<path class=\"edge\" d=\"{path}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{stroke}\"{dashes}/>"
        ));
        self.arrow_head(x, tip, base);
    }

    fn arrow_head(&mut self, x: f64, tip: f64, base: f64) {
        let (left, right) = (x - 4.5, x + 4.5);
        self.line(format_args!(
            "<path d=\"M{x} {tip}L{left} {base}H{right}Z\" fill=\"{EDGE_LINE}\"/>"
        ));
    }

    /// A dot with an arrow to the node that runs first. Nothing else leads there from above.
    fn start(&mut self, entry: &LayoutRect, half_height: f64) {
        let (x, tip) = (entry.x, entry.y - half_height);
        let (dot, base) = (tip - 26.0, tip - ARROW);
        self.line(format_args!(
            "<circle cx=\"{x}\" cy=\"{dot}\" r=\"6\" fill=\"{EDGE_LINE}\"><title>start</title>\
             </circle>"
        ));
        self.line(format_args!(
            "<path d=\"M{x} {dot}V{base}\" stroke=\"{EDGE_LINE}\" stroke-width=\"1.5\"/>"
        ));
        self.arrow_head(x, tip, base);
    }

    /// Edges from a node to itself, one around the other at its right side.
    fn loops(
        &mut self,
        graph: &DiagramGraph<'_>,
        node: usize,
        area: LayoutRect,
        node_box: &NodeBox,
    ) {
        let loops = graph.edges.iter().filter(|edge| edge.from == node && edge.to == node);
        for (index, edge) in loops.enumerate() {
            let reach = 10.0 + 5.0 * number(index).min(3.0);
            let inset = match node_box.outline {
                NodeOutline::Box => 0.0,
                NodeOutline::Diamond => (area.width * reach / area.height).round(),
            };
            let right = area.x + area.width / 2.0;
            let side = right - inset;
            let (top, bottom, far, tip) =
                (area.y - reach, area.y + reach, right + 34.0, side + ARROW);
            self.line(format_args!(
                "<path class=\"edge\" d=\"M{side} {top}C{far} {top} {far} {bottom} {tip} {bottom}\" \
                 fill=\"none\" stroke=\"{EDGE_LINE}\" stroke-width=\"1.5\" \
                 stroke-dasharray=\"6 4\"/>"
            ));
            let (above, below) = (bottom - 4.5, bottom + 4.5);
            self.line(format_args!(
                "<path d=\"M{side} {bottom}L{tip} {above}V{below}Z\" fill=\"{EDGE_LINE}\"/>"
            ));
            if let Some((width, height)) = label_size(edge) {
                let y = area.y + (number(index) * (height + 2.0));
                self.label(edge, LayoutRect { x: right + 28.0 + width / 2.0, y, width, height });
            }
        }
    }

    fn label(&mut self, edge: &DiagramEdge, area: LayoutRect) {
        let (left, top) = (area.x - area.width / 2.0, area.y - area.height / 2.0);
        let (width, height, x) = (area.width, area.height, area.x);
        self.line(format_args!(
            "<g class=\"label\"><title>{}</title><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" \
             height=\"{height}\" rx=\"6\" fill=\"#eaeef2\"/>",
            escaped(&edge.labels.join(", "))
        ));
        for (index, label) in edge.labels.iter().enumerate() {
            let y = top + 13.0 + number(index) * LABEL_LINE;
            let label = escaped(&shorten(label, LABEL_MAX));
            self.line(format_args!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{SMALL_SIZE}\" fill=\"{DARK_TEXT}\">{label}\
                 </text>"
            ));
        }
        self.text.push_str("</g>\n");
    }

    /// Draws frames, outer before inner ones. Edges are drawn above them.
    fn frames(&mut self, graph: &DiagramGraph<'_>, layout: &GraphLayout, parent: Option<usize>) {
        for (number, node) in graph.nodes.iter().enumerate() {
            if node.shape != NodeShape::Frame || node.parent != parent {
                continue;
            }
            let LayoutRect { x, y, width, height } = layout.nodes[number];
            let (left, top) = (x - width / 2.0, y - height / 2.0);
            let NodeColours { fill, line, .. } = node.colours();
            self.line(format_args!(
                "<rect class=\"frame\" x=\"{left}\" y=\"{top}\" width=\"{width}\" \
                 height=\"{height}\" rx=\"16\" fill=\"{fill}\" stroke=\"{line}\" \
                 stroke-width=\"1.5\"/>"
            ));
            self.frames(graph, layout, Some(number));
        }
    }

    /// Writes the header of a frame, above all edges in its upper left corner.
    fn frame_head(&mut self, node: &DiagramNode<'_>, area: LayoutRect) {
        let (left, top) = (area.x - area.width / 2.0 + 14.0, area.y - area.height / 2.0);
        let NodeColours { fill, text, .. } = node.colours();
        let lines = lines(node);
        let widths = lines.iter().map(|(text, size, _)| width(text, *size));
        let (wide, x) = (widths.fold(0.0, f64::max).ceil() + 8.0, left + 4.0);
        let (upper, high) = (top + 8.0, 20.0 + number(node.notes.len()) * LABEL_LINE);
        self.line(format_args!(
            "<g class=\"node\" fill=\"{text}\" text-anchor=\"start\"><rect x=\"{left}\" \
             y=\"{upper}\" width=\"{wide}\" height=\"{high}\" fill=\"{fill}\"/>"
        ));
        for (index, (content, size, _)) in lines.into_iter().enumerate() {
            let y = top + 23.0 + number(index) * LABEL_LINE;
            let weight = if size > TEXT_SIZE { " font-weight=\"600\"" } else { "" };
            let content = escaped(&content);
            self.line(format_args!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{weight}>{content}</text>"
            ));
        }
        self.line(format_args!("</g>"));
    }

    fn node(&mut self, node: &DiagramNode<'_>, area: LayoutRect) {
        if node.shape == NodeShape::Frame {
            self.frame_head(node, area);
            return;
        }
        let about = if node.notes.is_empty() { node.uses.clone() } else { node.notes.join(" ") };
        let NodeColours { fill, line, text } = node.colours();
        let checkpoint = if node.is_checkpoint { ", a checkpoint" } else { "" };
        self.line(format_args!(
            "<g class=\"node\"><title>{} ({}{checkpoint}): {}</title>",
            node.name,
            node.kind(),
            escaped(&about)
        ));
        let stroke = if node.mark.is_some() { 2.5 } else { 1.5 };
        self.line(format_args!("<g fill=\"{fill}\" stroke=\"{line}\" stroke-width=\"{stroke}\">"));
        self.outline(node.shape, area);
        self.line(format_args!("</g>\n<g fill=\"{text}\">"));
        for (content, size, base) in lines(node) {
            let (x, y) = (area.x, area.y + base);
            let weight = if size > TEXT_SIZE { " font-weight=\"600\"" } else { "" };
            let content = escaped(&content);
            self.line(format_args!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{weight}>{content}</text>"
            ));
        }
        self.line(format_args!("</g>"));
        if node.is_checkpoint {
            let (x, y) = (area.x + area.width / 2.0 - 20.0, area.y - area.height / 2.0);
            let (left, top, base) = (x - 36.0, y - 8.0, y + 4.0);
            self.line(format_args!(
                "<rect x=\"{left}\" y=\"{top}\" width=\"72\" height=\"16\" rx=\"8\" \
                 fill=\"{CHECKPOINT_LINE}\"/>\n\
                 <text x=\"{x}\" y=\"{base}\" font-size=\"{SMALL_SIZE}\" fill=\"#ffffff\">\
                 checkpoint</text>"
            ));
        }
        self.line(format_args!("</g>"));
    }

    fn outline(&mut self, shape: NodeShape, area: LayoutRect) {
        let LayoutRect { x, y, width, height } = area;
        let (left, top) = (x - width / 2.0, y - height / 2.0);
        let (right, bottom) = (left + width, top + height);
        let rect = |inset: f64, radius: f64| {
            format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{radius}\"/>",
                left + inset,
                top + inset,
                width - 2.0 * inset,
                height - 2.0 * inset
            )
        };
        let drawn = match shape {
            NodeShape::Agent | NodeShape::State | NodeShape::Frame => rect(0.0, 16.0),
            NodeShape::Initial | NodeShape::History => rect(0.0, height / 2.0),
            NodeShape::Tool | NodeShape::Script | NodeShape::Parallel => rect(0.0, 2.0),
            NodeShape::Human => rect(0.0, 6.0) + &rect(4.0, 3.0),
            // A stack of three boxes.
            NodeShape::Map => [8.0, 4.0, 0.0]
                .map(|shift| {
                    format!(
                        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/>",
                        left + shift,
                        top + 8.0 - shift,
                        width - 8.0,
                        height - 8.0
                    )
                })
                .concat(),
            NodeShape::Condition => {
                format!("<path d=\"M{x} {top}L{right} {y}L{x} {bottom}L{left} {y}Z\"/>")
            }
            NodeShape::Workflow => {
                let (inner_left, inner_right) = (left + 8.0, right - 8.0);
                rect(0.0, 2.0)
                    + &format!(
                        "<path d=\"M{inner_left} {top}V{bottom}M{inner_right} {top}V{bottom}\"/>"
                    )
            }
        };
        self.line(format_args!("{drawn}"));
    }

    fn legend(&mut self, below: f64) {
        let top = below + LEGEND_HEIGHT - 28.0;
        self.line(format_args!("<g class=\"legend\">"));
        for (index, mark) in NodeMark::ALL.into_iter().enumerate() {
            let NodeColours { fill, line, text } = mark.colours();
            let left = MARGIN + number(index) * 100.0;
            let (x, y, label) = (left + 45.0, top + 16.0, mark.label());
            self.line(format_args!(
                "<rect x=\"{left}\" y=\"{top}\" width=\"90\" height=\"24\" rx=\"12\" \
                 fill=\"{fill}\" stroke=\"{line}\" stroke-width=\"2.5\"/>\n\
                 <text x=\"{x}\" y=\"{y}\" fill=\"{text}\">{label}</text>"
            ));
        }
        self.line(format_args!("</g>"));
    }
}

/// The diagram in words, for readers who cannot see it.
fn in_words(graph: &DiagramGraph<'_>) -> String {
    let name = |node: usize| graph.nodes[node].name;
    let begins = graph.entry.map(|entry| format!("Begins with {}.", name(entry)));
    let mut words = begins.unwrap_or_default();
    for edge in &graph.edges {
        let verb = match edge.kind {
            EdgeKind::Forward => "leads to",
            EdgeKind::Branch => "runs",
            EdgeKind::Back => "leads back to",
            EdgeKind::Error => "leads after an error to",
        };
        let _ = write!(words, " {} {verb} {}", name(edge.from), name(edge.to));
        if !edge.labels.is_empty() {
            let _ = write!(words, " ({})", edge.labels.join(", "));
        }
        words.push('.');
    }
    words.trim_start().to_owned()
}

/// A text in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

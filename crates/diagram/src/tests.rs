//! Snapshots and invariants of diagrams.

use std::fmt::Write;

use polity_definition::WorkflowDefinition;
use proptest::prelude::*;

use super::layout::{LayoutEdge, LayoutRect, NodeBox, NodeOutline, lay_out, ranks};
use super::text::{one_line, shorten};
use super::{GraphFormat, NodeMark, NodeMarks, draw_workflow};

const FORMATS: [GraphFormat; 3] = [GraphFormat::Svg, GraphFormat::Mermaid, GraphFormat::Dot];

/// Every type of node, a loop, a mapping, a checkpoint, and texts with special characters.
const NEWSROOM: &str = r#"
name: newsroom
entry_point: gather
checkpoints: [publish]
nodes:
  gather: {type: parallel, branches: [search, ask], join: any}
  search: {type: tool, tool: web/search}
  ask: {type: agent, agent: expert}
  draft: {type: agent, agent: writer}
  long_enough: {type: condition, expression: 'size(last) > 20 && last != "<none>"'}
  review: {type: human, question: "Is `{{ last }}` [good] & short enough to be #1 on the front page?"}
  publish: {type: workflow, workflow: publication}
  end: {type: tool, tool: web/archive}
edges:
  - {from: gather, to: draft}
  - {from: draft, to: long_enough}
  - {from: long_enough, to: {"true": review, "false": draft}, max_loops: 3}
  - {from: review, to: {approve: publish, "": end, default: end}}
  - {from: publish, to: end, condition: "metadata.keep == \"yes\""}
  - {from: end, to: end, condition: "last == ''", max_loops: 1}
"#;

const CHAIN: &str = "
name: chain
entry_point: first
nodes:
  first: {type: agent, agent: writer}
  second: {type: tool, tool: web/search}
edges: [{from: first, to: second}]
";

fn workflow(text: &str) -> WorkflowDefinition {
    WorkflowDefinition::from_canonical(text).unwrap()
}

fn drawn(workflow: &WorkflowDefinition, format: GraphFormat) -> String {
    draw_workflow(workflow, format, &NodeMarks::new())
}

#[test]
fn a_newsroom_as_svg() {
    insta::assert_snapshot!(drawn(&workflow(NEWSROOM), GraphFormat::Svg));
}

#[test]
fn a_newsroom_as_mermaid() {
    insta::assert_snapshot!(drawn(&workflow(NEWSROOM), GraphFormat::Mermaid));
}

#[test]
fn a_newsroom_as_dot() {
    insta::assert_snapshot!(drawn(&workflow(NEWSROOM), GraphFormat::Dot));
}

#[test]
fn marks_have_colours_words_and_a_legend() {
    let chain = workflow(CHAIN);
    let marks = NodeMarks::from([
        ("first".parse().unwrap(), NodeMark::Done),
        ("second".parse().unwrap(), NodeMark::Waiting),
    ]);
    let texts = FORMATS.map(|format| draw_workflow(&chain, format, &marks));
    insta::assert_snapshot!(texts.join("\n"));
    for (format, text) in FORMATS.into_iter().zip(texts) {
        for mark in NodeMark::ALL {
            assert!(text.contains(mark.label()) && text.contains(mark.colours().fill), "{text}");
        }
        assert!(text.contains("legend"), "{text}");
        assert!(!drawn(&chain, format).contains("legend"));
    }
}

#[test]
fn draws_error_edges_and_compensations_dashed() {
    let trip = workflow(
        "{name: trip, entry_point: book, on_cancel: tell, nodes: {\
           book: {type: tool, tool: trips/book, compensate: {type: tool, tool: trips/undo}}, \
           pay: {type: agent, agent: payer, on_error: repair}, \
           repair: {type: agent, agent: helper}, tell: {type: agent, agent: teller}}, \
         edges: [{from: book, to: pay, condition: metadata.good, on_error: repair}]}",
    );
    let text = drawn(&trip, GraphFormat::Mermaid);
    for edge in [
        "n_book -.->|\"on error\"| n_repair",
        "n_pay -.->|\"on error\"| n_repair",
        "n_book -.->|\"compensate\"| n_compensate_book",
    ] {
        assert!(text.contains(edge), "{text}");
    }
    assert!(text.contains("on cancel: teller"), "{text}");
    assert!(drawn(&trip, GraphFormat::Dot).contains("style=dashed, color=\"#cf222e\""), "{text}");
    let svg = drawn(&trip, GraphFormat::Svg);
    assert!(svg.contains("book leads after an error to compensate_book (compensate)."), "{svg}");
}

#[test]
fn draws_patterns_expanded() {
    let patterns = workflow(
        "{name: p, patterns: [react, reflection], rounds: 1, \
         agents: {agent: finder, generator: writer, critic: editor}}",
    );
    for format in FORMATS {
        let text = drawn(&patterns, format);
        for node in ["react", "generate", "critique_1", "refine_1", "result"] {
            assert!(text.contains(node), "{text}");
        }
    }
    insta::assert_snapshot!(drawn(&patterns, GraphFormat::Mermaid));
}

#[test]
fn texts_have_no_control_characters() {
    assert_eq!(one_line(" a\n  b\u{1b}[1m\u{202e}\u{0} "), "a b\u{fffd}[1m\u{fffd}\u{fffd}");
    assert_eq!(shorten("good morning", 6), "good…");
    assert_eq!(shorten("ümläut", 6), "ümläut");
}

/// A workflow with this many agents. Edges that lead back have a loop limit, and a chain makes
/// every node reachable.
fn random_workflow(count: usize, extra: &[(usize, usize)]) -> (String, usize) {
    let mut text = String::from("name: random\nentry_point: n0\nnodes:\n");
    for node in 0..count {
        writeln!(text, "  n{node}: {{type: agent, agent: writer}}").unwrap();
    }
    text.push_str("edges:\n");
    // A tree: each node is a child of an earlier one.
    for node in 1..count {
        writeln!(text, "  - {{from: n{}, to: n{node}}}", node / 2).unwrap();
    }
    for (from, to) in extra {
        let (from, to) = (from % count, to % count);
        writeln!(text, "  - {{from: n{from}, to: n{to}, max_loops: 2}}").unwrap();
    }
    (text, count - 1 + extra.len())
}

fn overlap(a: &LayoutRect, b: &LayoutRect) -> bool {
    (a.x - b.x).abs() * 2.0 < a.width + b.width && (a.y - b.y).abs() * 2.0 < a.height + b.height
}

/// True if a point is strictly inside an area.
fn holds(area: &LayoutRect, (x, y): (f64, f64)) -> bool {
    (x - area.x).abs() * 2.0 < area.width - 1.0 && (y - area.y).abs() * 2.0 < area.height - 1.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn draws_every_node_and_edge_once_deterministically(
        count in 1_usize..40,
        extra in proptest::collection::vec((0_usize..40, 0_usize..40), 0..20),
    ) {
        let (text, edge_count) = random_workflow(count, &extra);
        let workflow = workflow(&text);
        for format in FORMATS {
            prop_assert_eq!(drawn(&workflow, format), drawn(&workflow, format));
        }
        let svg = drawn(&workflow, GraphFormat::Svg);
        prop_assert_eq!(svg.matches("class=\"edge\"").count(), edge_count);
        prop_assert_eq!(svg.matches("class=\"node\"").count(), count);
        let mermaid = drawn(&workflow, GraphFormat::Mermaid);
        // One more arrow leads from the start to the entry.
        let arrows = mermaid.matches("-->").count() + mermaid.matches("-.->").count();
        prop_assert_eq!(arrows, edge_count + 1);
        let dot = drawn(&workflow, GraphFormat::Dot);
        prop_assert_eq!(dot.matches(" -> ").count(), edge_count + 1);
        for node in 0..count {
            prop_assert_eq!(svg.matches(&format!("<title>n{node} (agent)")).count(), 1);
            prop_assert_eq!(mermaid.matches(&format!("n_n{node}(\"")).count(), 1);
            prop_assert_eq!(dot.matches(&format!("\"n{node}\" [label=\"n{node}\\n")).count(), 1);
        }
    }

    #[test]
    fn nothing_overlaps_and_no_edge_runs_through_a_node(
        sizes in proptest::collection::vec((60_u32..200, 40_u32..120, any::<bool>()), 1..40),
        extra in proptest::collection::vec((0_usize..40, 0_usize..40, any::<bool>()), 0..30),
    ) {
        let count = sizes.len();
        let tree = (1..count).map(|node| (node / 2, node, false));
        let ends: Vec<(usize, usize, bool)> =
            tree.chain(extra.iter().map(|(a, b, label)| (a % count, b % count, *label))).collect();
        let pairs: Vec<_> = ends.iter().map(|(from, to, _)| (*from, *to)).collect();
        let back = ranks::find_back_edges(count, 0, &pairs);
        let boxes: Vec<NodeBox> = sizes
            .iter()
            .map(|&(width, height, is_diamond)| NodeBox {
                width: f64::from(width * 2),
                height: f64::from(height),
                outline: if is_diamond { NodeOutline::Diamond } else { NodeOutline::Box },
                beside: 0.0,
            })
            .collect();
        let layout_edges: Vec<LayoutEdge> = ends
            .iter()
            .zip(back)
            .map(|(&(from, to, has_label), leads_back)| {
                let label = has_label.then_some((80.0, 18.0));
                LayoutEdge { from, to, leads_back, label, from_at: None, to_at: None }
            })
            .collect();
        let layout = lay_out(&boxes, &layout_edges, &[]);
        let routes: Vec<_> = layout.routes.iter().flatten().collect();
        let labels = routes.iter().filter_map(|route| route.label);
        let areas: Vec<LayoutRect> = layout.nodes.iter().copied().chain(labels).collect();
        for (index, area) in areas.iter().enumerate() {
            prop_assert!(area.x * 2.0 >= area.width && area.y * 2.0 >= area.height);
            for other in &areas[index + 1..] {
                prop_assert!(!overlap(area, other), "{:?} {:?}", area, other);
            }
        }
        for (layout_edge, route) in layout_edges.iter().zip(&layout.routes) {
            let Some(route) = route else { continue };
            for pair in route.points.windows(2) {
                // Curves stay between layers, so only vertical segments can touch a node.
                for step in 0..=8 {
                    let y = pair[0].1 + (pair[1].1 - pair[0].1) * f64::from(step) / 8.0;
                    let x = if step < 4 { pair[0].0 } else { pair[1].0 };
                    for (node, area) in layout.nodes.iter().enumerate() {
                        let is_end = node == layout_edge.from || node == layout_edge.to;
                        prop_assert!(is_end || !holds(area, (x, y)));
                    }
                }
            }
        }
    }
}

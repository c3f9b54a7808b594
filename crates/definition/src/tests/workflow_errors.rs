//! Rules of error edges, compensations, scripts, maps and routing keys.

use super::workflow::{WRITER, of_flow};
use super::{problems, report};
use crate::WorkflowDefinition;

/// Nodes a and b, and a handler; each case adds fields to `a`.
fn with_fields(fields: &str) -> Vec<String> {
    of_flow(&format!(
        "nodes:\n  a: {{type: agent, agent: writer, {fields}}}\n  b: {{type: agent, agent: \
         writer}}\n  h: {{type: agent, agent: writer}}\nedges: [{{from: a, to: b}}, {{from: a, to: \
         h}}]\nentry_point: a\n"
    ))
}

#[test]
fn rejects_wrong_error_edges_and_compensations() {
    insta::assert_snapshot!(report(
        [
            "on_error: h",
            "on_error: hh",
            "on_error: a",
            "compensate: {type: agent, agent: writer, input: '{{ nodes.a.output }}'}",
            "compensate: {type: condition, expression: 'true'}",
            "compensate: {type: human, question: Why?}",
            "compensate: {type: agent, agent: writer, on_error: h}",
            "compensate: {type: agent, agent: writr}",
            "compensate: {type: agent, agent: writer, input: '{{ nodes.c.output }}'}",
            "outputs: {x: json}",
            "outputs: {x: yaml}",
            "outputs: x",
        ],
        with_fields
    ));
}

#[test]
fn rejects_wrong_graphs_of_error_edges() {
    insta::assert_snapshot!(report(
        [
            "nodes: {a: {type: agent, agent: writer, on_error: h}, h: {type: agent, agent: writer}}",
            "nodes: {a: {type: agent, agent: writer}, h: {type: agent, agent: writer}}\non_cancel: h",
            "nodes: {a: {type: agent, agent: writer}}\non_cancel: a",
            "nodes: {a: {type: agent, agent: writer}}\non_cancel: b",
            "nodes: {a: {type: agent, agent: writer}, b: {type: agent, agent: writer, on_error: a}}\nedges: [{from: a, to: b}]",
            "nodes: {a: {type: agent, agent: writer}, b: {type: agent, agent: writer}, c: {type: agent, agent: writer}}\nedges: [{from: a, to: b}, {from: b, to: c, on_error: a}]",
            "nodes: {a: {type: agent, agent: writer}, b: {type: agent, agent: writer}, c: {type: agent, agent: writer}}\nedges: [{from: a, to: b}, {from: b, to: c, on_error: a, max_loops: 2}]",
            "nodes: {a: {type: parallel, branches: [b]}, b: {type: agent, agent: writer, on_error: c}, c: {type: agent, agent: writer}}",
            "nodes: {a: {type: agent, agent: writer, compensate: {type: agent, agent: writer}}, compensate_a: {type: agent, agent: writer}}\nedges: [{from: a, to: compensate_a}]",
        ],
        |flow| of_flow(&format!("{flow}\nentry_point: a\n"))
    ));
}

#[test]
fn plan_has_error_links_and_compensations() {
    let workflow = WorkflowDefinition::from_canonical(
        "{name: flow, entry_point: a, nodes: {\
           a: {type: agent, agent: w, on_error: h, compensate: {type: agent, agent: u}}, \
           b: {type: agent, agent: w}, h: {type: agent, agent: w}}, \
         edges: [{from: a, to: b, condition: metadata.x, on_error: b}, {from: b, to: h, on_error: h}]}",
    )
    .unwrap();
    let plan = workflow.plan().unwrap();
    let target = |link: Option<usize>| plan.nodes()[plan.links()[link.unwrap()].to].name().as_str();
    assert_eq!(target(plan.error_link(0, None)), "h", "the node's own comes first");
    assert_eq!(target(plan.error_link(0, Some(0))), "b", "unless a condition failed");
    assert_eq!(target(plan.error_link(1, None)), "h", "the edge catches the failure of its node");
    assert_eq!(plan.error_link(2, None), None);
    assert!(plan.is_end(2) && !plan.is_end(1));
    let undo = plan.nodes()[0].compensation.unwrap();
    assert_eq!(plan.nodes()[undo].name().as_str(), "compensate_a");
    assert_eq!(plan.nodes()[undo].compensates, Some(0));
    assert!(plan.has_compensations() && !plan.is_end(undo));
    // Canonical JSON keeps everything.
    let again = WorkflowDefinition::from_canonical(&workflow.canonical_json()).unwrap();
    assert_eq!(again, workflow);
}

#[test]
fn rejects_wrong_scripts_and_maps() {
    insta::assert_snapshot!(report(
        [
            "{type: script}",
            "{type: script, file: steps/x.py, command: [sh]}",
            "{type: script, file: ../x.py}",
            "{type: script, file: /x.py}",
            "{type: script, file: steps/x.rb}",
            "{type: script, command: [deno, run, x.ts], arguments: {n: '{{ metadata.n }}'}}",
            "{type: map, over: '{{ metadata.list }}'}",
            "{type: map, node: {type: agent, agent: writer}}",
            "{type: map, over: '{{ metadata.list }}', workflow: flow, node: {type: agent, agent: writer}}",
            "{type: map, over: '{{ metadata.list }}', node: {type: agent, agent: writer, input: '{{ item }} {{ item_index }}'}}",
            "{type: map, over: '{{ metadata.list }}', as: page, node: {type: agent, agent: writer, input: '{{ item }}'}}",
            "{type: map, over: '{{ item }}', node: {type: agent, agent: writer}}",
            "{type: map, over: [1, 2], node: {type: condition, expression: 'item > 1'}}",
            "{type: map, over: 'list', node: {type: agent, agent: writer}}",
            "{type: map, over: 7, node: {type: agent, agent: writer}}",
            "{type: map, over: [], as: messages, node: {type: agent, agent: writer}}",
            "{type: map, over: [], as: a-b, node: {type: agent, agent: writer}}",
            "{type: map, over: [], max_parallel: 0, node: {type: agent, agent: writer}}",
            "{type: map, over: [], on_item_error: skip, node: {type: agent, agent: writer}}",
            "{type: map, over: [], node: {type: human, question: Why?}}",
        ],
        |node| {
            let text = format!("name: flow\nnodes: {{a: {node}}}\nentry_point: a\n");
            problems("workflows/flow.yaml", &text, [WRITER])
        }
    ));
}

#[test]
fn rejects_routing_keys_that_a_node_never_gives() {
    let nodes = "nodes:
  ask: {type: human, question: Good?}
  long: {type: condition, expression: size(last) > 9}
  kind: {type: condition, expression: \"size(last) > 9 ? 'long' : 'short'\"}
  any: {type: condition, expression: last}
  end: {type: agent, agent: writer}
entry_point: ask
";
    insta::assert_snapshot!(report(
        [
            "[{from: ask, to: {approve: long, reject: kind, modify: any}}]",
            "[{from: ask, to: {aprove: long, publish: kind, default: any}}]",
            "[{from: ask, to: long, condition: \"routing_key == 'yes'\"}]",
            "[{from: ask, to: long, condition: \"routing_key == 'approve' || routing_key == 'no'\"}]",
            "[{from: long, to: {'true': end, 'false': end}}]",
            "[{from: long, to: {'yes': end, default: end}}]",
            "[{from: kind, to: {long: end, shrt: end}}]",
            "[{from: any, to: {whatever: end}}]",
        ],
        |edges| {
            let rest = "  - {from: ask, to: long}\n  - {from: ask, to: kind}\n  - {from: ask, to: any}\n  - {from: any, to: end}\n";
            let first = edges.trim_start_matches('[').trim_end_matches(']');
            of_flow(&format!("{nodes}edges:\n  - {first}\n{rest}"))
        }
    ));
}

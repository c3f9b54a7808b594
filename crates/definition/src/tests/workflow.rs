//! Tests of workflows: nodes, edges and the graph.

use super::{problems, report};

pub(super) const WRITER: (&str, &str) =
    ("agents/writer.yaml", "kind: cli\nname: writer\nexecutable_path: x\n");

pub(super) fn of_flow(text: &str) -> Vec<String> {
    problems("workflows/flow.yaml", &format!("name: flow\n{text}"), [WRITER])
}

#[test]
fn a_whole_workflow_is_valid() {
    let written_out = r#"
nodes:
  draft: {type: agent, agent: writer, input: "{{ input }}", outputs: [draft]}
  long: {type: condition, expression: "size(last) > 10"}
  ask: {type: human, question: "Good?", deadline_seconds: 60, default_action: reject}
  fan: {type: parallel, branches: [a, b], join: any}
  a: {type: agent, agent: writer}
  b: {type: agent, agent: writer, max_retries: 2, timeout_seconds: 5, idempotent: true}
edges:
  - {from: draft, to: long}
  - {from: long, to: {"true": ask, default: fan}}
  - {from: ask, to: draft, condition: "routing_key == 'reject'", max_loops: 3}
entry_point: draft
checkpoints: [fan]
"#;
    let of_patterns = "patterns: [react, reflection]\nagents: {agent: writer, generator: writer, critic: writer}\n";
    for text in [written_out, of_patterns] {
        assert_eq!(of_flow(text), [""; 0]);
    }
}

#[test]
fn nodes_list_their_allowed_values() {
    insta::assert_snapshot!(report(
        [
            "{agent: writer}",
            "{type: agnt}",
            "writer",
            "{type: agent}",
            "{type: agent, agent: writr}",
            "{type: agent, agent: flow}",
            "{type: workflow, workflow: writer}",
            "{type: workflow, workflow: flow}",
            "{type: agent, agent: writer, tool: x/y}",
            "{type: tool}",
            "{type: tool, tool: x/*}",
            "{type: tool, tool: x/y}",
            "{type: condition}",
            "{type: human}",
            "{type: human, question: q, default_action: aprove, deadline_seconds: 1}",
            "{type: human, question: q, default_action: approve}",
            "{type: parallel}",
            "{type: parallel, branches: []}",
            "{type: parallel, branches: [b]}",
            "{type: parallel, branches: [a]}",
            "{type: parallel, branches: [a], join: frist}",
            "{type: agent, agent: writer, timeout_seconds: 0}",
        ],
        |node| { of_flow(&format!("nodes: {{a: {node}}}\nentry_point: a\n")) }
    ));
}

#[test]
fn limits_the_size_of_a_template() {
    let text = format!(
        "nodes: {{a: {{type: agent, agent: writer, input: {}}}}}\nentry_point: a\n",
        "x".repeat(4097)
    );
    assert_eq!(of_flow(&text), ["2:48: nodes.a.input: has 4097 bytes, 4096 are the most"]);
}

/// Nodes a, b, c and d; each case adds edges.
const NODES: &str = "nodes:
  a: {type: agent, agent: writer}
  b: {type: agent, agent: writer}
  c: {type: agent, agent: writer}
  d: {type: agent, agent: writer}
entry_point: a
";

#[test]
fn rejects_cycle_without_max_loops() {
    insta::assert_snapshot!(report(
        [
            "[{from: a, to: b}, {from: a, to: c}, {from: b, to: d}, {from: c, to: d}]",
            "[{from: a, to: b}, {from: b, to: c}]",
            "[{from: a, to: b}]",
            "[{from: a, to: b}, {from: b, to: c}, {from: c, to: b}, {from: c, to: d}]",
            "[{from: a, to: b}, {from: b, to: c}, {from: c, to: b, max_loops: 2}, {from: c, to: d}]",
            "[{from: a, to: {x: b, y: c, default: d}}, {from: b, to: a}]",
            "[{from: a, to: {x: b, y: c, default: d}}, {from: e, to: bb}]",
            "[{from: a, to: {x: z}}]",
            "[{from: a, to: {}}]",
            "[{from: a}]",
            "[{from: a, to: [b]}]",
            "[{from: a, to: b, max_loops: 0}]",
            "[{from: a, to: b, when: x}]",
            "[{from: a, to: b, condition: \"routing_ky == 'x'\"}]",
        ],
        |edges| { of_flow(&format!("{NODES}edges: {edges}\n")) }
    ));
}

#[test]
fn rejects_inconsistent_workflows() {
    insta::assert_snapshot!(report(
        [
            "",
            "nodes: {a: {type: agent, agent: writer}}",
            "nodes: {a: {type: agent, agent: writer}}\nentry_point: b",
            "nodes: {a: {type: agent, agent: writer}}\nentry_point: a\ncheckpoints: [b]",
            "nodes: {a: {type: agent, agent: writer}}\nentry_point: a\nmax_iterations: 0",
            "nodes: {}\nentry_point: a",
            "patterns: [react]",
            "patterns: [react]\nagents: {}",
            "patterns: [reflect]\nagents: {x: writer}",
            "patterns: [react]\nagents: {agent: writr}",
            "patterns: [react]\nagents: {agent: writer}\nentry_point: a",
        ],
        of_flow
    ));
}

const SERVERS: (&str, &str) = (
    "config/mcp_servers.yaml",
    "servers: [{name: web, transport: sse, config: {url: \"http://localhost:1/sse\"}}]\n",
);

#[test]
fn condition_and_template_errors_are_problems_of_the_file() {
    insta::assert_snapshot!(report(
        [
            r#"{type: agent, agent: writer, input: "{{ inptu }}"}"#,
            r#"{type: agent, agent: writer, input: "{{ nodes.aa.output }}"}"#,
            r#"{type: agent, agent: writer, input: "{{ nodes.a.outptu }}"}"#,
            r#"{type: agent, agent: writer, input: "{{ input | uper }}"}"#,
            r#"{type: agent, agent: writer, input: "{{ input | telegraph }}"}"#,
            r#"{type: condition, expression: "nodes.a.result == ''"}"#,
            r#"{type: condition, expression: "size(last"}"#,
            r#"{type: condition, expression: "size(last) >"}"#,
            r#"{type: condition, expression: "nodes.b.output == ''"}"#,
            r#"{type: human, question: "{{ nodes.b.output }}"}"#,
            r#"{type: tool, tool: web/get, arguments: {url: "{{ metadta.url }}"}}"#,
            r#"{type: tool, tool: web/get, arguments: {in: [1, {url: "x{{ nodes.b.output }}"}]}}"#,
            r#"{type: tool, tool: web/get, arguments: {url: "{{ last "}}"#,
        ],
        |node| {
            let text = format!("name: flow\n\nnodes: {{a: {node}}}\nentry_point: a\n");
            problems("workflows/flow.yaml", &text, [WRITER, SERVERS])
        }
    ));
}

#[test]
fn edge_conditions_must_be_boolean() {
    insta::assert_snapshot!(report(
        ["size(last)", "'yes'", "metadata.count * 2", "size(last) > 2", "metadata.is_done"],
        |condition| {
            let edge = format!("{{from: a, to: b, condition: \"{condition}\"}}");
            let a = "{type: condition, expression: size(last)}";
            of_flow(&format!(
                "entry_point: a\nnodes: {{a: {a}, b: {{type: human, question: Good?}}}}\nedges:\n  - {edge}\n"
            ))
        }
    ));
}

//! Workflows: nodes, edges and the graph they make.

use super::check_in;

const WRITER: (&str, &str) =
    ("agents/writer.yaml", "kind: cli\nname: writer\nexecutable_path: x\n");

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    check_in("workflows/flow.yaml", &format!("name: flow\n{text}"), [WRITER], expected);
}

#[test]
fn a_whole_workflow_is_valid() {
    check(
        r#"
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
"#,
        &[],
    );
    check(
        "patterns: [react, reflection]\nagents: {agent: writer, generator: writer, critic: writer}\n",
        &[],
    );
}

#[test]
fn nodes_list_their_allowed_values() {
    for (node, expected) in [
        (
            "{agent: writer}",
            "2:12: missing field \"nodes.a.type\"; allowed: agent, tool, condition, human, parallel, workflow",
        ),
        ("{type: agnt}", "2:19: nodes.a.type: unknown value \"agnt\", did you mean \"agent\"?"),
        ("writer", "2:12: nodes.a must be a mapping, found the text \"writer\""),
        ("{type: agent}", "2:12: missing field \"nodes.a.agent\""),
        (
            "{type: agent, agent: writr}",
            "2:33: nodes.a.agent: there is no agent \"writr\", did you mean \"writer\"?",
        ),
        (
            "{type: agent, agent: flow}",
            "2:33: nodes.a.agent: \"flow\" is a workflow, an agent is needed",
        ),
        (
            "{type: workflow, workflow: writer}",
            "2:39: nodes.a.workflow: \"writer\" is an agent, a workflow is needed",
        ),
        (
            "{type: workflow, workflow: flow}",
            "2:39: workflows run each other in a cycle: flow -> flow",
        ),
        (
            "{type: agent, agent: writer, tool: x/y}",
            "2:41: unknown field \"tool\" in nodes.a; allowed: type, agent, input, sub_agents, inputs, \
             outputs, idempotent, max_retries, timeout_seconds",
        ),
        ("{type: tool}", "2:12: missing field \"nodes.a.tool\""),
        ("{type: tool, tool: x/*}", "2:31: nodes.a.tool: \"x/*\" is not a tool: write server/tool"),
        (
            "{type: tool, tool: x/y}",
            "2:31: nodes.a.tool: there is no MCP server \"x\", \
             config/mcp_servers.yaml lists none",
        ),
        ("{type: condition}", "2:12: missing field \"nodes.a.expression\""),
        ("{type: human}", "2:12: missing field \"nodes.a.question\""),
        (
            "{type: human, question: q, default_action: aprove, deadline_seconds: 1}",
            "2:55: nodes.a.default_action: unknown value \"aprove\", did you mean \"approve\"?",
        ),
        (
            "{type: human, question: q, default_action: approve}",
            "2:55: \"nodes.a.default_action\" has a meaning only with deadline_seconds",
        ),
        ("{type: parallel}", "2:12: missing field \"nodes.a.branches\""),
        ("{type: parallel, branches: []}", "2:39: nodes.a.branches must name at least one node"),
        (
            "{type: parallel, branches: [b]}",
            "2:40: nodes.a.branches[0]: there is no node \"b\"; allowed: a",
        ),
        (
            "{type: parallel, branches: [a]}",
            "2:40: nodes.a.branches[0]: \"a\" cannot be a branch of itself",
        ),
        (
            "{type: parallel, branches: [a], join: frist}",
            "2:50: nodes.a.join: unknown value \"frist\", did you mean \"first\"?",
        ),
        (
            "{type: agent, agent: writer, timeout_seconds: 0}",
            "2:58: nodes.a.timeout_seconds must be a whole number above 0, found the number 0",
        ),
    ] {
        check(&format!("nodes: {{a: {node}}}\nentry_point: a\n"), &[expected]);
    }
}

#[test]
fn limits_the_size_of_a_template() {
    let text = format!(
        "nodes: {{a: {{type: agent, agent: writer, input: {}}}}}\nentry_point: a\n",
        "x".repeat(4097)
    );
    check(&text, &["2:48: nodes.a.input: has 4097 bytes, 4096 are the most"]);
}

/// Nodes a, b, c and d that differ only in their edges.
const NODES: &str = "nodes:
  a: {type: agent, agent: writer}
  b: {type: agent, agent: writer}
  c: {type: agent, agent: writer}
  d: {type: agent, agent: writer}
entry_point: a
";

#[test]
fn rejects_cycle_without_max_loops() {
    for (edges, expected) in [
        ("[{from: a, to: b}, {from: a, to: c}, {from: b, to: d}, {from: c, to: d}]", vec![]),
        (
            "[{from: a, to: b}, {from: b, to: c}]",
            vec![
                "6:3: no way leads from \"a\" to the node \"d\": draw an edge to it, or take it out",
            ],
        ),
        (
            "[{from: a, to: b}]",
            vec![
                "5:3: no way leads from \"a\" to the node \"c\": draw an edge to it, or take it out",
                "6:3: no way leads from \"a\" to the node \"d\": draw an edge to it, or take it out",
            ],
        ),
        (
            "[{from: a, to: b}, {from: b, to: c}, {from: c, to: b}, {from: c, to: d}]",
            vec![
                "8:45: the workflow has a cycle, b -> c -> b, without a limit: give one of \
                 these edges max_loops",
            ],
        ),
        (
            "[{from: a, to: b}, {from: b, to: c}, {from: c, to: b, max_loops: 2}, {from: c, to: d}]",
            vec![],
        ),
        (
            "[{from: a, to: {x: b, y: c, default: d}}, {from: b, to: a}]",
            vec![
                "8:50: the workflow has a cycle, a -> b -> a, without a limit: give one of \
                 these edges max_loops",
            ],
        ),
        (
            "[{from: a, to: {x: b, y: c, default: d}}, {from: e, to: bb}]",
            vec![
                "8:57: edges[1].from: there is no node \"e\"; allowed: a, b, c, d",
                "8:64: edges[1].to: there is no node \"bb\", did you mean \"b\"?",
            ],
        ),
        (
            "[{from: a, to: {x: z}}]",
            vec!["8:27: edges[0].to.x: there is no node \"z\"; allowed: a, b, c, d"],
        ),
        ("[{from: a, to: {}}]", vec!["8:23: edges[0].to must name at least one node"]),
        ("[{from: a}]", vec!["8:9: missing field \"edges[0].to\""]),
        (
            "[{from: a, to: [b]}]",
            vec![
                "8:23: edges[0].to must be the name of a node, or a mapping of routing keys to \
                 nodes, found a list",
            ],
        ),
        (
            "[{from: a, to: b, max_loops: 0}]",
            vec![
                "8:37: edges[0].max_loops must be a whole number from 1 to 4294967295, found the \
                 number 0",
            ],
        ),
        (
            "[{from: a, to: b, when: x}]",
            vec![
                "8:26: unknown field \"when\" in edges[0]; allowed: from, to, condition, max_loops",
            ],
        ),
    ] {
        check(&format!("{NODES}edges: {edges}\n"), &expected);
    }
}

#[test]
fn rejects_inconsistent_workflows() {
    let node = "nodes: {a: {type: agent, agent: writer}}\n";
    for (text, expected) in [
        (
            String::new(),
            "1:1: missing field \"nodes\": a workflow has nodes, or patterns with agents; allowed: \
             nodes, patterns",
        ),
        (node.to_owned(), "1:1: missing field \"entry_point\", which is needed with nodes"),
        (
            format!("{node}entry_point: b\n"),
            "3:14: entry_point: there is no node \"b\"; allowed: a",
        ),
        (
            format!("{node}entry_point: a\ncheckpoints: [b]\n"),
            "4:15: checkpoints[0]: there is no node \"b\"; allowed: a",
        ),
        (
            format!("{node}entry_point: a\nmax_iterations: 0\n"),
            "4:17: max_iterations must be a whole number from 1 to 4294967295, found the number 0",
        ),
        (
            "nodes: {}\nentry_point: a\n".to_owned(),
            "2:8: \"nodes\" is empty: a workflow needs at least one node",
        ),
        (
            "patterns: [react]\n".to_owned(),
            "1:1: missing field \"agents\", which is needed with patterns: role to agent",
        ),
        (
            "patterns: [react]\nagents: {}\n".to_owned(),
            "3:9: \"agents\" is empty: the patterns need agents for their roles",
        ),
        (
            "patterns: [reflect]\nagents: {x: writer}\n".to_owned(),
            "2:12: patterns[0]: unknown value \"reflect\", did you mean \"reflection\"?",
        ),
        (
            "patterns: [react]\nagents: {agent: writr}\n".to_owned(),
            "3:17: agents.agent: there is no agent \"writr\", did you mean \"writer\"?",
        ),
        (
            "patterns: [react]\nagents: {agent: writer}\nentry_point: a\n".to_owned(),
            "4:14: \"entry_point\" has a meaning only with nodes",
        ),
    ] {
        check(&text, &[expected]);
    }
}

const SERVERS: (&str, &str) = (
    "config/mcp_servers.yaml",
    "servers: [{name: web, transport: sse, config: {url: \"http://localhost:1/sse\"}}]\n",
);

#[test]
fn condition_and_template_errors_are_problems_of_the_file() {
    for (node, expected) in [
        (
            r#"{type: agent, agent: writer, input: "{{ inptu }}"}"#,
            "3:48: nodes.a.input: the State has no \"inptu\", did you mean \"input\"?",
        ),
        (
            r#"{type: agent, agent: writer, input: "{{ nodes.aa.output }}"}"#,
            "3:48: nodes.a.input: nodes.aa: there is no node \"aa\", did you mean \"a\"?",
        ),
        (
            r#"{type: agent, agent: writer, input: "{{ nodes.a.outptu }}"}"#,
            "3:48: nodes.a.input: nodes.a has no \"outptu\", did you mean \"output\"?",
        ),
        (
            r#"{type: agent, agent: writer, input: "{{ input | uper }}"}"#,
            "3:48: nodes.a.input: there is no filter \"uper\", did you mean \"upper\"?",
        ),
        (
            r#"{type: agent, agent: writer, input: "{{ input | telegraph }}"}"#,
            "3:48: nodes.a.input: there is no filter \"telegraph\"; there are steps and those of \
             https://docs.rs/minijinja/latest/minijinja/filters/",
        ),
        (
            r#"{type: condition, expression: "nodes.a.result == ''"}"#,
            "3:42: nodes.a.expression: nodes.a has no \"result\"; it has output and json",
        ),
        (
            r#"{type: condition, expression: "size(last"}"#,
            "3:42: nodes.a.expression: not an expression: missing ')' at character 10",
        ),
        (
            r#"{type: condition, expression: "size(last) >"}"#,
            "3:42: nodes.a.expression: not an expression: unexpected end at character 13",
        ),
        (
            r#"{type: condition, expression: "nodes.b.output == ''"}"#,
            "3:42: nodes.a.expression: nodes.b: there is no node \"b\"; allowed: a",
        ),
        (
            r#"{type: human, question: "{{ nodes.b.output }}"}"#,
            "3:36: nodes.a.question: nodes.b: there is no node \"b\"; allowed: a",
        ),
        (
            r#"{type: tool, tool: web/get, arguments: {url: "{{ metadta.url }}"}}"#,
            "3:57: nodes.a.arguments.url: the State has no \"metadta\", did you mean \"metadata\"?",
        ),
        (
            r#"{type: tool, tool: web/get, arguments: {in: [1, {url: "x{{ nodes.b.output }}"}]}}"#,
            "3:66: nodes.a.arguments.in[1].url: nodes.b: there is no node \"b\"; allowed: a",
        ),
        (
            r#"{type: tool, tool: web/get, arguments: {url: "{{ last "}}"#,
            "3:57: nodes.a.arguments.url: not a template: unexpected end of input, expected end of \
             variable block",
        ),
    ] {
        let text = format!("name: flow\n\nnodes: {{a: {node}}}\nentry_point: a\n");
        check_in("workflows/flow.yaml", &text, [WRITER, SERVERS], &[expected]);
    }
    check(
        &format!("{NODES}edges: [{{from: a, to: b, condition: \"routing_ky == 'x'\"}}]\n"),
        &["8:37: edges[0].condition: the State has no \"routing_ky\", did you mean \
             \"routing_key\"?"],
    );
}

#[test]
fn edge_conditions_must_be_boolean() {
    for (condition, expected) in [
        ("size(last)", Some("a number")),
        ("'yes'", Some("a text")),
        ("metadata.count * 2", Some("a number")),
        ("size(last) > 2", None),
        ("metadata.is_done", None),
    ] {
        let text = format!(
            "name: flow\nentry_point: a\nnodes:\n  a: {{type: condition, expression: \"size(last)\"}}\n  \
             b: {{type: human, question: Good?}}\nedges:\n  - {{from: a, to: b, condition: \"{condition}\"}}\n"
        );
        let home = super::home([("workflows/flow.yaml", text.as_str())]);
        let expected = expected.map(|kind| {
            format!(
                "workflows/flow.yaml:7:33: edges[0].condition gives {kind}, but true or false is \
                 needed: compare it with something"
            )
        });
        assert_eq!(super::shown(&home), Vec::from_iter(expected), "{condition}");
    }
}

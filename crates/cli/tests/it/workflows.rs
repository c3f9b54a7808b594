//! `polity workflow` and `polity task graph`.

use std::fs;

use crate::sandbox::HomeSandbox;

const WORKFLOW: &str = "
name: welcome
entry_point: greet
checkpoints: [greet]
nodes:
  review: {type: human, question: Is it kind?}
  greet: {type: agent, agent: greeter}
  again: {type: workflow, workflow: polite}
edges:
  - {from: greet, to: review}
  - {from: review, to: {reject: greet, default: again}, max_loops: 2}
";

fn sandbox() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write("workflows/welcome.yaml", WORKFLOW);
    sandbox.write(
        "workflows/polite.yaml",
        "name: polite\npatterns: [reflection]\nagents: {generator: greeter, critic: greeter}\n",
    );
    sandbox
}

#[test]
fn workflow_list_works() {
    assert!(HomeSandbox::new().polity(&["workflow", "list"]).out.starts_with("no workflows in "));
    let sandbox = sandbox();
    let output = sandbox.polity(&["workflow", "list"]);
    let lines: Vec<Vec<&str>> =
        output.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "NODES", "ENTRY", "USES"]);
    assert_eq!(lines[1], ["polite", "8", "generate", "greeter"]);
    assert_eq!(lines[2], ["welcome", "3", "greet", "greeter,", "polite"]);
    let workflows = sandbox.get(&["workflow", "list"]);
    assert_eq!(workflows[0]["patterns"][0], "reflection");
    assert_eq!(workflows[1]["nodes"], 3);
    assert_eq!(workflows[1]["entry_point"], "greet");
    assert_eq!(workflows[1]["uses"], serde_json::json!(["greeter", "polite"]));
}

#[test]
fn workflow_show_keeps_node_order() {
    let sandbox = sandbox();
    let (shown, _) = sandbox.json(&["workflow", "show", "welcome"]);
    assert_eq!(shown["max_iterations"], 50);
    assert_eq!(shown["nodes"]["review"]["question"], "Is it kind?");
    assert!(shown["digest"].is_string());
    for flags in [&["--json"][..], &[]] {
        let output = sandbox.polity(&[&["workflow", "show", "welcome"], flags].concat());
        let nodes = output.out.find("nodes").unwrap();
        let position = |node: &str| output.out[nodes..].find(node).unwrap();
        assert!(
            position("review") < position("greet") && position("greet") < position("again"),
            "{output:?}"
        );
    }
}

#[test]
fn workflow_graph_supports_every_format() {
    let sandbox = sandbox();
    let draw = |format: &str| {
        let output = sandbox.polity(&["workflow", "graph", "welcome", "--format", format]);
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{output:?}");
        output.out
    };
    assert!(draw("svg").starts_with("<svg "));
    assert!(draw("mermaid").contains("n_review -.->|\"reject<br/>at most 2 times\"| n_greet"));
    assert!(draw("dot").starts_with("digraph \"welcome\" {"));
    assert_eq!(sandbox.polity(&["workflow", "graph", "welcome"]).out, draw("mermaid"));
    let (json, _) = sandbox.json(&["workflow", "graph", "welcome", "--format", "dot"]);
    assert_eq!(json["graph"], draw("dot"));
    assert_eq!(json["format"], "dot");
    sandbox.polity(&["workflow", "graph", "polite"]).out_has("n_critique_1").out_has("n_refine_3");
}

#[test]
fn unknown_workflows_are_errors() {
    let sandbox = sandbox();
    sandbox.write("workflows/torn.yaml", "name: torn\nnodes: {}\n");
    for command in ["show", "graph"] {
        let fails = |name: &str, expected: &str| {
            let output = sandbox.polity(&["workflow", command, name]);
            assert_eq!((output.code, output.out.as_str()), (2, ""), "{output:?}");
            assert!(output.err.contains(expected), "{output:?}");
        };
        fails("welcom", "did you mean \"welcome\"?");
        fails("nothing_like_it", "there is no workflow \"nothing_like_it\"");
        fails("greeter", "\"greeter\" is an agent, not a workflow");
        fails("torn", "workflows/torn.yaml:");
    }
}

/// A workflow whose second node needs approval, and which skips one node.
const SIGNED: &str = "
name: signed
entry_point: choose
nodes:
  choose: {type: condition, expression: \"input == '' ? 'other' : 'write'\"}
  write: {type: agent, agent: greeter}
  other: {type: agent, agent: greeter}
  sign: {type: human, question: Is it kind?}
  last: {type: agent, agent: greeter}
edges:
  - {from: choose, to: {write: write, other: other}}
  - {from: write, to: sign}
  - {from: sign, to: last}
";

#[test]
fn task_graph_uses_the_pinned_workflow() {
    let sandbox = sandbox();
    sandbox.write("workflows/signed.yaml", SIGNED);
    let (task, code) = sandbox.json(&["run", "signed", "Ada"]);
    assert_eq!(code, 3);
    let id = task["id"].as_str().unwrap();
    sandbox.write("workflows/signed.yaml", "name: signed\nnodes: {}\n");
    let (drawn, code) = sandbox.json(&["workflow", "graph", "signed", "--task", id]);
    assert_eq!((code, &drawn["name"]), (0, &serde_json::json!("signed")));
    let nodes = serde_json::json!({
        "choose": "done", "write": "done", "other": "skipped", "sign": "waiting",
    });
    assert_eq!(drawn["nodes"], nodes);
    for format in ["svg", "mermaid", "dot"] {
        let args = ["workflow", "graph", "--task", id, "--format", format];
        let output = sandbox.polity(&args);
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{output:?}");
        assert!(output.out.contains("human · waiting"), "{output:?}");
        assert!(output.out.contains("agent · skipped"), "{output:?}");
    }
    sandbox.polity(&["task", "cancel", id]);
    let (drawn, _) = sandbox.json(&["workflow", "graph", "--task", id]);
    assert_eq!(drawn["nodes"]["sign"], "skipped", "the review was answered");
}

#[test]
fn node_awaiting_review_is_marked_waiting() {
    let sandbox = sandbox();
    sandbox.write("workflows/signed.yaml", SIGNED);
    let outer = "
name: outer
entry_point: inner
nodes:
  inner: {type: workflow, workflow: signed}
  after: {type: agent, agent: greeter}
edges: [{from: inner, to: after}]
";
    sandbox.write("workflows/outer.yaml", outer);
    let (task, code) = sandbox.json(&["run", "outer", "Ada"]);
    assert_eq!(code, 3);
    let id = task["id"].as_str().unwrap();
    let (drawn, _) = sandbox.json(&["workflow", "graph", "--task", id]);
    assert_eq!(drawn["nodes"], serde_json::json!({"inner": "waiting"}));

    // The part is a session with the messages of its `State`.
    let (sessions, _) = sandbox.json(&["session", "list", "--task", id]);
    let session = &sessions[0];
    assert_eq!(session["agent_name"], "signed");
    let (shown, _) = sandbox.json(&["session", "show", session["session_id"].as_str().unwrap()]);
    let output: Vec<_> = shown["message_history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(output, ["Ada", "Hello, Ada."]);
    assert_eq!(session["message_count"], 2);
    let text = sandbox.polity(&["session", "show", session["session_id"].as_str().unwrap()]);
    assert!(text.out.contains("assistant  Hello, Ada."), "{text:?}");
}

#[test]
fn task_graph_rejects_another_workflow() {
    let sandbox = sandbox();
    sandbox.write("workflows/signed.yaml", SIGNED);
    let (agent, _) = sandbox.json(&["run", "greeter", "Ada"]);
    let (flow, _) = sandbox.json(&["run", "signed", "Ada"]);
    let fails = |args: &[&str], code: i32, expected: &str| {
        let output = sandbox.polity(&[&["workflow", "graph"], args].concat());
        assert_eq!((output.code, output.out.as_str()), (code, ""), "{output:?}");
        assert!(output.err.contains(expected), "{expected}: {output:?}");
    };
    let (agent, flow) = (agent["id"].as_str().unwrap(), flow["id"].as_str().unwrap());
    fails(&["--task", agent], 2, "runs the agent \"greeter\", not a workflow");
    fails(&["welcome", "--task", flow], 2, "runs the workflow \"signed\", not \"welcome\"");
    fails(&["signed", "--task", "0000"], 1, "there is no task 0000");
    fails(&[], 2, "NAME");
}

#[test]
fn workflow_node_sets_retries_and_idempotence_of_its_agent() {
    let flaky = "echo x >> tries; [ $(wc -l < tries) -gt 1 ] && echo ok || { echo 'error 429' >&2; exit 1; }";
    for (agent, node, tries, code) in [
        ("", "", 1, 1),
        ("", ", idempotent: true", 2, 0),
        (", idempotent: true", "", 2, 0),
        (", idempotent: true", ", max_retries: 0", 1, 1),
        (", idempotent: true, max_retries: 0", ", max_retries: 1", 2, 0),
        (", max_retries: 0", ", idempotent: true", 1, 1),
    ] {
        let sandbox = HomeSandbox::new();
        sandbox.write_shell_agent("flaky", flaky, agent);
        let workflow = format!(
            "{{name: flow, entry_point: try, nodes: {{try: {{type: agent, agent: flaky{node}}}}}}}"
        );
        sandbox.write("workflows/flow.yaml", &workflow);
        let output = sandbox.polity(&["-q", "run", "flow", "x"]);
        let tried = fs::read_to_string(sandbox.file("tries")).unwrap().lines().count();
        assert_eq!((tried, output.code), (tries, code), "{agent} {node}: {output:?}");
    }
}

#[test]
fn node_that_is_not_idempotent_overrules_a_read_only_agent() {
    for (agent, node, runs) in [
        (", access_type: read-only", "", 2),
        (", access_type: read-only", ", idempotent: false", 1),
        (", idempotent: true", ", idempotent: false", 1),
        ("", "", 1),
        ("", ", idempotent: true", 2),
    ] {
        let sandbox = HomeSandbox::bare();
        let script = "echo x >> ran; [ $(wc -l < ran) -gt 1 ] || { echo 'error 429' >&2; exit 1; }; \
                      echo done";
        sandbox.write_shell_agent("coder", script, agent);
        sandbox.write(
            "workflows/flow.yaml",
            &format!(
                "{{name: flow, entry_point: a, nodes: {{a: {{type: agent, agent: coder{node}}}}}}}"
            ),
        );
        sandbox.polity(&["run", "flow", "x"]).exits(i32::from(runs == 1));
        let ran = std::fs::read_to_string(sandbox.file("ran")).unwrap();
        assert_eq!(ran.lines().count(), runs, "{agent} {node}");
    }
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("coder", "true", ", never_repeat: true");
    sandbox.polity(&["check"]).fails(2, "set idempotent: false on the step instead");
}

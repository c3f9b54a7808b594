//! `polity workflow`: what there is to follow, and how it looks.

use crate::sandbox::Sandbox;

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

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("workflows/welcome.yaml", WORKFLOW);
    sandbox.write(
        "workflows/polite.yaml",
        "name: polite\npatterns: [reflection]\nagents: {actor: greeter}\n",
    );
    sandbox
}

#[test]
fn workflows_are_listed() {
    assert!(Sandbox::new().polity(&["workflow", "list"]).out.starts_with("no workflows in "));
    let sandbox = sandbox();
    let said = sandbox.polity(&["workflow", "list"]);
    let lines: Vec<Vec<&str>> =
        said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "NODES", "ENTRY", "USES"]);
    assert_eq!(lines[1], ["polite", "0", "-", "greeter"]);
    assert_eq!(lines[2], ["welcome", "3", "greet", "greeter,", "polite"]);
    let (workflows, code) = sandbox.json(&["workflow", "list"]);
    assert_eq!(code, 0);
    assert_eq!(workflows[0]["patterns"][0], "reflection");
    assert_eq!(workflows[1]["nodes"], 3);
    assert_eq!(workflows[1]["entry_point"], "greet");
    assert_eq!(workflows[1]["uses"], serde_json::json!(["greeter", "polite"]));
}

#[test]
fn a_workflow_is_shown_with_its_defaults_and_its_nodes_in_order() {
    let sandbox = sandbox();
    let (shown, _) = sandbox.json(&["workflow", "show", "welcome"]);
    assert_eq!(shown["max_iterations"], 50);
    assert_eq!(shown["nodes"]["review"]["question"], "Is it kind?");
    assert!(shown["digest"].is_string());
    for flags in [&["--json"][..], &[]] {
        let said = sandbox.polity(&[&["workflow", "show", "welcome"], flags].concat());
        let nodes = said.out.find("nodes").unwrap();
        let place = |node: &str| said.out[nodes..].find(node).unwrap();
        assert!(place("review") < place("greet") && place("greet") < place("again"), "{said:?}");
    }
}

#[test]
fn a_workflow_is_drawn_in_every_format() {
    let sandbox = sandbox();
    let draw = |format: &str| {
        let said = sandbox.polity(&["workflow", "graph", "welcome", "--format", format]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
        said.out
    };
    assert!(draw("svg").starts_with("<svg "));
    assert!(draw("mermaid").contains("n_review -.->|\"reject<br/>at most 2 times\"| n_greet"));
    assert!(draw("dot").starts_with("digraph \"welcome\" {"));
    assert_eq!(sandbox.polity(&["workflow", "graph", "welcome"]).out, draw("mermaid"));
    let (json, _) = sandbox.json(&["workflow", "graph", "welcome", "--format", "dot"]);
    assert_eq!(json["graph"], draw("dot"));
    assert_eq!(json["format"], "dot");
}

#[test]
fn what_cannot_be_shown_is_told() {
    let sandbox = sandbox();
    sandbox.write("workflows/torn.yaml", "name: torn\nnodes: {}\n");
    for command in ["show", "graph"] {
        let fails = |name: &str, words: &str| {
            let said = sandbox.polity(&["workflow", command, name]);
            assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
            assert!(said.err.contains(words), "{said:?}");
        };
        fails("welcom", "did you mean \"welcome\"?");
        fails("nothing_like_it", "there is no workflow \"nothing_like_it\"");
        fails("greeter", "\"greeter\" is an agent, not a workflow");
        fails("torn", "workflows/torn.yaml:");
    }
    let said = sandbox.polity(&["workflow", "graph", "polite"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("what its patterns expand to is not drawn yet"), "{said:?}");
    let said = sandbox.polity(&["workflow", "graph", "polite", "--json"]);
    assert_eq!(said.error()["code"], "unsupported");
}

//! Scripts as nodes of workflows.

use crate::prelude::*;
use crate::workflow_harness::{end, workflow};

#[tokio::test(start_paused = true)]
async fn script_gets_input_state_and_arguments_with_its_pinned_text() {
    let harness = workflow(
        "  a: {type: agent, agent: ann}
  s: {type: script, file: steps/note.sh, arguments: {text: '{{ last }}', n: 3}}
edges: [{from: a, to: s}]
",
    );
    let task = harness.run("go").await;
    assert_eq!(end(&task), "[\"ann(go)\"]");
    let [(input, script)] = harness.programs.runs().try_into().unwrap();
    assert_eq!(script.as_deref(), Some("echo note"));
    assert_eq!(input["input"], "go");
    assert_eq!(input["arguments"], json!({"text": "ann(go)", "n": 3}));
    assert_eq!(input["state"]["messages"][1]["content"], "ann(go)");
    assert_eq!(input["state"]["current_agent"], "ann");
}

#[tokio::test(start_paused = true)]
async fn declared_inputs_limit_the_state_of_a_script() {
    let harness = workflow(
        "  a: {type: agent, agent: ann, outputs: [x]}
  b: {type: agent, agent: bob, outputs: [y]}
  s: {type: script, command: [note], inputs: [y], arguments: {text: t}}
edges: [{from: a, to: b}, {from: b, to: s}]
",
    );
    harness.run("go").await;
    let [(input, script)] = harness.programs.runs().try_into().unwrap();
    assert_eq!(script, None);
    assert_eq!(input["state"]["messages"], json!([]));
    assert_eq!(input["state"]["metadata"], json!({"y": "bob(ann(go))"}));
}

#[tokio::test(start_paused = true)]
async fn output_updates_the_state_and_routes() {
    let harness = workflow(
        "  s: {type: script, file: steps/note.sh, outputs: [score]}
  high: {type: agent, agent: ann, input: '{{ metadata.level }} {{ nodes.s.output }}'}
  low: {type: agent, agent: bob}
edges:
  - {from: s, to: {high: high, default: low}, condition: 'metadata.score > 2 && metadata.level == \"top\"'}
",
    );
    let printed = json!({
        "output": 3,
        "state_updates": {"metadata.level": "top", "messages": ["noted"]},
        "routing_key": "high",
    });
    harness.programs.print("steps/note.sh", &printed);
    let task = harness.run("go").await;
    assert_eq!(end(&task), "ann(top 3)");
    assert_eq!(harness.message_texts(task.id).await, ["go", "noted", "3", "ann(top 3)"]);
    let state = harness.state(task.id).await;
    assert_eq!(json!(state.metadata), json!({"score": 3, "level": "top"}));
    assert_eq!(state.routing_key.as_deref(), Some("high"));
}

#[tokio::test(start_paused = true)]
async fn wrong_output_fails_the_node() {
    for (end_of_run, expected) in [
        (RunEnd::Answered("hello".into()), "invalid_output: s: the script printed no JSON value"),
        (
            RunEnd::Answered(json!({"state_updates": {"x": 1}}).to_string()),
            "invalid_output: s: the state_updates of the script: the State has no field \"x\"",
        ),
        (
            RunEnd::Answered(
                json!({"output": {"x": 1, "y": 2}, "state_updates": {"metadata.a.b": 1}})
                    .to_string(),
            ),
            "invalid_output: s: the state_updates of the script: metadata.a.b: metadata.a is a text",
        ),
        (
            RunEnd::Answered("{\"x\": 1}".into()),
            "invalid_output: s: the output of the script has no field \"y\"",
        ),
        (RunEnd::Failed(permanent("no table")), "agent_failed: s: no table"),
    ] {
        let harness = workflow(
            "  a: {type: agent, agent: ann, outputs: [a]}
  s: {type: script, file: steps/note.sh, outputs: [x, y]}
edges: [{from: a, to: s}]
",
        );
        harness.programs.end("steps/note.sh", end_of_run);
        let task = harness.run("go").await;
        assert!(end(&task).starts_with(expected), "{}", end(&task));
    }
}

#[tokio::test(start_paused = true)]
async fn reject_of_a_script_is_an_ordinary_key() {
    let harness = workflow(
        "  s: {type: script, file: steps/note.sh}
  next: {type: agent, agent: ann, input: on}
edges: [{from: s, to: next}]
",
    );
    harness.programs.print("steps/note.sh", &json!({"routing_key": "reject"}));
    assert_eq!(end(&harness.run("go").await), "ann(on)");
}

#[tokio::test(start_paused = true)]
async fn scripts_side_by_side_leave_their_messages_in_file_order() {
    let nodes = "  p: {type: parallel, branches: [x, y]}
  x: {type: script, file: steps/note.sh, arguments: {text: x}}
  y: {type: script, file: steps/note.sh, arguments: {text: y}}
";
    let harness = workflow(nodes);
    let task = harness.run("go").await;
    let texts = harness.message_texts(task.id).await;
    assert_eq!(texts, ["go", "by x", "[\"x\"]", "by y", "[\"y\"]"]);
    let state = harness.state(task.id).await;
    assert_eq!(json!(state.metadata), json!({"s_x": "x", "s_y": "y"}));
}

#[tokio::test(start_paused = true)]
async fn script_of_a_map_reads_only_what_the_map_declares() {
    let harness = workflow(
        "  a: {type: agent, agent: ann, outputs: [x]}
  m: {type: map, over: [1, 2], inputs: [x], node: {type: script, file: steps/note.sh, arguments: {text: 'i{{ item }}'}}}
edges: [{from: a, to: m}]
",
    );
    let task = harness.run("go").await;
    assert_eq!(end(&task), "[[\"i1\"],[\"i2\"]]");
    for (input, _) in harness.programs.runs() {
        assert_eq!(input["state"]["messages"], json!([]));
        assert_eq!(input["state"]["metadata"], json!({"x": "ann(go)"}));
    }
}

//! Error edges, and outputs that must be JSON.

use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, end, workflow};

#[tokio::test(start_paused = true)]
async fn error_edge_of_a_node_catches_its_failure() {
    let harness = workflow(
        "
  draft: {type: agent, agent: ann, on_error: repair}
  next: {type: agent, agent: bob}
  repair: {type: agent, agent: cid, input: '{{ error.node }} {{ error.code }} {{ error.category }}: {{ error.message }}'}
edges: [{from: draft, to: next}]
",
    );
    harness.play("ann", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    let result = task.result.clone().unwrap();
    assert!(result.starts_with("cid(draft model_rejected permanent: ann failed"), "{result}");
    let nodes = harness.nodes(task.id);
    assert_eq!(nodes, ["draft: start", "draft: model_rejected", "repair: start", "repair: finish"]);
    let error = harness.state(task.id).await.error.unwrap();
    assert_eq!(error.node.unwrap().as_str(), "draft");
    assert_eq!(error.category.to_string(), "permanent");
}

#[tokio::test(start_paused = true)]
async fn failure_that_is_not_caught_fails_the_task() {
    let harness = workflow(
        "
  draft: {type: agent, agent: ann}
  next: {type: agent, agent: bob, on_error: repair}
  repair: {type: agent, agent: cid}
edges: [{from: draft, to: next}]
",
    );
    harness.play("ann", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!(harness.nodes(task.id), ["draft: start", "draft: model_rejected"]);
}

#[tokio::test(start_paused = true)]
async fn error_edge_of_an_edge_catches_its_condition_and_its_node() {
    let nodes = "
  draft: {type: agent, agent: ann}
  next: {type: agent, agent: bob}
  repair: {type: agent, agent: cid, input: '{{ error.code }} {{ nodes.draft.output if nodes.draft is defined else \"-\" }}'}
edges: [{from: draft, to: next, condition: 'metadata.good', on_error: repair}]
";
    let harness = workflow(nodes);
    // The node did its work, so its output is there.
    assert_eq!(end(&harness.run("x").await), "cid(condition_failed ann(x))");
    let harness = workflow(nodes);
    harness.play("ann", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    let result = task.result.unwrap();
    assert!(result.contains("model_rejected"), "{result}");
}

#[tokio::test(start_paused = true)]
async fn error_edge_back_repeats_the_node_up_to_its_limit() {
    let harness = workflow(
        "
  draft: {type: agent, agent: ann}
  check: {type: tool, tool: kit/error, arguments: {text: '{{ last }}'}}
  done: {type: agent, agent: bob}
edges:
  - {from: draft, to: check}
  - {from: check, to: done, max_loops: 2, on_error: draft}
",
    );
    let task = harness.run("x").await;
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!((harness.starts(task.id, "draft"), harness.starts(task.id, "check")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn error_edge_of_a_parallel_node_catches_its_branches() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, two], on_error: repair}
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/error, arguments: {text: broken, ms: 1}}
  repair: {type: agent, agent: cid, input: '{{ error.node }}: {{ error.message }}'}
",
    );
    assert_eq!(end(&harness.run("x").await), "cid(all: two: no: broken)");
}

#[tokio::test(start_paused = true)]
async fn rejected_question_takes_the_error_edge() {
    let harness = workflow(
        "
  ask: {type: human, question: Good?, on_error: repair}
  done: {type: agent, agent: bob}
  repair: {type: agent, agent: cid, input: '{{ error.code }}'}
edges: [{from: ask, to: done}]
",
    );
    let (runtime, task) = harness.start("x").await;
    let task = harness.answer(&runtime, task.id, ReviewVerdict::Reject).await;
    assert_eq!(end(&task), "cid(rejected)");
}

#[tokio::test(start_paused = true)]
async fn node_that_cannot_begin_takes_its_error_edge() {
    let harness = workflow(
        "
  draft: {type: agent, agent: ann, input: '{{ metadata.none }}', on_error: repair}
  repair: {type: condition, expression: 'error.code'}
",
    );
    assert_eq!(end(&harness.run("x").await), "condition_failed");
}

#[tokio::test(start_paused = true)]
async fn text_that_looks_like_json_stays_text_unless_the_node_says_json() {
    let reads = |outputs: &str| {
        workflow(&format!(
            "
  draft: {{type: agent, agent: ann, outputs: {outputs}, on_error: failed}}
  read: {{type: condition, expression: 'type(metadata.x) == string ? \"text\" : \"json\"'}}
  failed: {{type: condition, expression: 'error.message'}}
edges: [{{from: draft, to: read}}]
"
        ))
    };
    for (outputs, said, expected) in [
        ("[x]", "{\"a\": 1}", "text"),
        ("{x: text}", "[1]", "text"),
        ("{x: json}", "{\"a\": 1}", "json"),
        ("{x: json}", " 7 ", "json"),
        ("{x: json}", "\"quoted\"", "text"),
    ] {
        let harness = reads(outputs);
        harness.play("ann", AgentBehaviour::Say(said.into()));
        assert_eq!(end(&harness.run("x").await), expected, "{outputs} {said}");
    }
    let harness = reads("{x: json}");
    harness.play("ann", AgentBehaviour::Say("no JSON".into()));
    let failed = end(&harness.run("x").await);
    assert!(
        failed.starts_with("its output must be JSON, because outputs has \"x: json\""),
        "{failed}"
    );
}

#[tokio::test(start_paused = true)]
async fn error_edges_survive_a_restart() {
    let harness = WorkflowHarness::new(&["name: test
entry_point: draft
nodes:
  draft: {type: agent, agent: ann, on_error: ask}
  ask: {type: human, question: '{{ error.code }}?'}
  repair: {type: agent, agent: cid, input: '{{ error.node }}'}
edges: [{from: ask, to: repair}]
"]);
    harness.play("ann", AgentBehaviour::Fail);
    let (runtime, task) = harness.start("x").await;
    assert_eq!(harness.question(task.id).await, "model_rejected?");
    drop(runtime);
    let runtime = harness.runtime(2);
    let task = harness.answer(&runtime, task.id, ReviewVerdict::Approve).await;
    assert_eq!(end(&task), "cid(draft)");
}

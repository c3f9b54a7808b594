//! Forks: tasks that continue from a checkpoint of another.

use crate::participants::ScriptedReply::{Ask, Text};
use crate::participants::TestModels;
use crate::prelude::*;
use crate::workflow_harness::{WorkflowHarness, comparable, end, workflow};

fn updates(value: Value) -> StateUpdates {
    let Value::Object(updates) = value else { panic!("updates are an object") };
    StateUpdates::new(updates).unwrap()
}

async fn fork(
    harness: &WorkflowHarness,
    runtime: &Runtime,
    of: TaskId,
    at: u32,
    set: Value,
) -> Task {
    let mut handle = runtime.fork(ForkRequest::new(of, at, updates(set))).await.unwrap();
    harness.wait(&mut handle).await
}

fn wide(join: &str) -> WorkflowHarness {
    workflow(&format!(
        "
  start: {{type: agent, agent: ann}}
  all: {{type: parallel, branches: [one, two, three], join: {join}}}
  one: {{type: agent, agent: bob, outputs: [one]}}
  two: {{type: tool, tool: kit/echo, arguments: {{text: 't {{{{ last }}}}', ms: 35}}}}
  three: {{type: condition, expression: 'input'}}
  other: {{type: agent, agent: eve, input: '{{{{ input }}}}!'}}
  check: {{type: condition, expression: '\"again\"'}}
  join: {{type: agent, agent: dot}}
edges:
  - {{from: start, to: all}}
  - {{from: start, to: other}}
  - {{from: all, to: check}}
  - {{from: other, to: check}}
  - {{from: check, to: {{again: all, default: join}}, max_loops: 1}}
max_iterations: 13
"
    ))
}

#[tokio::test(start_paused = true)]
async fn fork_from_any_checkpoint_has_the_same_outcome() {
    for join in ["all", "any", "first"] {
        let harness = wide(join);
        harness.takes("eve", 200);
        let (runtime, first) = harness.start("x").await;
        assert_eq!(first.status, TaskStatus::Completed, "{first:?}");
        let state = comparable(&harness.state(first.id).await);
        let checkpoints = harness.checkpoints(first.id);
        assert!(checkpoints.len() >= 5, "{checkpoints:?}");
        for (at, node) in checkpoints {
            let forked = fork(&harness, &runtime, first.id, at, json!({})).await;
            assert_eq!(end(&forked), end(&first), "{join} at {at}, {node}");
            // A fork keeps the messages of stopped branches up to its checkpoint.
            if join != "any" {
                let same = comparable(&harness.state(forked.id).await);
                assert_eq!(same, state, "{join} at {at}, {node}: {:?}", harness.nodes(forked.id));
            }
        }
        let missing = runtime
            .fork(ForkRequest::new(first.id, 99, StateUpdates::default()))
            .await
            .unwrap_err();
        assert!(missing.to_string().contains("has no checkpoint 99"), "{missing}");
    }
}

const CHOICE: &str = "
  start: {type: agent, agent: ann}
  which: {type: condition, expression: 'metadata.way'}
  left: {type: agent, agent: bob}
  right: {type: agent, agent: cid}
edges: [{from: start, to: which}, {from: which, to: {left: left, default: right}}]
";

#[tokio::test(start_paused = true)]
async fn fork_with_changed_state_takes_another_path_and_can_be_forked() {
    let harness = workflow(CHOICE);
    let runtime = harness.runtime(1);
    let mut order = harness.order("x");
    order.parameters.insert("way".to_owned(), "left".into());
    let first = harness.run_on(&runtime, order).await;
    assert_eq!(end(&first), "bob(ann(x))");
    let set = json!({"metadata.way": "right", "messages": ["by the way"]});
    let forked = fork(&harness, &runtime, first.id, 0, set).await;
    assert_eq!(end(&forked), "cid(ann(x))");
    let texts = harness.message_texts(forked.id).await;
    assert_eq!(texts, ["x", "ann(x)", "by the way", "cid(ann(x))"]);
    assert_eq!(end(&harness.base.task(first.id)), "bob(ann(x))", "the original is unchanged");
    assert_eq!(harness.nodes(forked.id)[0], "which: finish", "the fork repeats no completed node");
    // The fork numbers its checkpoints from 0: the condition, then the end.
    let again = fork(&harness, &runtime, forked.id, 0, json!({})).await;
    assert_eq!(end(&again), "cid(ann(x))");
    assert_eq!(harness.message_texts(again.id).await, texts);
    let third = fork(&harness, &runtime, again.id, 0, json!({"messages": ["more"]})).await;
    assert_eq!(
        harness.message_texts(third.id).await[..4],
        ["x", "ann(x)", "by the way", "cid(ann(x))"]
    );
    let refused =
        runtime.fork(ForkRequest::new(first.id, 0, updates(json!({"metadata.way.deep": 1})))).await;
    assert!(refused.unwrap_err().to_string().contains("has no fields"));
}

#[tokio::test(start_paused = true)]
async fn fork_at_a_review_opens_its_own_review() {
    let harness = workflow(
        "
  start: {type: agent, agent: ann}
  ask: {type: human, question: 'Go {{ metadata.where | default }}?'}
  end: {type: agent, agent: bob, input: '{{ nodes.ask.output }}'}
edges: [{from: start, to: ask}, {from: ask, to: end}]
checkpoints: [end]
",
    );
    let (runtime, first) = harness.start("x").await;
    let forked = fork(&harness, &runtime, first.id, 1, json!({"metadata.where": "home"})).await;
    assert_eq!(forked.status, TaskStatus::AwaitingHuman);
    assert_eq!(harness.question(forked.id).await, "Go home?");
    assert_eq!(harness.base.task(first.id).status, TaskStatus::AwaitingHuman);
    harness.base.answer(&runtime, forked.id, ReviewVerdict::Approve).await;
    // The next question follows the answer at once.
    assert!(harness.question(forked.id).await.contains("end, which gives work to bob"));
    let done = harness.answer(&runtime, forked.id, ReviewVerdict::Approve).await;
    assert_eq!(end(&done), "bob(ann(x))");
    let again = fork(&harness, &runtime, forked.id, 1, json!({})).await;
    assert_eq!(again.status, TaskStatus::AwaitingHuman, "the fork asks for approval again");
}

#[tokio::test(start_paused = true)]
async fn fork_inside_a_parallel_node_repeats_no_review() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, two], join: all}
  one: {type: condition, expression: 'input'}
  two: {type: agent, agent: ann}
checkpoints: [all]
",
    );
    let (runtime, Task { id, .. }) = harness.start("x").await;
    let first = harness.answer(&runtime, id, ReviewVerdict::Approve).await;
    let expected = comparable(&harness.state(id).await);
    for (at, node) in harness.checkpoints(id).into_iter().skip(1) {
        let forked = fork(&harness, &runtime, id, at, json!({})).await;
        assert_eq!(end(&forked), end(&first), "at {at}, {node}");
        assert_eq!(comparable(&harness.state(forked.id).await), expected, "at {at}, {node}");
    }
}

#[tokio::test(start_paused = true)]
async fn agent_task_can_be_forked() {
    let fixture = RuntimeFixture::new();
    let scripts = [("greeter", vec![Ask(vec![("files/delete", json!({"n": 1}))]), Text("over")])];
    let models = TestModels::new(scripts);
    let runtime = fixture.process(1, &models);
    let first = pause(&runtime, create_task("x")).await;
    let mut fork = runtime.fork(ForkRequest::new(first, 0, StateUpdates::default())).await.unwrap();
    assert_eq!(fork.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    fixture.answer(&runtime, fork.id, ReviewVerdict::Reject).await;
    assert_eq!(adopt(&runtime, fork.id).await, TaskStatus::Completed);
    assert_eq!(fixture.task(fork.id).result.as_deref(), Some("over"));
    assert_eq!(fixture.task(first).status, TaskStatus::AwaitingHuman);
}

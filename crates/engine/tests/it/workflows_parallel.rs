//! Parallel nodes: joins, outputs, and stopped branches.

use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, comparable, end, workflow};

fn parallel(join: &str) -> WorkflowHarness {
    workflow(&format!(
        "
  all: {{type: parallel, branches: [one, two, three], join: {join}}}
  one: {{type: agent, agent: ann}}
  two: {{type: agent, agent: bob}}
  three: {{type: tool, tool: kit/note, arguments: {{text: 't {{{{ last }}}}', ms: 60}}}}
  end: {{type: agent, agent: cid}}
edges: [{{from: all, to: end}}]
"
    ))
}

#[tokio::test(start_paused = true)]
async fn join_all_returns_branch_outputs_in_order() {
    let mut seen = BTreeSet::new();
    for (ann, bob) in [(5, 200), (200, 5), (60, 60)] {
        let harness = parallel("all");
        harness.all_take(&[("ann", ann), ("bob", bob)]);
        let task = harness.run("x").await;
        let all = "{\"one\":\"ann(x)\",\"three\":\"t x\",\"two\":\"bob(x)\"}";
        assert_eq!(end(&task), format!("cid({all})"));
        assert_eq!(harness.message_texts(task.id).await[1..4], ["ann(x)", "bob(x)", "t x"]);
        seen.insert(comparable(&harness.state(task.id).await).to_string());
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

#[tokio::test(start_paused = true)]
async fn simultaneous_nodes_keep_their_own_outputs() {
    let conditions = "
  one: {type: condition, expression: '\"a\"'}
  two: {type: condition, expression: '\"b\"'}
";
    let all = "  all: {type: parallel, branches: [one, two], join: all}";
    let task = workflow(&format!("{all}{conditions}")).run("x").await;
    assert_eq!(end(&task), "{\"one\":\"a\",\"two\":\"b\"}");

    let first = "  first: {type: agent, agent: ann}";
    let edges = "edges: [{from: first, to: one}, {from: first, to: two}]\n";
    let task = workflow(&format!("{first}{conditions}{edges}")).run("x").await;
    assert_eq!(end(&task), "a\n\nb");
}

#[tokio::test(start_paused = true)]
async fn join_all_fails_with_the_first_failure_and_stops_the_others() {
    for bob in [5, 500] {
        let harness = parallel("all");
        harness.play("ann", AgentBehaviour::Hang);
        harness.play("bob", AgentBehaviour::Fail);
        harness.takes("bob", bob);
        let task = harness.run("x").await;
        assert!(end(&task).starts_with("model_rejected: all: two: bob failed"), "{task:?}");
        for part in harness.base.sub_tasks(task.id) {
            assert!(part.status.is_final(), "{part:?}");
        }
        assert_eq!(harness.tools.dropped(), u32::from(bob == 5));
    }
}

#[tokio::test(start_paused = true)]
async fn join_any_takes_the_first_success_and_lets_the_others_finish() {
    let harness = parallel("any");
    harness.play("ann", AgentBehaviour::Fail);
    harness.takes("bob", 300);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "cid(t x)");
    assert_eq!(harness.message_texts(task.id).await, ["x", "bob(x)", "t x", "cid(t x)"]);
    // A later failure has no effect.
    let harness = parallel("any");
    harness.play("bob", AgentBehaviour::Fail);
    harness.takes("bob", 3000);
    assert_eq!(end(&harness.run("x").await), "cid(ann(x))");
}

#[tokio::test(start_paused = true)]
async fn join_any_fails_if_every_branch_fails() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, two], join: any}
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/error, arguments: {text: x, ms: 500}}
",
    );
    harness.play("ann", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    let expected = "tool_failed: all: every branch failed, two last: ";
    assert!(end(&task).starts_with(expected), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn join_first_takes_the_first_outcome_and_stops_the_others() {
    let harness = parallel("first");
    harness.takes("ann", 10);
    harness.play("bob", AgentBehaviour::Hang);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "cid(ann(x))");
    assert_eq!(harness.tools.dropped(), 1, "the tool call is abandoned");
    let parts = harness.base.sub_tasks(task.id);
    let with = |status| parts.iter().filter(|part| part.status == status).count();
    assert_eq!((with(TaskStatus::Completed), with(TaskStatus::Cancelled)), (2, 1));
    assert_eq!(harness.message_texts(task.id).await, ["x", "ann(x)", "cid(ann(x))"]);
    // A failure is an outcome too.
    let harness = parallel("first");
    harness.play("ann", AgentBehaviour::Hang);
    harness.play("bob", AgentBehaviour::Fail);
    harness.takes("bob", 5);
    assert!(end(&harness.run("x").await).starts_with("model_rejected: all: two: "));
    assert_eq!(harness.tools.dropped(), 1);
}

#[tokio::test(start_paused = true)]
async fn simultaneous_branches_have_one_winner() {
    for join in ["first", "any"] {
        let harness = workflow(&format!(
            "
  all: {{type: parallel, branches: [one, two, three], join: {join}}}
  one: {{type: tool, tool: kit/echo, arguments: {{text: one}}}}
  two: {{type: tool, tool: kit/echo, arguments: {{text: two}}}}
  three: {{type: tool, tool: kit/echo, arguments: {{text: three}}}}
  end: {{type: agent, agent: ann}}
edges: [{{from: all, to: end}}]
"
        ));
        let task = harness.run("x").await;
        assert!(end(&task).starts_with("ann("), "{join}: {task:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn condition_branch_wins_before_others_start() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, two, three], join: first}
  one: {type: agent, agent: ann}
  two: {type: condition, expression: 'input + \"!\"'}
  three: {type: tool, tool: kit/note, arguments: {text: three}}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
",
    );
    let task = harness.run("x").await;
    assert_eq!(end(&task), "bob(x!)");
    assert_eq!(harness.base.load(task.id).await.calls().open().count(), 0);
    assert_eq!(harness.tools.notes(), [""; 0]);
    assert_eq!(harness.base.sub_tasks(task.id).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn branch_start_failure_stops_started_branches() {
    let harness = workflow(
        "
  any: {type: parallel, branches: [all, fine], join: any}
  all: {type: parallel, branches: [one, two], join: all}
  one: {type: agent, agent: ann}
  two: {type: agent, agent: bob, input: '{{ metadata.missing.deep }}'}
  fine: {type: agent, agent: cid}
",
    );
    harness.play("ann", AgentBehaviour::Hang);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "cid(x)", "{:?}", harness.nodes(task.id));
}

#[tokio::test(start_paused = true)]
async fn parallel_nodes_nest() {
    let harness = workflow(
        "
  outer: {type: parallel, branches: [inner, three], join: all}
  inner: {type: parallel, branches: [one, two], join: first}
  one: {type: agent, agent: ann}
  two: {type: agent, agent: bob}
  three: {type: agent, agent: cid}
",
    );
    harness.takes("ann", 500);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "{\"inner\":\"bob(x)\",\"three\":\"cid(x)\"}");
    let nodes = harness.nodes(task.id);
    assert!(nodes.contains(&"one: drop".to_owned()), "{nodes:?}");
    // All running calls are dropped.
    let harness = workflow(
        "
  outer: {type: parallel, branches: [inner, three], join: first}
  inner: {type: parallel, branches: [one, two], join: all}
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/echo, arguments: {text: x, ms: 4000}}
  three: {type: agent, agent: cid}
",
    );
    harness.play("ann", AgentBehaviour::Hang);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "cid(x)");
    assert_eq!(harness.tools.dropped(), 1);
    assert!(harness.base.sub_tasks(task.id).iter().all(|part| part.status.is_final()));
}

#[tokio::test(start_paused = true)]
async fn human_node_can_be_a_branch() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, ask], join: all}
  one: {type: agent, agent: ann}
  ask: {type: human, question: 'Is {{ input }} fine?'}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
",
    );
    let (runtime, task) = harness.start("x").await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    assert_eq!(harness.question(task.id).await, "Is x fine?");
    assert!(
        harness.message_texts(task.id).await.contains(&"ann(x)".to_owned()),
        "the other branches ended first"
    );
    let task = harness.answer(&runtime, task.id, ReviewVerdict::Approve).await;
    assert_eq!(end(&task), "bob({\"ask\":\"x\",\"one\":\"ann(x)\"})");
}

#[tokio::test(start_paused = true)]
async fn rejected_branch_fails_its_parallel_node() {
    for (join, expected) in
        [("all", "rejected: all: ask: a person rejected it"), ("any", "asker(x)")]
    {
        let harness = workflow(&format!(
            "
  all: {{type: parallel, branches: [ask, one], join: {join}}}
  one: {{type: agent, agent: asker}}
  ask: {{type: human, question: Well?}}
"
        ));
        // The agent waits for a person too: both questions are open, in two tasks.
        let (runtime, task) = harness.start("x").await;
        assert_eq!(harness.question(task.id).await, "Well?");
        let part = harness.base.sub_tasks(task.id)[0].id;
        harness.base.answer(&runtime, task.id, ReviewVerdict::Reject).await;
        if join == "any" {
            assert_eq!(adopt(&runtime, task.id).await, TaskStatus::AwaitingHuman);
            harness.base.answer(&runtime, part, ReviewVerdict::Approve).await;
            let task = harness.go_on(&runtime, task.id).await;
            assert_eq!(end(&task), "asker(x)");
        } else {
            let task = harness.base.task(task.id);
            assert!(end(&task).starts_with(expected), "{task:?}");
            assert_eq!(
                harness.base.task(part).status,
                TaskStatus::Cancelled,
                "its result is no longer needed"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn winning_branch_stops_a_branch_that_awaits_review() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [ask, one], join: first}
  one: {type: agent, agent: asker}
  ask: {type: human, question: Well?}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
",
    );
    harness.play("bob", AgentBehaviour::Hang);
    let (runtime, Task { id, .. }) = harness.start("x").await;
    let part = harness.base.sub_tasks(id)[0].id;
    harness.base.answer(&runtime, id, ReviewVerdict::Approve).await;
    let _handle = runtime.adopt(id).await.unwrap();
    harness.base.until("it is ended", |fixture| fixture.task(part).status.is_final()).await;
    assert_eq!(harness.base.task(id).status, TaskStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_every_running_branch() {
    let harness = parallel("all");
    harness.play("ann", AgentBehaviour::Hang);
    harness.takes("bob", 100_000);
    let runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order("x")).await.unwrap();
    sleep(30).await;
    runtime.cancel(handle.id).await.unwrap();
    let task = harness.wait(&mut handle).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!(harness.tools.dropped(), 1);
    let parts = harness.base.sub_tasks(task.id);
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|part| part.status == TaskStatus::Cancelled), "{parts:?}");
}

#[tokio::test(start_paused = true)]
async fn edges_of_a_parallel_node_see_every_branch() {
    for (ann, bob) in [(5, 50), (50, 5)] {
        let harness = workflow(
            "
  all: {type: parallel, branches: [one, two]}
  one: {type: agent, agent: ann, outputs: [first]}
  two: {type: agent, agent: bob, outputs: [second]}
  end: {type: agent, agent: cid, input: seen}
edges:
  - from: all
    to: end
    condition: >-
      nodes.one.output == 'ann(x)' && nodes.two.output == 'bob(x)'
      && metadata.first == 'ann(x)' && metadata.second == 'bob(x)' && size(messages) == 3
",
        );
        harness.all_take(&[("ann", ann), ("bob", bob)]);
        assert_eq!(end(&harness.run("x").await), "cid(seen)");
    }
}

#[tokio::test(start_paused = true)]
async fn loop_edge_waits_for_a_review_in_a_parallel_node() {
    let harness = workflow(
        "
  start: {type: agent, agent: ann}
  again: {type: agent, agent: bob, input: b}
  both: {type: parallel, branches: [work, ask]}
  work: {type: agent, agent: cid, input: c}
  ask: {type: human, question: 'Well?'}
  end: {type: agent, agent: dot, input: d}
edges:
  - {from: start, to: again}
  - {from: start, to: both}
  - {from: again, to: start, condition: 'true', max_loops: 1}
  - {from: again, to: end}
  - {from: both, to: end}
",
    );
    let (runtime, mut task) = harness.start("x").await;
    for _ in 0..2 {
        assert_eq!(task.status, TaskStatus::AwaitingHuman, "{:?}", harness.nodes(task.id));
        task = harness.answer(&runtime, task.id, ReviewVerdict::Approve).await;
    }
    assert_eq!(end(&task), "dot(d)", "{:?}", harness.nodes(task.id));
}

#[tokio::test(start_paused = true)]
async fn join_any_still_opens_the_review_of_another_branch() {
    let harness = workflow(
        "
  either: {type: parallel, branches: [ask, work], join: any}
  ask: {type: human, question: 'Well?', outputs: [said]}
  work: {type: agent, agent: ann}
  end: {type: agent, agent: bob}
edges: [{from: either, to: end}]
",
    );
    let (runtime, task) = harness.start("x").await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    let nodes = harness.nodes(task.id);
    assert!(nodes.contains(&"end: finish".to_owned()), "{nodes:?}");
    // Nothing is left to run after the answer.
    harness.base.answer(&runtime, task.id, ReviewVerdict::Approve).await;
    assert_eq!(end(&harness.base.task(task.id)), "bob(ann(x))");
    assert_eq!(harness.state(task.id).await.metadata["said"], "x");
}

#[tokio::test(start_paused = true)]
async fn parallel_node_timeout_limits_its_branches() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, two], timeout_seconds: 2}
  one: {type: agent, agent: ann, timeout_seconds: 60}
  two: {type: agent, agent: bob}
",
    );
    harness.play("ann", AgentBehaviour::Hang);
    let task = harness.run("x").await;
    assert!(end(&task).starts_with("timeout: all: one: "), "{task:?}");
    assert!(end(&task).contains("the timeout_seconds of node all"), "{task:?}");
}

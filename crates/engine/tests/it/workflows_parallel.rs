//! Parallel nodes: when they are done, what comes out, and what becomes of the rest.

use std::collections::BTreeSet;
use std::time::Duration;

use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use serde_json::json;

use crate::workflow_harness::{Part, WorkflowHarness, end, told};

fn parallel(join: &str) -> WorkflowHarness {
    WorkflowHarness::new(&[&format!(
        "name: several
entry_point: all
nodes:
  all: {{type: parallel, branches: [one, two, three], join: {join}}}
  one: {{type: agent, agent: ann}}
  two: {{type: agent, agent: bob}}
  three: {{type: tool, tool: kit/note, arguments: {{text: 't {{{{ last }}}}', ms: 60}}}}
  end: {{type: agent, agent: cid}}
edges: [{{from: all, to: end}}]
"
    )])
}

#[tokio::test(start_paused = true)]
async fn all_gives_what_every_branch_gave_in_the_same_order() {
    let mut seen = BTreeSet::new();
    for (ann, bob) in [(5, 200), (200, 5), (60, 60)] {
        let scene = parallel("all");
        scene.takes("ann", ann);
        scene.takes("bob", bob);
        let task = scene.run("x").await;
        let all = "{\"one\":\"ann(x)\",\"three\":\"t x\",\"two\":\"bob(x)\"}";
        assert_eq!(end(&task), format!("cid({all})"));
        assert_eq!(scene.said(task.id).await[1..4], ["ann(x)", "bob(x)", "t x"]);
        seen.insert(told(&scene.state(task.id).await).to_string());
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_end_at_once_give_each_what_is_theirs() {
    let conditions = "
  one: {type: condition, expression: '\"a\"'}
  two: {type: condition, expression: '\"b\"'}
";
    let all = format!(
        "name: several\nentry_point: all\nnodes:
  all: {{type: parallel, branches: [one, two], join: all}}{conditions}edges: []\n"
    );
    let task = WorkflowHarness::new(&[&all]).run("x").await;
    assert_eq!(end(&task), "{\"one\":\"a\",\"two\":\"b\"}");

    let ends = format!(
        "name: several\nentry_point: first\nnodes:
  first: {{type: agent, agent: ann}}{conditions}edges:
  - {{from: first, to: one}}
  - {{from: first, to: two}}\n"
    );
    let task = WorkflowHarness::new(&[&ends]).run("x").await;
    assert_eq!(end(&task), "a\n\nb");
}

#[tokio::test(start_paused = true)]
async fn all_fails_with_its_first_failure_and_ends_the_others() {
    for bob in [5, 500] {
        let scene = parallel("all");
        scene.play("ann", Part::Hang);
        scene.play("bob", Part::Fail);
        scene.takes("bob", bob);
        let task = scene.run("x").await;
        assert!(end(&task).starts_with("model_rejected: all: two: bob failed"), "{task:?}");
        for part in scene.stage.sub_tasks(task.id) {
            assert!(part.status.is_final(), "{part:?}");
        }
        assert_eq!(scene.kit.dropped(), u32::from(bob == 5));
    }
}

#[tokio::test(start_paused = true)]
async fn any_takes_the_first_that_succeeds_and_lets_the_others_end() {
    let scene = parallel("any");
    scene.play("ann", Part::Fail);
    scene.takes("bob", 300);
    let task = scene.run("x").await;
    assert_eq!(end(&task), "cid(t x)");
    assert_eq!(scene.said(task.id).await, ["x", "bob(x)", "t x", "cid(t x)"]);
    // One that fails later does no harm.
    let scene = parallel("any");
    scene.play("bob", Part::Fail);
    scene.takes("bob", 3000);
    assert_eq!(end(&scene.run("x").await), "cid(ann(x))");
}

#[tokio::test(start_paused = true)]
async fn any_fails_when_every_branch_has() {
    let scene = WorkflowHarness::new(&["name: lost
entry_point: all
nodes:
  all: {type: parallel, branches: [one, two], join: any}
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/error, arguments: {text: x, ms: 500}}
"]);
    scene.play("ann", Part::Fail);
    let task = scene.run("x").await;
    assert!(
        end(&task).starts_with("tool_failed: all: every branch failed, two last: "),
        "{task:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn first_takes_whoever_ends_first_and_ends_the_others() {
    let scene = parallel("first");
    scene.takes("ann", 10);
    scene.play("bob", Part::Hang);
    let task = scene.run("x").await;
    assert_eq!(end(&task), "cid(ann(x))");
    assert_eq!(scene.kit.dropped(), 1, "the tool call is abandoned");
    let parts = scene.stage.sub_tasks(task.id);
    let with = |status| parts.iter().filter(|part| part.status == status).count();
    assert_eq!((with(TaskStatus::Completed), with(TaskStatus::Cancelled)), (2, 1));
    assert_eq!(scene.said(task.id).await, ["x", "ann(x)", "cid(ann(x))"]);
    // A failure is an end too.
    let scene = parallel("first");
    scene.play("ann", Part::Hang);
    scene.play("bob", Part::Fail);
    scene.takes("bob", 5);
    assert!(end(&scene.run("x").await).starts_with("model_rejected: all: two: "));
    assert_eq!(scene.kit.dropped(), 1);
}

#[tokio::test(start_paused = true)]
async fn branches_that_end_in_the_same_moment_are_one_winner() {
    for join in ["first", "any"] {
        let scene = WorkflowHarness::new(&[&format!(
            "name: same
entry_point: all
nodes:
  all: {{type: parallel, branches: [one, two, three], join: {join}}}
  one: {{type: tool, tool: kit/echo, arguments: {{text: one}}}}
  two: {{type: tool, tool: kit/echo, arguments: {{text: two}}}}
  three: {{type: tool, tool: kit/echo, arguments: {{text: three}}}}
  end: {{type: agent, agent: ann}}
edges: [{{from: all, to: end}}]
"
        )]);
        let task = scene.run("x").await;
        assert!(end(&task).starts_with("ann("), "{join}: {task:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_among_the_branches_is_first_and_nothing_else_is_begun() {
    let scene = WorkflowHarness::new(&["name: quick
entry_point: all
nodes:
  all: {type: parallel, branches: [one, two, three], join: first}
  one: {type: agent, agent: ann}
  two: {type: condition, expression: 'input + \"!\"'}
  three: {type: tool, tool: kit/note, arguments: {text: three}}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
"]);
    let task = scene.run("x").await;
    assert_eq!(end(&task), "bob(x!)");
    let state =
        polity_engine::runtime::load_task(&*scene.stage.store, task.id).await.unwrap().state;
    assert_eq!(state.calls().open().count(), 0);
    assert_eq!(scene.kit.noted(), [""; 0]);
    assert_eq!(scene.stage.sub_tasks(task.id).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_cannot_begin_ends_those_that_have() {
    let scene = WorkflowHarness::new(&["name: outer
entry_point: any
nodes:
  any: {type: parallel, branches: [all, fine], join: any}
  all: {type: parallel, branches: [one, two], join: all}
  one: {type: agent, agent: ann}
  two: {type: agent, agent: bob, input: '{{ metadata.missing.deep }}'}
  fine: {type: agent, agent: cid}
"]);
    scene.play("ann", Part::Hang);
    let task = scene.run("x").await;
    assert_eq!(end(&task), "cid(x)", "{:?}", scene.nodes(task.id));
}

#[tokio::test(start_paused = true)]
async fn parallel_nodes_stand_within_each_other() {
    let scene = WorkflowHarness::new(&["name: nested
entry_point: outer
nodes:
  outer: {type: parallel, branches: [inner, three], join: all}
  inner: {type: parallel, branches: [one, two], join: first}
  one: {type: agent, agent: ann}
  two: {type: agent, agent: bob}
  three: {type: agent, agent: cid}
"]);
    scene.takes("ann", 500);
    let task = scene.run("x").await;
    assert_eq!(end(&task), "{\"inner\":\"bob(x)\",\"three\":\"cid(x)\"}");
    let nodes = scene.nodes(task.id);
    assert!(nodes.contains(&"one: drop".to_owned()), "{nodes:?}");
    // What is given up is given up to the last.
    let scene = WorkflowHarness::new(&["name: nested
entry_point: outer
nodes:
  outer: {type: parallel, branches: [inner, three], join: first}
  inner: {type: parallel, branches: [one, two], join: all}
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/echo, arguments: {text: x, ms: 4000}}
  three: {type: agent, agent: cid}
"]);
    scene.play("ann", Part::Hang);
    let task = scene.run("x").await;
    assert_eq!(end(&task), "cid(x)");
    assert_eq!(scene.kit.dropped(), 1);
    assert!(scene.stage.sub_tasks(task.id).iter().all(|part| part.status.is_final()));
}

#[tokio::test(start_paused = true)]
async fn a_person_may_be_one_of_the_branches() {
    let scene = WorkflowHarness::new(&["name: asked
entry_point: all
nodes:
  all: {type: parallel, branches: [one, ask], join: all}
  one: {type: agent, agent: ann}
  ask: {type: human, question: 'Is {{ input }} fine?'}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
"]);
    let runtime = scene.runtime(1);
    let mut handle = runtime.create(scene.order("x")).await.unwrap();
    let task = scene.wait(&mut handle).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    assert_eq!(scene.question(task.id).await, "Is x fine?");
    assert!(scene.said(task.id).await.contains(&"ann(x)".to_owned()), "the others came first");
    let task = scene.answer(&runtime, task.id, ReviewVerdict::Approve).await;
    assert_eq!(end(&task), "bob({\"ask\":\"approve\",\"one\":\"ann(x)\"})");
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_a_person_decides_against_fails_its_parallel_node() {
    for (join, expected) in
        [("all", "rejected: all: ask: a person decided against it"), ("any", "asker(x)")]
    {
        let scene = WorkflowHarness::new(&[&format!(
            "name: asked
entry_point: all
nodes:
  all: {{type: parallel, branches: [ask, one], join: {join}}}
  one: {{type: agent, agent: asker}}
  ask: {{type: human, question: Well?}}
"
        )]);
        let runtime = scene.runtime(1);
        let mut handle = runtime.create(scene.order("x")).await.unwrap();
        // The agent waits for a person too: both questions are open, in two tasks.
        let task = scene.wait(&mut handle).await;
        assert_eq!(scene.question(task.id).await, "Well?");
        let part = scene.stage.sub_tasks(task.id)[0].id;
        scene
            .say(&runtime, task.id, ReviewVerdict::Reject, None, serde_json::json!({}))
            .await
            .unwrap();
        if join == "any" {
            let mut handle = runtime.adopt(task.id).await.unwrap();
            assert_eq!(scene.wait(&mut handle).await.status, TaskStatus::AwaitingHuman);
            scene
                .say(&runtime, part, ReviewVerdict::Approve, None, serde_json::json!({}))
                .await
                .unwrap();
            let task = scene.go_on(&runtime, task.id).await;
            assert_eq!(end(&task), "asker(x)");
        } else {
            let task = scene.stage.task(task.id);
            assert!(end(&task).starts_with(expected), "{task:?}");
            assert_eq!(scene.stage.task(part).status, TaskStatus::Cancelled, "no one waits for it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_person_is_ended_when_another_branch_is_first() {
    let scene = WorkflowHarness::new(&["name: asked
entry_point: all
nodes:
  all: {type: parallel, branches: [ask, one], join: first}
  one: {type: agent, agent: asker}
  ask: {type: human, question: Well?}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
"]);
    scene.play("bob", Part::Hang);
    let runtime = scene.runtime(1);
    let mut handle = runtime.create(scene.order("x")).await.unwrap();
    let id = scene.wait(&mut handle).await.id;
    let part = scene.stage.sub_tasks(id)[0].id;
    scene.say(&runtime, id, ReviewVerdict::Approve, None, serde_json::json!({})).await.unwrap();
    let _handle = runtime.adopt(id).await.unwrap();
    scene.stage.until("it is ended", |stage| stage.task(part).status.is_final()).await;
    assert_eq!(scene.stage.task(id).status, TaskStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_everything_that_is_at_work() {
    let scene = parallel("all");
    scene.play("ann", Part::Hang);
    scene.takes("bob", 100_000);
    let runtime = scene.runtime(1);
    let mut handle = runtime.create(scene.order("x")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    runtime.cancel(handle.id).await.unwrap();
    let task = scene.wait(&mut handle).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!(scene.kit.dropped(), 1);
    let parts = scene.stage.sub_tasks(task.id);
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|part| part.status == TaskStatus::Cancelled), "{parts:?}");
}

#[tokio::test(start_paused = true)]
async fn edges_of_a_parallel_node_see_every_branch_whichever_was_last() {
    for (ann, bob) in [(5, 50), (50, 5)] {
        let scene = WorkflowHarness::new(&["name: seen
entry_point: all
nodes:
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
"]);
        scene.takes("ann", ann);
        scene.takes("bob", bob);
        assert_eq!(end(&scene.run("x").await), "cid(seen)");
    }
}

#[tokio::test(start_paused = true)]
async fn a_way_back_waits_for_a_person_within_a_parallel_node_that_has_begun() {
    let scene = WorkflowHarness::new(&["name: held
entry_point: start
nodes:
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
"]);
    let runtime = scene.runtime(1);
    let mut handle = runtime.create(scene.order("x")).await.unwrap();
    assert_eq!(scene.wait(&mut handle).await.status, TaskStatus::AwaitingHuman);
    let task = scene.answer(&runtime, handle.id, ReviewVerdict::Approve).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman, "{:?}", scene.nodes(task.id));
    let task = scene.answer(&runtime, handle.id, ReviewVerdict::Approve).await;
    assert_eq!(end(&task), "dot(d)", "{:?}", scene.nodes(task.id));
}

#[tokio::test(start_paused = true)]
async fn any_still_asks_the_person_of_another_branch() {
    let scene = WorkflowHarness::new(&["name: anyone
entry_point: either
nodes:
  either: {type: parallel, branches: [ask, work], join: any}
  ask: {type: human, question: 'Well?', outputs: [said]}
  work: {type: agent, agent: ann}
  end: {type: agent, agent: bob}
edges: [{from: either, to: end}]
"]);
    let runtime = scene.runtime(1);
    let mut handle = runtime.create(scene.order("x")).await.unwrap();
    let task = scene.wait(&mut handle).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    assert!(scene.nodes(task.id).contains(&"end: finish".to_owned()), "{:?}", scene.nodes(task.id));
    // Nothing is left to do after the answer.
    scene.say(&runtime, task.id, ReviewVerdict::Approve, None, json!({})).await.unwrap();
    assert_eq!(end(&scene.stage.task(task.id)), "bob(ann(x))");
    assert_eq!(scene.state(task.id).await.metadata["said"], "approve");
}

#[tokio::test(start_paused = true)]
async fn branches_have_no_more_time_than_the_node_that_runs_them() {
    let scene = WorkflowHarness::new(&["name: short
entry_point: all
nodes:
  all: {type: parallel, branches: [one, two], timeout_seconds: 2}
  one: {type: agent, agent: ann, timeout_seconds: 60}
  two: {type: agent, agent: bob}
"]);
    scene.play("ann", Part::Hang);
    let task = scene.run("x").await;
    assert!(end(&task).starts_with("timeout: all: one: "), "{task:?}");
    assert!(end(&task).contains("the timeout_seconds of node all"), "{task:?}");
}

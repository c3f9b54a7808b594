//! Maps: items, limits, failures, crashes and forks.

use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, comparable, end, workflow};

/// A map over the JSON list of the input.
fn map(step: &str, more: &str) -> WorkflowHarness {
    workflow(&format!(
        "
  each: {{type: map, over: '{{{{ input }}}}', node: {step}{more}}}
"
    ))
}

const ECHO: &str = "{type: tool, tool: kit/echo, arguments: {text: '{{ item_index }} {{ item }}'}}";
const NOTE: &str = "{type: tool, tool: kit/note, arguments: {text: '{{ item }}'}}";

/// A list of numbers as texts.
fn list(count: usize) -> String {
    json!((0..count).map(|number| format!("i{number}")).collect::<Vec<_>>()).to_string()
}

#[tokio::test(start_paused = true)]
async fn outputs_are_in_the_order_of_the_list() {
    let step = "{type: tool, tool: kit/echo, arguments: {text: '{{ item_index }} {{ it }}', ms: '{{ 50 - item_index * 10 }}'}}";
    let task = map(step, ", as: it").run("[\"a\", 2, {\"b\": 3}]").await;
    let expected = json!(["0 a", "1 2", "2 {'b': 3}"]);
    assert_eq!(serde_json::from_str::<Value>(&end(&task)).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_step_runs_for_items() {
    let sub = "name: sub\nentry_point: s\nnodes: {s: {type: agent, agent: bob}}\n";
    for (step, expected) in [
        ("node: {type: agent, agent: ann}", json!(["ann(1)", "ann(x)"])),
        (
            "node: {type: agent, agent: ann, input: 'an {{ item }}'}",
            json!(["ann(an 1)", "ann(an x)"]),
        ),
        ("workflow: sub", json!(["bob(1)", "bob(x)"])),
        ("node: {type: condition, expression: 'item == \"x\"'}", json!([false, true])),
        ("node: {type: condition, expression: 'item_index'}", json!([0, 1])),
    ] {
        let main = format!(
            "name: test\nentry_point: each\nnodes: {{each: {{type: map, over: [1, x], {step}}}}}\n"
        );
        let harness = WorkflowHarness::new(&[&main, sub]);
        let task = harness.run("go").await;
        assert_eq!(
            serde_json::from_str::<Value>(&end(&task)).unwrap_or_default(),
            expected,
            "{step}: {task:?}"
        );
        // Items add no messages.
        assert_eq!(harness.message_texts(task.id).await, ["go"]);
    }
}

#[tokio::test(start_paused = true)]
async fn output_is_read_by_the_next_node() {
    let harness = workflow(
        "
  each: {type: map, over: [1, 2], node: {type: agent, agent: ann}, outputs: {all: json}}
  next: {type: agent, agent: bob, input: '{{ metadata.all[1] }} of {{ nodes.each.json | length }}, {{ last }}'}
edges: [{from: each, to: next}]
",
    );
    let task = harness.run("x").await;
    assert_eq!(end(&task), "bob(ann(2) of 2, [\"ann(1)\",\"ann(2)\"])");
}

#[tokio::test(start_paused = true)]
async fn text_stays_text_unless_json_is_declared() {
    for (outputs, expected) in
        [("[all]", json!(["{\"a\": 1}"])), ("{all: json}", json!([{"a": 1}]))]
    {
        let harness = map("{type: agent, agent: ann}", &format!(", outputs: {outputs}"));
        harness.play("ann", AgentBehaviour::Say("{\"a\": 1}".to_owned()));
        let task = harness.run("[1]").await;
        assert_eq!(serde_json::from_str::<Value>(&end(&task)).unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn empty_list_gives_an_empty_list() {
    for step in [ECHO, "{type: condition, expression: 'item'}", "{type: agent, agent: ann}"] {
        let harness = map(step, "");
        let task = harness.run("[]").await;
        assert_eq!((task.status, end(&task).as_str()), (TaskStatus::Completed, "[]"), "{step}");
        assert_eq!(harness.tools.calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn anything_but_a_list_is_refused() {
    for (input, found) in [
        ("{\"a\": 1}", "a text that is not a JSON list"),
        ("nothing", "a text that is not a JSON list"),
        ("[1, 2", "a text that is not a JSON list"),
    ] {
        let task = map(ECHO, "").run(input).await;
        let expected =
            format!("condition_failed: each: its over gives {found}, but a list is needed");
        assert!(end(&task).starts_with(&expected), "{task:?}");
    }
    let harness =
        workflow("  each: {type: map, over: '{{ metadata }}', node: {type: agent, agent: ann}}\n");
    let expected = "condition_failed: each: its over gives a mapping, but a list is needed: {}";
    assert_eq!(end(&harness.run("x").await), expected);
}

#[tokio::test(start_paused = true)]
async fn items_are_limited() {
    let three = |limits| Limits { map_items: NonZeroU32::new(3).unwrap(), ..limits };
    let task = map(ECHO, "").limited(three).run(&list(3)).await;
    assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
    let harness = map(ECHO, "").limited(three);
    let task = harness.run(&list(4)).await;
    let expected = "limit_items: each: its list has 4 items, more than the 3 that limits.map_items \
                    in polity.yaml allows; raise it there, or split the list";
    assert_eq!(end(&task), expected);
    assert_eq!(harness.tools.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn list_that_is_too_long_for_a_template_names_the_limit_of_the_map() {
    for over in
        ["nodes.plan.output.items", "nodes.plan.output.items | list", "range(1000000) | list"]
    {
        let nodes = format!(
            "  plan: {{type: agent, agent: ann}}\n  \
             each: {{type: map, over: '{{{{ {over} }}}}', node: {{type: condition, expression: item}}}}\n"
        );
        let harness = workflow(&format!("{nodes}edges: [{{from: plan, to: each}}]\n"));
        let plan = json!({"items": vec![0; 1_000_000]}).to_string();
        harness.play("ann", AgentBehaviour::Say(plan));
        let expected = "limit_items: each: its list has 1000000 items, more than the 10000 that \
                        limits.map_items in polity.yaml allows; raise it there, to at most 100000, \
                        and split the list";
        assert_eq!(end(&harness.run("x").await), expected, "{over}");
    }
}

/// The largest number of items that were open at once.
fn most_open(harness: &WorkflowHarness, id: TaskId) -> usize {
    let (mut open, mut most) = (BTreeSet::new(), 0);
    for event in harness.base.events(id) {
        match event {
            Event::NodeChanged { change: NodeChange::StartItem { call, .. }, .. } => {
                open.insert(call.id);
            }
            Event::ToolChanged { call_id, change: ToolChange::Answer { item, .. } } => {
                assert!(item.is_some() && open.remove(&call_id));
            }
            _ => {}
        }
        most = most.max(open.len());
    }
    most
}

#[tokio::test(start_paused = true)]
async fn at_most_max_parallel_items_are_open() {
    for (more, expected) in [("", 8), (", max_parallel: 1", 1), (", max_parallel: 3", 3)] {
        let harness = map(ECHO, more);
        let task = harness.run(&list(20)).await;
        assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
        assert_eq!(most_open(&harness, task.id), expected);
        assert_eq!(harness.tools.calls(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn first_failed_item_fails_the_map_and_stops_the_others() {
    let step = "{type: tool, tool: 'kit/error', arguments: {text: '{{ item }}', ms: 10}}";
    let harness = workflow(&format!(
        "
  each: {{type: map, over: [a], node: {step}}}
"
    ));
    assert_eq!(end(&harness.run("x").await), "tool_failed: each: item 0: no: a");

    let harness = map("{type: agent, agent: ann}", ", max_parallel: 4");
    harness.play("ann", AgentBehaviour::Fail);
    let task = harness.run(&list(10)).await;
    assert!(end(&task).starts_with("model_rejected: each: item 0: ann failed"), "{task:?}");
    let parts = harness.base.sub_tasks(task.id);
    assert_eq!(parts.len(), 4);
    assert!(parts.iter().all(|part| part.status.is_final()), "{parts:?}");
}

#[tokio::test(start_paused = true)]
async fn collected_failures_are_in_the_place_of_their_items() {
    let step = "{type: tool, tool: kit/echo, arguments: {text: '{{ item.text }}'}}";
    let harness = map(step, ", on_item_error: collect");
    let task = harness.run("[{\"text\": \"a\"}, {}, {\"text\": 7}, {\"text\": \"d\"}]").await;
    let outputs: Value = serde_json::from_str(&end(&task)).unwrap();
    assert_eq!((&outputs[0], &outputs[3]), (&json!("a"), &json!("d")));
    assert_eq!(outputs[1]["error"]["code"], "condition_failed", "{outputs}");
    assert_eq!(outputs[1]["error"]["category"], "permanent", "{outputs}");
    let harness = map("{type: agent, agent: ann}", ", on_item_error: collect");
    harness.play("ann", AgentBehaviour::Fail);
    let outputs: Value = serde_json::from_str(&end(&harness.run(&list(3)).await)).unwrap();
    let message = outputs[2]["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("ann failed (model_rejected): "), "{message}");
    let harness = map("{type: condition, expression: '1 / item'}", ", on_item_error: collect");
    let outputs: Value = serde_json::from_str(&end(&harness.run("[1, 0, 1]").await)).unwrap();
    assert_eq!((&outputs[0], &outputs[2]), (&json!(1), &json!(1)));
    assert_eq!(outputs[1]["error"]["code"], "condition_failed", "{outputs}");
}

#[tokio::test(start_paused = true)]
async fn items_have_retries_and_timeouts_of_their_own() {
    let harness = map(NOTE, ", max_parallel: 2");
    harness.tools.lose(3);
    let task = harness.run(&list(4)).await;
    assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
    assert_eq!(harness.tools.calls(), 7);
    let step =
        "{type: tool, tool: kit/echo, arguments: {text: x, ms: '{{ item }}'}, timeout_seconds: 2}";
    let harness = map(step, ", on_item_error: collect");
    let outputs: Value = serde_json::from_str(&end(&harness.run("[10, 4000]").await)).unwrap();
    assert_eq!(outputs[0], "x");
    assert_eq!(outputs[1]["error"]["code"], "timeout", "{outputs}");
}

#[tokio::test(start_paused = true)]
async fn conditions_end_in_batches() {
    let harness = map("{type: condition, expression: 'item_index'}", "");
    let task = harness.run(&list(2500)).await;
    let expected: Vec<usize> = (0..2500).collect();
    assert_eq!(end(&task), json!(expected).to_string());
    let batches: Vec<String> =
        harness.nodes(task.id).into_iter().filter(|change| change.contains("from")).collect();
    assert_eq!(
        batches,
        ["each: finish 1000 from 0", "each: finish 1000 from 1000", "each: finish 500 from 2000"]
    );
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_the_open_items() {
    let harness = map("{type: agent, agent: ann}", ", max_parallel: 3");
    harness.play("ann", AgentBehaviour::Hang);
    let runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order(&list(10))).await.unwrap();
    sleep(100).await;
    runtime.cancel(handle.id).await.unwrap();
    let task = harness.wait(&mut handle).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    let parts = harness.base.sub_tasks(task.id);
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.status == TaskStatus::Cancelled), "{parts:?}");
    most_open(&harness, task.id);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_branch_gives_up_its_items() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [each, fast], join: first}
  each: {type: map, over: [1, 2, 3], max_parallel: 2, node: {type: agent, agent: ann}}
  fast: {type: tool, tool: kit/echo, arguments: {text: won, ms: 50}}
",
    );
    harness.play("ann", AgentBehaviour::Hang);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "won");
    let parts = harness.base.sub_tasks(task.id);
    assert!(parts.len() == 2 && parts.iter().all(|part| part.status == TaskStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn resume_repeats_repeatable_items_and_asks_about_others() {
    for (step, asks) in [(ECHO, false), (NOTE, true)] {
        let harness = map(step, ", max_parallel: 2");
        let first = harness.runtime(1);
        let handle = first.create(harness.order(&list(5))).await.unwrap();
        // Two items are done and two in progress.
        sleep(30).await;
        drop(first);
        harness.base.leases.end(instance_id(1));
        let runtime = harness.runtime(2);
        let mut task = harness.go_on(&runtime, handle.id).await;
        let mut reviews = 0;
        while task.status == TaskStatus::AwaitingHuman {
            reviews += 1;
            let question = harness.question(task.id).await;
            assert!(question.contains("unknown whether the call took effect"), "{question}");
            let skip = ReviewVerdict::SkipWith { result: format!("skipped {reviews}") };
            harness.base.answer(&runtime, task.id, skip).await;
            task = harness.base.task(task.id);
            if !task.status.is_final() {
                task = harness.go_on(&runtime, task.id).await;
            }
        }
        assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
        assert_eq!(reviews, if asks { 2 } else { 0 }, "{:?}", harness.nodes(task.id));
        let outputs: Vec<String> = serde_json::from_str(&end(&task)).unwrap();
        assert_eq!(outputs.len(), 5);
        let expected = if asks { "i0" } else { "0 i0" };
        assert_eq!(outputs[0], expected);
        // An item that has ended is not called again.
        assert_eq!(harness.tools.notes().len(), if asks { 5 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn fork_continues_with_the_unfinished_items() {
    let harness = workflow(
        "
  start: {type: agent, agent: ann}
  each: {type: map, over: [a, b, c, d, e, f], max_parallel: 2, node: {type: tool, tool: kit/note, arguments: {text: '{{ item }}', ms: 100}}}
  beside: {type: tool, tool: kit/echo, arguments: {text: x, ms: 250}}
  end: {type: agent, agent: bob, input: '{{ nodes.each.output }}'}
edges: [{from: start, to: each}, {from: start, to: beside}, {from: each, to: end}, {from: beside, to: end}]
",
    );
    let (runtime, first) = harness.start("x").await;
    let expected = "bob([\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"])";
    assert_eq!(end(&first), expected);
    let state = comparable(&harness.state(first.id).await);
    for (at, node) in harness.checkpoints(first.id) {
        let before = harness.tools.notes().len();
        let fork = ForkRequest::new(first.id, at, StateUpdates::default());
        let mut handle = runtime.fork(fork).await.unwrap();
        let forked = harness.wait(&mut handle).await;
        assert_eq!(end(&forked), expected, "at {at}, {node}");
        assert_eq!(comparable(&harness.state(forked.id).await), state);
        let again = harness.tools.notes().len() - before;
        let all = match node.as_str() {
            "start" => 6,
            "beside" => 2,
            _ => 0,
        };
        assert_eq!(again, all, "at {at}, {node}: {:?}", harness.nodes(forked.id));
    }
}

#[tokio::test(start_paused = true)]
async fn map_runs_again_in_a_loop_with_a_new_list() {
    let harness = workflow(
        "
  each: {type: map, over: '{{ metadata.list | default([1, 2]) }}', node: {type: condition, expression: 'item * 2'}, outputs: {list: json}}
  check: {type: condition, expression: '\"again\"'}
  end: {type: agent, agent: bob, input: '{{ nodes.each.output }}'}
edges: [{from: each, to: check}, {from: check, to: {again: each, default: end}, max_loops: 2}]
",
    );
    assert_eq!(end(&harness.run("x").await), "bob([8,16])");
}

#[tokio::test(start_paused = true)]
async fn items_do_not_count_as_sub_agents_of_the_task() {
    let two = |limits| Limits { sub_agents: NonZeroU32::new(2).unwrap(), ..limits };
    let main = "name: test\nentry_point: each\nnodes:\n  each: {type: map, over: [1, 2, 3, 4], workflow: sub}\n  end: {type: agent, agent: cid}\nedges: [{from: each, to: end}]\n";
    let sub = "name: sub\nentry_point: s\nnodes:\n  s: {type: agent, agent: ann}\n  t: {type: agent, agent: bob}\nedges: [{from: s, to: t}]\n";
    let harness = WorkflowHarness::new(&[main, sub]).limited(two);
    let task = harness.run("x").await;
    assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
    let tree = harness.base.store.task_tree(task.id).await.unwrap();
    assert_eq!((tree.task_count, tree.item_task_count), (14, 12));
    // Each item has the limit of its own.
    let one = |limits| Limits { sub_agents: NonZeroU32::new(1).unwrap(), ..limits };
    let task = WorkflowHarness::new(&[main, sub]).limited(one).run("x").await;
    assert!(end(&task).contains("the most that limits.sub_agents allows"), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn item_that_waits_for_a_person_does_not_stop_the_others() {
    let harness = map("{type: agent, agent: asker}", ", max_parallel: 2");
    let (runtime, mut task) = harness.start(&list(3)).await;
    let mut reviews = 0;
    while task.status == TaskStatus::AwaitingHuman {
        for part in harness.base.sub_tasks(task.id) {
            if part.status == TaskStatus::AwaitingHuman {
                reviews += 1;
                harness.base.answer(&runtime, part.id, ReviewVerdict::Approve).await;
            }
        }
        task = harness.go_on(&runtime, task.id).await;
    }
    assert_eq!(reviews, 3);
    assert_eq!(end(&task), json!(["asker(i0)", "asker(i1)", "asker(i2)"]).to_string());
}

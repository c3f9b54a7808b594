//! Paths through a workflow: edges, joins, mappings, loops and data.

use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, comparable, end, workflow};

#[tokio::test(start_paused = true)]
async fn each_node_receives_the_previous_output() {
    let harness = workflow(
        "
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/echo, arguments: {text: '<{{ last }}>'}}
  three: {type: agent, agent: bob, input: '{{ input }} {{ nodes.one.output }} {{ last }}'}
edges: [{from: one, to: two}, {from: two, to: three}]
",
    );
    let task = harness.run("hi").await;
    assert_eq!(end(&task), "bob(hi ann(hi) <ann(hi)>)");
    assert_eq!(harness.message_texts(task.id).await[..3], ["hi", "ann(hi)", "<ann(hi)>"]);
    let expected = [(0, "one"), (1, "two"), (2, "three")].map(|(at, node)| (at, node.to_owned()));
    assert_eq!(harness.checkpoints(task.id), expected);
}

const DIAMOND: &str = "
  start: {type: agent, agent: ann}
  left: {type: agent, agent: bob, outputs: [left]}
  right: {type: agent, agent: cid, outputs: [right]}
  end: {type: agent, agent: dot, input: '{{ metadata.left }} {{ metadata.right }} {{ last }}'}
edges: [{from: start, to: left}, {from: start, to: right}, {from: left, to: end},
        {from: right, to: end}]
";

#[tokio::test(start_paused = true)]
async fn join_waits_for_both_sides_and_is_deterministic() {
    let mut seen = BTreeSet::new();
    for (bob, cid) in [(10, 90), (90, 10), (50, 50), (1, 1000)] {
        let harness = workflow(DIAMOND);
        harness.all_take(&[("bob", bob), ("cid", cid)]);
        let task = harness.run("x").await;
        assert_eq!(end(&task), "dot(bob(ann(x)) cid(ann(x)) cid(ann(x)))");
        assert_eq!(harness.message_texts(task.id).await[2..4], ["bob(ann(x))", "cid(ann(x))"]);
        seen.insert(comparable(&harness.state(task.id).await).to_string());
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn unjoined_paths_leave_a_deterministic_state() {
    let mut seen = BTreeSet::new();
    for (bob, cid, dot, eve) in [(10, 90, 10, 10), (90, 10, 10, 10), (10, 20, 100, 5)] {
        let harness = workflow(
            "
  start: {type: agent, agent: ann}
  one: {type: agent, agent: bob}
  two: {type: agent, agent: cid}
  which: {type: condition, expression: '\"left\"'}
  that: {type: condition, expression: '\"right\"'}
  three: {type: agent, agent: dot}
  four: {type: agent, agent: eve}
edges: [{from: start, to: one}, {from: start, to: two}, {from: one, to: which},
        {from: two, to: that}, {from: which, to: three}, {from: that, to: four}]
",
        );
        harness.all_take(&[("bob", bob), ("cid", cid), ("dot", dot), ("eve", eve)]);
        let task = harness.run("x").await;
        assert_eq!(end(&task), "dot(bob(ann(x)))\n\neve(cid(ann(x)))", "two end nodes");
        seen.insert(comparable(&harness.state(task.id).await).to_string());
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

const DEAD: &str = "
  which: {type: condition, expression: 'input'}
  left: {type: agent, agent: ann}
  right: {type: agent, agent: bob}
  behind: {type: agent, agent: cid}
  join: {type: agent, agent: dot}
edges:
  - {from: which, to: {left: left, right: right, default: join}}
  - {from: right, to: behind}
  - {from: left, to: join}
  - {from: behind, to: join}
";

#[tokio::test(start_paused = true)]
async fn join_ignores_a_skipped_side() {
    assert_eq!(end(&workflow(DEAD).run("left").await), "dot(ann(left))");
    assert_eq!(end(&workflow(DEAD).run("right").await), "dot(cid(bob(right)))");
    let harness = workflow(DEAD);
    let task = harness.run("neither").await;
    assert_eq!(end(&task), "dot(neither)", "the default");
    assert_eq!(harness.nodes(task.id), ["which: finish", "join: start", "join: finish"]);
}

#[tokio::test(start_paused = true)]
async fn every_matching_edge_is_taken_and_no_match_fails() {
    let harness = || {
        workflow(
            "
  one: {type: agent, agent: ann}
  two: {type: agent, agent: bob}
  three: {type: agent, agent: cid}
edges:
  - {from: one, to: two, condition: 'input.contains(\"b\")'}
  - {from: one, to: three, condition: 'input.contains(\"c\")'}
",
        )
    };
    assert_eq!(end(&harness().run("b").await), "bob(ann(b))");
    assert_eq!(end(&harness().run("bc").await), "bob(ann(bc))\n\ncid(ann(bc))");
    let harness = harness();
    let task = harness.run("x").await;
    assert!(
        end(&task).starts_with("no_edge: one: no outgoing edge matches the routing key"),
        "{task:?}"
    );
    assert_eq!(task.result.as_deref(), None, "a failed task has no result");
}

#[tokio::test(start_paused = true)]
async fn mapping_without_key_or_default_fails() {
    let harness = workflow(
        "
  which: {type: condition, expression: 'input'}
  a: {type: agent, agent: ann}
  b: {type: agent, agent: bob}
edges: [{from: which, to: {a: a, b: b}}]
",
    );
    let task = harness.run("c").await;
    assert!(end(&task).contains("the routing key \"c\""), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn evaluation_error_fails_the_node_and_the_task() {
    for (node, edge) in [
        ("{type: condition, expression: 'metadata.missing.deep'}", ""),
        ("{type: agent, agent: ann, input: '{{ metadata.missing.deep }}'}", ""),
        ("{type: tool, tool: kit/echo, arguments: {text: '{{ metadata.missing.deep }}'}}", ""),
        ("{type: human, question: '{{ metadata.missing.deep }}'}", ""),
        ("{type: agent, agent: ann, input: ' {{ \"\" }} '}", ""),
        ("{type: agent, agent: ann}", ", condition: 'metadata.missing > 3'"),
    ] {
        let harness = workflow(&format!(
            "  one: {node}\n  end: {{type: agent, agent: bob}}\nedges: [{{from: one, to: end{edge}}}]\n"
        ));
        let task = harness.run("x").await;
        assert!(end(&task).starts_with("condition_failed: one: "), "{node}: {task:?}");
        assert_eq!(harness.nodes(task.id).last().unwrap(), "one: condition_failed");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beside_an_instant_failure_are_answered() {
    let harness = workflow(
        "
  which: {type: condition, expression: 'input'}
  good: {type: tool, tool: kit/note, arguments: {text: good}}
  also: {type: agent, agent: ann}
  bad: {type: agent, agent: bob, input: '{{ metadata.missing.deep }}'}
edges: [{from: which, to: good}, {from: which, to: also}, {from: which, to: bad}]
",
    );
    let task = harness.run("x").await;
    assert!(end(&task).starts_with("condition_failed: bad"), "{task:?}");
    assert_eq!(
        harness.base.load(task.id).await.calls().open().count(),
        0,
        "no call is left without an answer"
    );
    assert_eq!(harness.tools.notes(), [""; 0], "an ended task calls no tool");
    assert!(harness.base.sub_tasks(task.id).is_empty());
}

fn looping(max_loops: u32, rest: &str) -> WorkflowHarness {
    workflow(&format!(
        "
  write: {{type: agent, agent: ann}}
  check: {{type: condition, expression: 'input == \"\" ? \"never\" : \"again\"'}}
  end: {{type: agent, agent: bob, input: end}}
edges:
  - {{from: write, to: check}}
  - {{from: check, to: {{again: write, {rest}: end}}, max_loops: {max_loops}}}
"
    ))
}

#[tokio::test(start_paused = true)]
async fn loop_stops_at_its_limit() {
    for loops in [1, 2, 5] {
        for (rest, expected) in [("default", "bob(end)"), ("never", "limit_loops: check: ")] {
            let harness = looping(loops, rest);
            let task = harness.run("x").await;
            assert!(end(&task).starts_with(expected), "{task:?}");
            assert_eq!(harness.starts(task.id, "write"), loops as usize + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_node_receives_the_output_that_led_back() {
    let harness = looping(2, "default");
    let task = harness.run("x").await;
    let texts = harness.message_texts(task.id).await;
    assert_eq!(texts, ["x", "ann(x)", "ann(ann(x))", "ann(ann(ann(x)))", "bob(end)"]);
}

#[tokio::test(start_paused = true)]
async fn loop_edges_to_one_node_are_counted_separately() {
    let harness = workflow(
        "
  write: {type: agent, agent: ann}
  check: {type: agent, agent: bob, input: 'b'}
  end: {type: agent, agent: cid, input: end}
edges:
  - {from: write, to: check}
  - {from: check, to: write, condition: 'false', max_loops: 1}
  - {from: check, to: write, condition: 'true', max_loops: 3}
  - {from: check, to: end}
",
    );
    let task = harness.run("x").await;
    assert_eq!(end(&task), "cid(end)");
    assert_eq!(harness.starts(task.id, "write"), 4);
}

#[tokio::test(start_paused = true)]
async fn loop_edge_waits_for_running_nodes_behind_its_target() {
    for slow in [5, 500] {
        let harness = workflow(
            "
  start: {type: agent, agent: ann}
  quick: {type: agent, agent: bob, input: q}
  slow: {type: agent, agent: cid, input: s}
  join: {type: agent, agent: dot, input: j}
edges:
  - {from: start, to: quick}
  - {from: start, to: slow}
  - {from: quick, to: start, condition: 'true', max_loops: 2}
  - {from: quick, to: join}
  - {from: slow, to: join}
",
        );
        harness.takes("cid", slow);
        let task = harness.run("x").await;
        assert_eq!(end(&task), "dot(j)");
        let nodes = harness.nodes(task.id);
        let runs = ["start", "quick", "slow", "join"].map(|node| harness.starts(task.id, node));
        assert_eq!(runs, [3, 3, 3, 1], "{nodes:?}");
        let mut at_work = 0_i32;
        for node in &nodes {
            match node.as_str() {
                "slow: start" => at_work += 1,
                "slow: finish" => at_work -= 1,
                "start: start" => assert_eq!(at_work, 0, "{nodes:?}"),
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn simultaneous_loop_edges_restart_the_target_once() {
    let mut seen = BTreeSet::new();
    for (bob, cid) in [(5, 50), (50, 5), (20, 20)] {
        let harness = workflow(
            "
  start: {type: agent, agent: ann}
  middle: {type: agent, agent: eve}
  one: {type: agent, agent: bob, input: '1 {{ last }}'}
  two: {type: agent, agent: cid, input: '2 {{ last }}'}
  join: {type: agent, agent: dot}
edges:
  - {from: start, to: middle}
  - {from: middle, to: one}
  - {from: middle, to: two}
  - {from: one, to: start, condition: 'true', max_loops: 1}
  - {from: two, to: middle, condition: 'true', max_loops: 1}
  - {from: one, to: join}
  - {from: two, to: join}
",
        );
        harness.all_take(&[("bob", bob), ("cid", cid)]);
        let task = harness.run("x").await;
        assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
        let runs = ["start", "middle", "one", "join"].map(|node| harness.starts(task.id, node));
        assert_eq!(runs, [2, 2, 2, 1], "{:?}", harness.nodes(task.id));
        seen.insert(comparable(&harness.state(task.id).await).to_string());
    }
    assert_eq!(seen.len(), 1, "{seen:#?}");
}

#[tokio::test(start_paused = true)]
async fn workflow_fails_at_its_node_limit() {
    let harness = workflow(
        "
  write: {type: agent, agent: ann}
  check: {type: condition, expression: '\"again\"'}
edges:
  - {from: write, to: check}
  - {from: check, to: write, max_loops: 100}
max_iterations: 4
",
    );
    let task = harness.run("x").await;
    assert!(end(&task).starts_with("limit_iterations: "), "{task:?}");
    assert_eq!(harness.models.called().len(), 2);
    assert_eq!(task.result.as_deref(), Some("again"), "the partial result is kept");
}

#[tokio::test(start_paused = true)]
async fn reader_runs_after_the_writer_of_its_data() {
    for (ann, bob) in [(5, 50), (50, 5)] {
        let harness = workflow("
  start: {type: condition, expression: 'input'}
  last: {type: agent, agent: cid, inputs: [one, two], input: '{{ metadata.one }} {{ metadata.two.n }}'}
  writes_one: {type: agent, agent: ann, outputs: [one]}
  writes_two: {type: agent, agent: bob, outputs: {two: json}}
edges: [{from: start, to: writes_one}, {from: start, to: writes_two}]
");
        harness.all_take(&[("ann", ann), ("bob", bob)]);
        harness.play("bob", AgentBehaviour::Say("{\"n\": 7}".into()));
        let task = harness.run("x").await;
        assert_eq!(end(&task), "cid(ann(x) 7)");
    }
}

#[tokio::test(start_paused = true)]
async fn branch_waits_for_its_data() {
    for (ann, bob) in [(5, 50), (50, 5)] {
        let harness = workflow("
  start: {type: condition, expression: 'input'}
  all: {type: parallel, branches: [reads, writes], join: all}
  reads: {type: agent, agent: cid, inputs: [one, two], input: '{{ metadata.one }} {{ metadata.two }}'}
  writes: {type: agent, agent: ann, outputs: [one]}
  beside: {type: agent, agent: bob, outputs: [two]}
edges: [{from: start, to: all}, {from: start, to: beside}]
");
        harness.all_take(&[("ann", ann), ("bob", bob)]);
        let task = harness.run("x").await;
        assert_eq!(end(&task), "{\"reads\":\"cid(ann(x) bob(x))\",\"writes\":\"ann(x)\"}");
    }
}

#[tokio::test(start_paused = true)]
async fn last_output_is_the_result_if_the_reader_is_skipped() {
    let harness = workflow(
        "
  start: {type: condition, expression: 'input'}
  writes: {type: agent, agent: ann, outputs: [one]}
  other: {type: agent, agent: bob}
  reads: {type: agent, agent: cid, inputs: [one]}
edges: [{from: start, to: {other: other, default: writes}}, {from: other, to: reads}]
",
    );
    assert_eq!(end(&harness.run("x").await), "ann(x)");
}

#[tokio::test(start_paused = true)]
async fn several_outputs_form_one_json_object() {
    for (answer, expected) in [
        ("{\"title\": \"T\", \"words\": 3, \"more\": 1}", "bob(T 3)"),
        ("{\"title\": \"T\"}", "invalid_output: one: its output has no field \"words\""),
        ("T", "invalid_output: one: its output must be a JSON object with title, words"),
    ] {
        let harness = workflow(
            "
  one: {type: agent, agent: ann, outputs: [title, words]}
  two: {type: agent, agent: bob, input: '{{ metadata.title }} {{ metadata.words }}'}
edges: [{from: one, to: two}]
",
        );
        harness.play("ann", AgentBehaviour::Say(answer.into()));
        let task = harness.run("x").await;
        assert!(end(&task).starts_with(expected), "{answer}: {task:?}");
        assert!(!harness.state(task.id).await.metadata.contains_key("more"));
    }
}

#[tokio::test(start_paused = true)]
async fn simultaneous_conditions_read_the_same_state() {
    let harness = workflow("
  start: {type: condition, expression: '\"first\"'}
  left: {type: condition, expression: 'routing_key + \" left\"', outputs: [left]}
  right: {type: condition, expression: 'routing_key + (has(metadata.left) ? \" late\" : \" right\")'}
  end: {type: agent, agent: ann, input: '{{ nodes.left.output }}, {{ nodes.right.output }}'}
edges:
  - {from: start, to: left}
  - {from: start, to: right}
  - {from: left, to: end}
  - {from: right, to: end}
");
    let task = harness.run("x").await;
    assert_eq!(end(&task), "ann(first left, first right)");
    assert_eq!(harness.checkpoint_numbers(task.id), [0, 1, 2, 3]);
}

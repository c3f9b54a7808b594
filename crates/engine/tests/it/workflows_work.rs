//! Agent, tool and workflow nodes, and their failures.

use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, end, workflow};

fn alone(node: &str) -> WorkflowHarness {
    workflow(&format!("  one: {node}\n"))
}

#[tokio::test(start_paused = true)]
async fn failed_agent_fails_the_workflow_with_its_code() {
    let harness = alone("{type: agent, agent: ann}");
    harness.play("ann", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    let expected = "model_rejected: one: ann failed (model_rejected): no such model";
    assert_eq!(end(&task), expected);
    assert_eq!(harness.nodes(task.id), ["one: start", "one: model_rejected"]);
}

#[tokio::test(start_paused = true)]
async fn agent_is_stopped_at_its_node_timeout() {
    let harness = alone("{type: agent, agent: ann, timeout_seconds: 2}");
    harness.play("ann", AgentBehaviour::Hang);
    let task = harness.run("x").await;
    let why = "timeout: one: it did not end within the timeout_seconds of node one";
    assert!(end(&task).starts_with(why), "{task:?}");
    let part = &harness.base.sub_tasks(task.id)[0];
    assert_eq!(part.status, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn cancelled_subtask_fails_the_workflow() {
    let harness = alone("{type: agent, agent: ann}");
    harness.play("ann", AgentBehaviour::Hang);
    let runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order("x")).await.unwrap();
    harness
        .base
        .until("the agent is running", |fixture| !fixture.sub_tasks(handle.id).is_empty())
        .await;
    runtime.cancel(harness.base.sub_tasks(handle.id)[0].id).await.unwrap();
    let task = harness.wait(&mut handle).await;
    assert_eq!(end(&task), "part_cancelled: one: ann was cancelled");
}

#[tokio::test(start_paused = true)]
async fn tool_node_answers_or_fails() {
    for (tool, expected) in [
        ("echo, arguments: {text: '{{ input }}!'}", "x!"),
        ("note, arguments: {text: n}", "n"),
        ("error, arguments: {text: n}", "tool_failed: one: no: n"),
        ("shaky, arguments: {text: stand-in}", "stand-in"),
        ("echo, arguments: {text: 7}", "tool_failed: one: the arguments of kit/echo do not fit"),
        ("nothing, arguments: {text: x}", "tools_unavailable: one: there is no tool kit/nothing"),
        ("echo, arguments: {text: x, ms: 9000}, timeout_seconds: 2", "timeout: one: kit/echo: "),
    ] {
        let harness = alone(&format!("{{type: tool, tool: kit/{tool}}}"));
        let task = harness.run("x").await;
        assert!(end(&task).starts_with(expected), "{tool}: {task:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_failure_is_retried_up_to_the_node_limit() {
    for (max_retries, lost, is_done) in [(2, 2, true), (2, 3, false), (0, 1, false), (5, 4, true)] {
        let node = format!(
            "{{type: tool, tool: kit/note, arguments: {{text: n}}, max_retries: {max_retries}}}"
        );
        let harness = alone(&node);
        harness.tools.lose(lost);
        let task = harness.run("x").await;
        assert_eq!(task.status == TaskStatus::Completed, is_done, "{task:?}");
        assert_eq!(harness.tools.calls(), lost.min(max_retries) + 1);
        assert_eq!(harness.tools.notes().len(), usize::from(is_done));
        if !is_done {
            assert!(end(&task).starts_with("tool_failed: one: kit/note: the connection was lost"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_is_not_idempotent_overrules_a_repeatable_tool() {
    for (tool, idempotent, expected) in [
        ("echo", "", true),
        ("echo", ", idempotent: false", false),
        ("note", "", false),
        ("note", ", idempotent: true", true),
    ] {
        let harness =
            alone(&format!("{{type: tool, tool: kit/{tool}, arguments: {{text: n}}{idempotent}}}"));
        let task = harness.run("x").await;
        let called = harness.base.events(task.id).into_iter().find_map(|event| match event {
            Event::ToolChanged { change: ToolChange::Call { repeatable, .. }, .. } => {
                Some(repeatable)
            }
            _ => None,
        });
        assert_eq!(called, Some(expected), "{tool}{idempotent}");
    }
}

#[tokio::test(start_paused = true)]
async fn unlisted_tools_fail_the_node_that_needs_them() {
    let harness = workflow(
        "
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/echo, arguments: {text: x}}
edges: [{from: one, to: two}]
",
    );
    harness.tools.is_down(true);
    let task = harness.run("x").await;
    // The agent has tools of the same server.
    assert!(end(&task).starts_with("tools_unavailable: one: "), "{task:?}");
    let harness = alone("{type: tool, tool: kit/echo, arguments: {text: x}}");
    harness.tools.is_down(true);
    let task = harness.run("x").await;
    assert!(end(&task).starts_with("tools_unavailable: one: kit is down"), "{task:?}");
}

const OUTER: &str = "name: outer
entry_point: one
nodes:
  one: {type: workflow, workflow: middle, input: 'm {{ input }}'}
  two: {type: agent, agent: ann}
edges: [{from: one, to: two}]
";
const MIDDLE: &str = "name: middle
entry_point: one
nodes:
  one: {type: agent, agent: bob}
  two: {type: workflow, workflow: inner}
edges: [{from: one, to: two}]
";
const INNER: &str = "name: inner
entry_point: one
nodes: {one: {type: agent, agent: cid}}
";

#[tokio::test(start_paused = true)]
async fn workflow_runs_nested_workflows() {
    let harness = WorkflowHarness::new(&[OUTER, MIDDLE, INNER]);
    let task = harness.run("x").await;
    assert_eq!(end(&task), "ann(cid(bob(m x)))");
    assert_eq!(harness.base.store.task_tree(task.id).await.unwrap().task_count, 6);
    let harness = WorkflowHarness::new(&[OUTER, MIDDLE, INNER]);
    harness.play("cid", AgentBehaviour::Fail);
    let task = harness.run("x").await;
    let middle = "middle failed (model_rejected): two: inner failed (model_rejected): one: cid";
    assert!(end(&task).starts_with(&format!("model_rejected: one: {middle}")), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn too_deep_workflow_nesting_is_rejected() {
    let harness = WorkflowHarness::new(&[OUTER, MIDDLE, INNER])
        .limited(|limits| Limits { sub_agent_depth: NonZeroU32::new(2).unwrap(), ..limits });
    let refused = harness.runtime(1).create(harness.order("x")).await;
    let Err(EngineError::Rejected(CommandRejection::TooDeep { chain, limit })) = refused else {
        panic!("{refused:?}")
    };
    let chain: Vec<_> = chain.iter().map(ToString::to_string).collect();
    assert_eq!((chain.join(" "), limit), ("outer middle inner cid".to_owned(), 2));
}

#[tokio::test(start_paused = true)]
async fn task_budget_covers_all_nodes() {
    let harness = workflow(
        "
  one: {type: agent, agent: ann}
  two: {type: agent, agent: bob}
  three: {type: agent, agent: cid}
edges: [{from: one, to: two}, {from: two, to: three}]
",
    );
    let budget = Some(Budget { max_tokens: NonZeroU64::new(15), max_cost_usd: None });
    let order = CreateTask { budget, ..harness.order("x") };
    let task = harness.run_on(&harness.runtime(1), order).await;
    assert!(end(&task).starts_with("budget: "), "{task:?}");
    assert!(!harness.models.called().contains(&"cid".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn finished_node_is_not_repeated_after_a_crash() {
    let harness = workflow(
        "
  one: {type: tool, tool: kit/note, arguments: {text: one}}
  all: {type: parallel, branches: [two, three], join: all}
  two: {type: tool, tool: kit/note, arguments: {text: two}}
  three: {type: agent, agent: ann}
  four: {type: tool, tool: kit/note, arguments: {text: four}}
edges: [{from: one, to: all}, {from: all, to: four}]
",
    );
    harness.takes("ann", 1000);
    let mut runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order("x")).await.unwrap();
    for number in 2..5 {
        sleep(200).await;
        harness.base.kill(number - 1, runtime);
        runtime = harness.runtime(number);
        handle = runtime.adopt(handle.id).await.unwrap();
    }
    assert_eq!(end(&harness.wait(&mut handle).await), "four");
    assert_eq!(harness.tools.notes(), ["one", "two", "four"]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_is_reviewed_after_running_nodes_end() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, two], join: all}
  one: {type: tool, tool: kit/note, arguments: {text: one, ms: 3000}}
  two: {type: agent, agent: ann}
  end: {type: agent, agent: bob}
edges: [{from: all, to: end}]
",
    );
    harness.takes("ann", 500);
    let runtime = harness.runtime(1);
    let id = runtime.create(harness.order("x")).await.unwrap().id;
    sleep(100).await;
    harness.base.kill(1, runtime);
    let runtime = harness.runtime(2);
    let task = harness.go_on(&runtime, id).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    assert!(harness.question(id).await.contains("kit/note"));
    let result = "by hand".to_owned();
    let task = harness.answer(&runtime, id, ReviewVerdict::SkipWith { result }).await;
    assert_eq!(end(&task), "bob({\"one\":\"by hand\",\"two\":\"ann(x)\"})");
    assert_eq!(harness.tools.notes(), ["one"]);
    let numbers = harness.checkpoint_numbers(id);
    assert_eq!(numbers, (0..u32::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn missing_tool_fails_before_the_first_node() {
    let harness = workflow(
        "
  one: {type: agent, agent: ann}
  two: {type: tool, tool: kit/nothing}
edges: [{from: one, to: two}]
",
    );
    let task = harness.run("x").await;
    assert_eq!(end(&task), "tools_unavailable: two: there is no tool kit/nothing");
    assert_eq!((harness.nodes(task.id), harness.models.called()), (Vec::new(), Vec::new()));
}

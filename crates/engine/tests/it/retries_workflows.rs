//! Retries of workflows, changed definitions, and changed outputs of nodes.

use polity_engine::state::CannotFork;
use polity_model::event::RaisedLimits;

use crate::faults::retry_request;
use crate::prelude::*;
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, workflow};

const LINE: &str = "
  one: {type: agent, agent: ann, outputs: [first]}
  two: {type: agent, agent: bob}
  three: {type: agent, agent: cid}
edges: [{from: one, to: two}, {from: two, to: three}]
";

async fn retry(harness: &WorkflowHarness, runtime: &Runtime, request: RetryRequest) -> Task {
    let mut handle = runtime.retry(request).await.unwrap();
    harness.wait(&mut handle).await
}

#[tokio::test(start_paused = true)]
async fn workflow_goes_on_at_the_failed_node() {
    let harness = workflow(LINE);
    harness.play("bob", AgentBehaviour::Fail);
    let (runtime, failed) = harness.start("x").await;
    assert_eq!(failed.status, TaskStatus::Failed);
    harness.play("bob", AgentBehaviour::Echo);
    let task = retry(&harness, &runtime, retry_request(failed.id)).await;
    assert_eq!(task.result.as_deref(), Some("cid(bob(ann(x)))"));
    assert_eq!(harness.models.called(), ["ann", "bob", "bob", "cid"]);
    assert_eq!(harness.nodes(task.id), ["two: finish", "three: start", "three: finish"]);
    let parts = harness.base.sub_tasks(task.id);
    let earlier = harness.base.sub_tasks(failed.id)[1].id;
    assert_eq!(harness.base.task(parts[0].id).retry_of, Some(earlier));
    assert_eq!(harness.message_texts(task.id).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn failed_tool_is_called_again_and_finished_branches_are_not() {
    let harness = workflow(
        "
  all: {type: parallel, join: all, branches: [note, shaky]}
  note: {type: tool, tool: kit/note, arguments: {text: a, ms: 1}}
  shaky: {type: tool, tool: kit/error, arguments: {text: b, ms: 500}}
",
    );
    let (runtime, failed) = harness.start("x").await;
    assert_eq!(failed.error_code, Some(ErrorCode::ToolFailed));
    let again = retry(&harness, &runtime, retry_request(failed.id)).await;
    assert_eq!(again.error_code, Some(ErrorCode::ToolFailed));
    assert_eq!(harness.nodes(again.id)[..2], ["all: start", "shaky: start"]);
    assert_eq!(harness.tools.notes(), ["a"]);
    // The retry of a retry continues from there.
    let third = retry(&harness, &runtime, retry_request(again.id)).await;
    assert_eq!((third.retry_of, third.status), (Some(again.id), TaskStatus::Failed));
}

#[tokio::test(start_paused = true)]
async fn running_tool_of_a_cancelled_workflow_is_in_doubt() {
    let harness =
        workflow("  note: {type: tool, tool: kit/note, arguments: {text: a, ms: 2000}}\n");
    let runtime = harness.runtime(1);
    let mut handle = runtime.create(harness.order("x")).await.unwrap();
    sleep(100).await;
    runtime.cancel(handle.id).await.unwrap();
    handle.wait().await.unwrap();
    let task = retry(&harness, &runtime, retry_request(handle.id)).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    let question = harness.question(task.id).await;
    assert!(question.contains("it is unknown whether the call took effect"), "{question}");
    let verdict = ReviewVerdict::SkipWith { result: "noted".into() };
    harness.base.answer(&runtime, task.id, verdict).await;
    let task = harness.base.task(task.id);
    assert_eq!(task.result.as_deref(), Some("noted"));
    assert_eq!(harness.tools.notes(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn tool_that_may_have_had_its_effect_is_in_doubt() {
    let harness = workflow(
        "  note: {type: tool, tool: kit/note, arguments: {text: a, ms: 9000}, timeout_seconds: 1}\n",
    );
    let (runtime, failed) = harness.start("x").await;
    assert_eq!(failed.error_code, Some(ErrorCode::Timeout));
    let timeout_seconds = NonZeroU64::new(20);
    let raised = RaisedLimits { timeout_seconds, ..RaisedLimits::default() };
    let request = RetryRequest { raised, ..retry_request(failed.id) };
    let task = retry(&harness, &runtime, request).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    // A person has it repeated, with the raised limit.
    let task = harness.answer(&runtime, task.id, ReviewVerdict::Retry).await;
    assert_eq!(task.result.as_deref(), Some("a"), "{:?}", task.error);
}

#[tokio::test(start_paused = true)]
async fn rejected_review_is_asked_again() {
    let harness = workflow(
        "
  draft: {type: agent, agent: ann}
  ask: {type: human, question: 'Good?'}
  end: {type: agent, agent: bob, input: '{{ nodes.draft.output }}'}
edges: [{from: draft, to: ask}, {from: ask, to: {approve: end}}]
",
    );
    let (runtime, task) = harness.start("x").await;
    harness.base.answer(&runtime, task.id, ReviewVerdict::Reject).await;
    assert_eq!(harness.base.row(task.id).status, TaskStatus::Failed);
    let task = retry(&harness, &runtime, retry_request(task.id)).await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman);
    let task = harness.answer(&runtime, task.id, ReviewVerdict::Approve).await;
    assert_eq!(task.result.as_deref(), Some("bob(ann(x))"));
}

#[tokio::test(start_paused = true)]
async fn changed_workflow_goes_on_and_a_missing_node_is_named() {
    let harness = workflow(LINE);
    harness.play("bob", AgentBehaviour::Fail);
    let (runtime, failed) = harness.start("x").await;
    let changed = |nodes: &str| workflow(nodes).order("x").assignee;

    let without = changed(
        "
  start: {type: agent, agent: ann}
  two: {type: agent, agent: dot}
edges: [{from: start, to: two}]
",
    );
    let definitions = Some(without);
    let request = RetryRequest { definitions: definitions.clone(), ..retry_request(failed.id) };
    let refused = runtime.retry(request).await.unwrap_err();
    let expected = "node \"one\" has run there, and the workflow no longer has it";
    assert!(refused.to_string().ends_with(expected), "{refused}");
    let updates = StateUpdates::default();
    let fork = ForkRequest { definitions, ..ForkRequest::new(failed.id, 0, updates) };
    let refused = runtime.fork(fork).await.unwrap_err();
    assert!(refused.to_string().contains(expected), "{refused}");
    assert!(CannotFork::NodeGone("one".parse().unwrap()).to_string() == expected);

    let mended = changed(
        "
  one: {type: agent, agent: ann, outputs: [first]}
  two: {type: agent, agent: dot, input: 'again, {{ metadata.first }}'}
  check: {type: condition, expression: '\"ok\"'}
  three: {type: agent, agent: eve}
edges:
  - {from: one, to: two}
  - {from: two, to: check}
  - {from: check, to: {ok: three}}
",
    );
    let request = RetryRequest { definitions: Some(mended), ..retry_request(failed.id) };
    let task = retry(&harness, &runtime, request).await;
    assert_eq!(task.result.as_deref(), Some("eve(dot(again, ann(x)))"), "{:?}", task.error);
    assert_eq!(harness.models.called(), ["ann", "bob", "dot", "eve"]);
    assert_eq!(harness.base.load(task.id).await.state().messages.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn fork_with_changed_outputs_of_nodes() {
    let harness = workflow(
        "
  one: {type: agent, agent: ann, outputs: [first]}
  two: {type: agent, agent: bob, input: '{{ nodes.one.output }} {{ metadata.first }} {{ last }}'}
edges: [{from: one, to: two}]
",
    );
    let (runtime, task) = harness.start("x").await;
    let set = |set: Value| StateUpdates::new(set.as_object().unwrap().clone()).unwrap();
    let updates = set(json!({"nodes.one.output": "mine"}));
    let mut fork = runtime.fork(ForkRequest::new(task.id, 0, updates)).await.unwrap();
    let forked = harness.wait(&mut fork).await;
    assert_eq!(forked.result.as_deref(), Some("bob(mine mine mine)"));
    assert_eq!(harness.message_texts(forked.id).await[1], "mine");
    for (path, problem) in [
        ("nodes.none.output", "the workflow has no node \"none\""),
        ("nodes.two.output", "node \"two\" has not finished, so it has no output yet"),
    ] {
        let updates = set(json!({path: "mine"}));
        let refused = runtime.fork(ForkRequest::new(task.id, 0, updates)).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("{path}: {problem}"));
    }
}

#[tokio::test(start_paused = true)]
async fn changed_workflow_leaves_no_node_out_in_silence() {
    const ONE: &str = "one: {type: agent, agent: ann}";
    const TWO: &str = "two: {type: agent, agent: bob}";
    const NEW: &str = "new: {type: agent, agent: dot}";
    const THREE: &str = "three: {type: agent, agent: cid}";
    let cases = [
        // The next node was renamed.
        (
            0,
            vec![ONE, NEW, THREE],
            "{from: one, to: new}, {from: new, to: three}",
            "node \"two\" was next there, after \"one\", and the workflow no longer has it",
        ),
        // A node was inserted before the next one.
        (
            0,
            vec![ONE, NEW, TWO, THREE],
            "{from: one, to: new}, {from: new, to: two}, {from: two, to: three}",
            "the workflow led from \"one\" to \"two\" there, and has no such edge now",
        ),
        // A finished node got a second successor.
        (
            0,
            vec![ONE, TWO, NEW, THREE],
            "{from: one, to: two}, {from: one, to: new}, {from: two, to: three}",
            "node \"one\" had ended there, and its way to \"new\" was added later",
        ),
        // The successor was replaced.
        (
            1,
            vec![ONE, TWO, NEW],
            "{from: one, to: two}, {from: two, to: new}",
            "node \"three\" was next there, after \"two\", and the workflow no longer has it",
        ),
        // A node was appended to the last one.
        (
            2,
            vec![ONE, TWO, THREE, NEW],
            "{from: one, to: two}, {from: two, to: three}, {from: three, to: new}",
            "node \"three\" had ended there, and its way to \"new\" was added later",
        ),
    ];
    for (checkpoint, nodes, edges, expected) in cases {
        let harness = workflow(LINE);
        let (runtime, done) = harness.start("x").await;
        assert_eq!(done.status, TaskStatus::Completed);
        let text = format!("\n  {}\nedges: [{edges}]\n", nodes.join("\n  "));
        let definitions = Some(workflow(&text).order("x").assignee);
        let updates = StateUpdates::default();
        let fork = ForkRequest { definitions, ..ForkRequest::new(done.id, checkpoint, updates) };
        let refused = runtime.fork(fork).await.unwrap_err();
        assert!(refused.to_string().ends_with(expected), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_refuses_a_workflow_that_no_longer_leads_to_the_failed_node() {
    let harness = workflow(LINE);
    harness.play("bob", AgentBehaviour::Fail);
    let (runtime, failed) = harness.start("x").await;
    let inserted = "
  one: {type: agent, agent: ann, outputs: [first]}
  new: {type: agent, agent: dot}
  two: {type: agent, agent: eve}
  three: {type: agent, agent: cid}
edges: [{from: one, to: new}, {from: new, to: two}, {from: two, to: three}]
";
    let definitions = Some(workflow(inserted).order("x").assignee);
    let request = RetryRequest { definitions, ..retry_request(failed.id) };
    let refused = runtime.retry(request).await.unwrap_err();
    let expected = "the workflow led from \"one\" to \"two\" there, and has no such edge now";
    assert!(refused.to_string().ends_with(expected), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn changes_beside_the_route_are_accepted() {
    let keyed = |more_nodes: &str, more_keys: &str| {
        workflow(&format!(
            "
  check: {{type: condition, expression: 'input == \"x\" ? \"ok\" : \"no\"'}}
  two: {{type: agent, agent: bob}}
  three: {{type: agent, agent: cid}}{more_nodes}
edges: [{{from: check, to: {{ok: two{more_keys}}}}}, {{from: two, to: three}}]
"
        ))
    };
    let harness = keyed("", "");
    harness.play("bob", AgentBehaviour::Fail);
    let (runtime, failed) = harness.start("x").await;
    harness.play("bob", AgentBehaviour::Echo);
    // The finished condition gets another key, and a node after the failed one changes.
    let changed = keyed("\n  other: {type: agent, agent: dot}", ", no: other");
    let definitions = Some(changed.order("x").assignee);
    let request = RetryRequest { definitions, ..retry_request(failed.id) };
    let task = retry(&harness, &runtime, request).await;
    assert_eq!((task.status, task.result.as_deref()), (TaskStatus::Completed, Some("cid(bob(x))")));
}

#[tokio::test(start_paused = true)]
async fn fork_refuses_a_renamed_human_node_at_its_review() {
    let text = |name: &str| {
        format!(
            "
  one: {{type: agent, agent: ann}}
  {name}: {{type: human, question: 'Good?'}}
  two: {{type: agent, agent: bob, input: '{{{{ nodes.one.output }}}}'}}
edges: [{{from: one, to: {name}}}, {{from: {name}, to: {{approve: two}}}}]
"
        )
    };
    let harness = workflow(&text("ask"));
    let (runtime, waiting) = harness.start("x").await;
    assert_eq!(waiting.status, TaskStatus::AwaitingHuman);
    let definitions = Some(workflow(&text("review")).order("x").assignee);
    for checkpoint in [0, 1] {
        let definitions = definitions.clone();
        let updates = StateUpdates::default();
        let fork = ForkRequest { definitions, ..ForkRequest::new(waiting.id, checkpoint, updates) };
        let refused = runtime.fork(fork).await.unwrap_err().to_string();
        assert!(refused.contains("\"ask\""), "{refused}");
    }
}

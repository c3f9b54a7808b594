//! Reviews in workflows: human nodes, pauses before nodes, deadlines and state updates.

use crate::prelude::*;
use crate::workflow_harness::{WorkflowHarness, end, workflow};

fn modify() -> ReviewVerdict {
    ReviewVerdict::Modify { arguments: Map::new() }
}

fn review(edges: &str, more: &str) -> WorkflowHarness {
    workflow(&format!("
  draft: {{type: agent, agent: ann}}
  ask: {{type: human, question: 'Is \"{{{{ last }}}}\" fine?'{more}}}
  publish: {{type: agent, agent: bob}}
  again: {{type: agent, agent: cid, input: '{{{{ nodes.ask.output }}}} {{{{ last }}}} {{{{ metadata.tone | default }}}}'}}
edges:
  - {{from: draft, to: ask}}
  {edges}
"))
}

const BY_KEY: &str = "- {from: ask, to: {approve: publish, default: again}}";
const WITH_REJECT: &str = "- {from: ask, to: {approve: publish, reject: again}}";
const BY_CONDITION: &str = "- {from: ask, to: publish, condition: 'routing_key == \"approve\"'}
  - {from: ask, to: again, condition: 'routing_key == \"reject\"'}";

/// Runs until a review opens.
async fn run_until_review(harness: &WorkflowHarness) -> (Runtime, TaskId) {
    let (runtime, task) = harness.start("x").await;
    assert_eq!(task.status, TaskStatus::AwaitingHuman, "{task:?}");
    let owner = harness.base.row(task.id).owner;
    assert_eq!(owner, None, "a task that waits belongs to no process");
    (runtime, task.id)
}

#[tokio::test(start_paused = true)]
async fn answer_selects_the_edge() {
    for (edges, verdict, expected) in [
        (BY_KEY, ReviewVerdict::Approve, "bob(ann(x))"),
        (BY_KEY, modify(), "cid(ann(x) ann(x) )"),
        (WITH_REJECT, ReviewVerdict::Reject, "cid(reject ann(x) )"),
        (BY_CONDITION, ReviewVerdict::Approve, "bob(ann(x))"),
        (BY_CONDITION, ReviewVerdict::Reject, "cid(reject ann(x) )"),
        (BY_KEY, ReviewVerdict::Reject, "rejected: ask: a person rejected it"),
        (BY_CONDITION, modify(), "no_edge: ask: no outgoing edge matches the routing key"),
    ] {
        let harness = review(edges, "");
        let (runtime, id) = run_until_review(&harness).await;
        assert_eq!(harness.question(id).await, "Is \"ann(x)\" fine?");
        harness.say(&runtime, id, verdict.clone(), None, json!({})).await.unwrap();
        if !harness.base.task(id).status.is_final() {
            harness.go_on(&runtime, id).await;
        }
        let task = harness.base.task(id);
        assert!(end(&task).starts_with(expected), "{edges} {verdict:?}: {task:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn review_message_and_updates_reach_the_state() {
    let harness = review(WITH_REJECT, "");
    let (runtime, id) = run_until_review(&harness).await;
    let updates = json!({"metadata.tone": 2, "metadata.tone.deep": 1});
    let refused =
        harness.say(&runtime, id, ReviewVerdict::Reject, None, updates).await.unwrap_err();
    assert!(refused.to_string().contains("has no fields"), "{refused}");
    assert_eq!(harness.base.task(id).status, TaskStatus::AwaitingHuman);
    let updates = json!({"metadata.tone": "kind", "messages": ["one more", {"role": "system", "content": "s"}]});
    harness.say(&runtime, id, ReviewVerdict::Reject, Some("too dry"), updates).await.unwrap();
    let task = harness.go_on(&runtime, id).await;
    assert_eq!(end(&task), "cid(too dry ann(x) kind)");
    let texts = harness.message_texts(id).await;
    assert_eq!(texts, ["x", "ann(x)", "too dry", "one more", "s", "cid(too dry ann(x) kind)"]);
}

#[tokio::test(start_paused = true)]
async fn second_answer_is_rejected() {
    let harness = review(BY_KEY, "");
    let (runtime, id) = run_until_review(&harness).await;
    let checkpoint_id = harness.base.load(id).await.review().unwrap().checkpoint_id;
    harness.base.answer(&runtime, id, ReviewVerdict::Approve).await;
    let refused = runtime.answer(id, answer_review(checkpoint_id, ReviewVerdict::Reject)).await;
    assert!(
        matches!(refused, Err(EngineError::Rejected(CommandRejection::NothingToDecide { .. }))),
        "{refused:?}"
    );
    assert_eq!(end(&harness.go_on(&runtime, id).await), "bob(ann(x))");
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_one_at_a_time() {
    let harness = workflow(
        "
  start: {type: agent, agent: ann}
  one: {type: human, question: 'One?'}
  two: {type: human, question: 'Two?'}
  end: {type: agent, agent: bob, input: '{{ nodes.one.output }} {{ nodes.two.output }}'}
edges: [{from: start, to: one}, {from: start, to: two}, {from: one, to: end},
        {from: two, to: end}]
",
    );
    let (runtime, id) = run_until_review(&harness).await;
    assert_eq!(harness.question(id).await, "One?");
    harness.say(&runtime, id, ReviewVerdict::Approve, Some("yes"), json!({})).await.unwrap();
    if harness.base.task(id).status != TaskStatus::AwaitingHuman {
        harness.go_on(&runtime, id).await;
    }
    assert_eq!(harness.question(id).await, "Two?");
    harness.say(&runtime, id, modify(), Some("no"), json!({})).await.unwrap();
    assert_eq!(end(&harness.go_on(&runtime, id).await), "bob(yes no)");
    let numbers = harness.checkpoint_numbers(id);
    assert_eq!(numbers, [0, 1, 2, 3]);
}

fn paused(node: &str) -> WorkflowHarness {
    workflow(&format!(
        "
  start: {{type: agent, agent: ann}}
  act: {node}
  end: {{type: agent, agent: bob}}
edges: [{{from: start, to: act}}, {{from: act, to: end}}]
checkpoints: [act]
"
    ))
}

#[tokio::test(start_paused = true)]
async fn listed_node_opens_a_review_first() {
    let note = "{type: tool, tool: kit/note, arguments: {text: '{{ metadata.what | default }} {{ last }}'}}";
    for (verdict, updates, expected) in [
        (ReviewVerdict::Approve, json!({}), "bob( ann(x))"),
        (modify(), json!({"metadata.what": "that"}), "bob(that ann(x))"),
        (ReviewVerdict::Reject, json!({}), "rejected: act: ada rejected it: no"),
    ] {
        let harness = paused(note);
        let (runtime, id) = run_until_review(&harness).await;
        assert!(harness.question(id).await.contains("act, which calls kit/note"));
        assert_eq!(harness.tools.notes(), [""; 0]);
        harness.say(&runtime, id, verdict.clone(), Some("no"), updates).await.unwrap();
        if verdict == ReviewVerdict::Reject {
            assert_eq!(harness.tools.notes(), [""; 0]);
        } else {
            harness.go_on(&runtime, id).await;
            assert_eq!(harness.tools.notes().len(), 1);
        }
        assert_eq!(end(&harness.base.task(id)), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn every_node_kind_can_require_a_review() {
    for (node, expected) in [
        ("{type: agent, agent: cid}", "bob(cid(ann(x)))"),
        ("{type: condition, expression: '\"k\"'}", "bob(ann(x))"),
        ("{type: human, question: Sure?}", "bob(ann(x))"),
    ] {
        let harness = paused(node);
        let (runtime, id) = run_until_review(&harness).await;
        let task = harness.answer(&runtime, id, ReviewVerdict::Approve).await;
        assert_eq!(end(&task), expected, "{node}");
    }
}

async fn overdue(default: &str, edges: &str) -> (WorkflowHarness, Task) {
    let harness = review(edges, &format!(", deadline_seconds: 60{default}"));
    let (runtime, id) = run_until_review(&harness).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let late = harness.say(&runtime, id, ReviewVerdict::Approve, None, json!({})).await;
    assert!(
        matches!(late, Err(EngineError::Rejected(CommandRejection::TooLate { .. }))),
        "{late:?}"
    );
    match runtime.adopt(id).await {
        Ok(mut handle) => {
            harness.wait(&mut handle).await;
        }
        Err(EngineError::Rejected(CommandRejection::Finished { .. })) => {}
        Err(error) => panic!("{error}"),
    }
    let task = harness.base.task(id);
    (harness, task)
}

#[tokio::test(start_paused = true)]
async fn expired_review_takes_the_default_or_fails_the_task() {
    let reject = ", default_action: reject";
    for (default, edges, expected, last) in [
        (", default_action: approve", BY_KEY, "bob(ann(x))", "publish: finish"),
        (reject, WITH_REJECT, "cid(no answer came before ", "again: finish"),
        (reject, BY_KEY, "rejected: ask: a person rejected it", "ask: rejected"),
        ("", BY_KEY, "timeout: ask: no answer came before ", "ask: timeout"),
    ] {
        let (harness, task) = overdue(default, edges).await;
        assert!(end(&task).starts_with(expected), "{default} {edges}: {task:?}");
        assert_eq!(harness.nodes(task.id).last().unwrap(), last);
    }
}

#[tokio::test(start_paused = true)]
async fn open_review_becomes_an_orphan_after_its_deadline() {
    let harness = review(BY_KEY, ", deadline_seconds: 60");
    let (runtime, id) = run_until_review(&harness).await;
    let deadline = harness.base.load(id).await.review().unwrap().deadline.unwrap();
    let at = |time| {
        polity_store::block_on(find_orphans(&*harness.base.store, &*harness.base.leases, time))
            .unwrap()
            .resumable
            .len()
    };
    assert_eq!((at(deadline - Duration::from_secs(1)), at(deadline)), (0, 1));
    // Finding orphans reads no whole stream.
    let counting = CrashingStore::new(Arc::clone(&harness.base.store), None);
    let early = deadline - Duration::from_secs(1);
    let orphans = find_orphans(&counting, &*harness.base.leases, early).await.unwrap();
    assert_eq!(orphans, polity_engine::runtime::OrphanedTasks::default());
    assert_eq!(counting.whole_reads(), 0);
    let early = runtime.adopt(id).await;
    assert!(
        matches!(early, Err(EngineError::Rejected(CommandRejection::AwaitingHuman { .. }))),
        "{early:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn workflow_pauses_with_its_agent_and_resumes_after_the_answer() {
    let harness = workflow(
        "
  one: {type: agent, agent: asker}
  two: {type: agent, agent: bob}
edges: [{from: one, to: two}]
",
    );
    let (runtime, id) = run_until_review(&harness).await;
    let part = harness.base.sub_tasks(id)[0].id;
    assert!(harness.question(part).await.contains("kit/delete"));
    harness.base.answer(&runtime, part, ReviewVerdict::Approve).await;
    let task = harness.go_on(&runtime, id).await;
    assert_eq!(end(&task), "bob(asker(x))");
    assert_eq!(harness.tools.notes(), ["x"]);
    assert_eq!(harness.base.sub_tasks(id).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn review_of_a_workflow_does_not_block_its_subtasks() {
    let harness = workflow(
        "
  all: {type: parallel, branches: [one, ask]}
  one: {type: agent, agent: asker}
  ask: {type: human, question: 'Well?'}
",
    );
    let (runtime, id) = run_until_review(&harness).await;
    assert_eq!(harness.question(id).await, "Well?");
    let part = harness.base.sub_tasks(id)[0].id;
    harness.base.answer(&runtime, part, ReviewVerdict::Approve).await;
    assert_eq!(harness.base.orphan_ids().await, [part]);
    assert_eq!(end(&harness.go_on(&runtime, part).await), "asker(x)");
    assert_eq!(harness.tools.notes(), ["x"]);
    assert_eq!(harness.base.task(id).status, TaskStatus::AwaitingHuman);
    harness.say(&runtime, id, ReviewVerdict::Approve, Some("yes"), json!({})).await.unwrap();
    let task = harness.go_on(&runtime, id).await;
    assert_eq!(end(&task), r#"{"ask":"yes","one":"asker(x)"}"#);
    assert_eq!(harness.tools.notes(), ["x"], "no call is repeated");
}

#[tokio::test(start_paused = true)]
async fn paused_task_is_found_again_after_a_crash() {
    let harness = workflow("  one: {type: agent, agent: asker}");
    let (runtime, id) = run_until_review(&harness).await;
    let part = harness.base.sub_tasks(id)[0].id;
    harness.base.answer(&runtime, part, ReviewVerdict::Reject).await;
    // The process that adopts it crashes after its claim.
    let journal = Arc::clone(&harness.base.store);
    let store = Arc::new(CrashingStore::new(journal, Some((0, CrashSide::After))));
    let crashing = harness.runtime_on(store, 2);
    assert!(crashing.adopt(id).await.is_err());
    harness.base.kill(2, crashing);
    // The subtask ends, and only its parent waits for it.
    harness.go_on(&runtime, part).await;
    assert_eq!(harness.base.orphan_ids().await, [id]);
    assert_eq!(end(&harness.go_on(&runtime, id).await), "asker(x)");
}

#[tokio::test(start_paused = true)]
async fn nested_workflow_review_is_answered_in_its_own_task() {
    let harness = WorkflowHarness::new(&[
        "name: outer
entry_point: one
nodes:
  one: {type: workflow, workflow: inner}
  two: {type: agent, agent: bob}
edges: [{from: one, to: two}]
",
        "name: inner
entry_point: ask
nodes:
  ask: {type: human, question: 'Inner?', deadline_seconds: 60, default_action: approve}
  say: {type: agent, agent: cid}
edges: [{from: ask, to: say}]
",
    ]);
    let (runtime, id) = run_until_review(&harness).await;
    let part = harness.base.sub_tasks(id)[0].id;
    assert_eq!(harness.question(part).await, "Inner?");
    harness.base.answer(&runtime, part, ReviewVerdict::Approve).await;
    assert_eq!(end(&harness.go_on(&runtime, id).await), "bob(cid(x))");
    // The root handles the deadline of its subtask.
    let id = harness.run_on(&runtime, harness.order("y")).await.id;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let task = harness.go_on(&runtime, id).await;
    assert_eq!(end(&task), "bob(cid(y))");
}

#[tokio::test(start_paused = true)]
async fn review_time_does_not_count_towards_the_node_timeout() {
    let harness = workflow("  one: {type: agent, agent: asker, timeout_seconds: 2}");
    let (runtime, id) = run_until_review(&harness).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let part = harness.base.sub_tasks(id)[0].id;
    harness.base.answer(&runtime, part, ReviewVerdict::Approve).await;
    assert_eq!(end(&harness.go_on(&runtime, id).await), "asker(x)");
}

#[tokio::test(start_paused = true)]
async fn human_node_respects_its_timeout() {
    let harness = workflow("
  ask: {type: human, question: 'Well?', deadline_seconds: 60, default_action: approve, timeout_seconds: 2}
");
    let (runtime, id) = run_until_review(&harness).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let refused = runtime.adopt(id).await;
    assert!(refused.is_err(), "{refused:?}");
    let task = harness.base.task(id);
    assert!(end(&task).starts_with("timeout: ask: no answer came before"), "{task:?}");
}

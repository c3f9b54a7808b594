//! Retries of runs and items that were cut off: what may not be repeated is asked about.

use crate::faults::retry_request;
use crate::prelude::*;
use crate::programs::{CliAgentFixture, coder};
use crate::workflow_harness::{AgentBehaviour, WorkflowHarness, end, workflow};
use crate::workflow_programs::output_of_script;

async fn retry(runtime: &Runtime, task: TaskId) -> TaskId {
    let mut handle = runtime.retry(retry_request(task)).await.unwrap();
    handle.wait().await.unwrap();
    handle.id
}

/// Runs a CLI agent and cancels it after a while.
async fn cancelled_run(runtime: &Runtime, agent: PinnedAgent, after_ms: u64) -> TaskId {
    let mut handle = runtime.create(CreateTask::new(agent, "a")).await.unwrap();
    sleep(after_ms).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    handle.id
}

#[tokio::test(start_paused = true)]
async fn cancelled_run_was_repeated_without_asking() {
    for (more, asks) in [
        (json!({}), true),
        (json!({"idempotent": true}), false),
        (json!({"access_type": "read-only"}), false),
    ] {
        let harness = CliAgentFixture::new([]);
        let runtime = harness.process(1);
        let cancelled = cancelled_run(&runtime, coder(&more), 100).await;
        let retried = retry(&runtime, cancelled).await;
        let runs = harness.programs.inputs().len();
        if !asks {
            assert_eq!(harness.base.row(retried).status, TaskStatus::Completed, "{more}");
            assert_eq!(runs, 2);
            continue;
        }
        assert_eq!((harness.base.row(retried).status, runs), (TaskStatus::AwaitingHuman, 1));
        let state = harness.base.load(retried).await;
        let review = state.review().unwrap();
        assert!(matches!(review.subject, ReviewSubject::RunDoubt { .. }), "{review:?}");
        insta::assert_snapshot!(
            review.question,
            @r#"The earlier task ended while coder was running with "a", and it is unknown what it did before that. Run it again, or continue with a result of your own?"#
        );
        harness.base.answer(&runtime, retried, ReviewVerdict::Retry).await;
        assert_eq!(adopt(&runtime, retried).await, TaskStatus::Completed);
        assert_eq!(harness.programs.inputs().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn timed_out_run_was_repeated_without_asking() {
    let harness = CliAgentFixture::new([RunEnd::TimedOut("too long".into())]);
    let runtime = harness.process(1);
    let mut handle = runtime.create(CreateTask::new(coder(&json!({})), "a")).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Failed);
    let retried = retry(&runtime, handle.id).await;
    assert_eq!(harness.base.row(retried).status, TaskStatus::AwaitingHuman);
    let skip = ReviewVerdict::SkipWith { result: "by hand".into() };
    harness.base.answer(&runtime, retried, skip).await;
    assert_eq!(harness.base.task(retried).result.as_deref(), Some("by hand"));
    assert_eq!(harness.programs.inputs(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn run_that_failed_by_itself_or_never_began_is_run_again() {
    let harness = CliAgentFixture::new([RunEnd::Failed(permanent("no"))]);
    let runtime = harness.process(1);
    let mut handle = runtime.create(CreateTask::new(coder(&json!({})), "a")).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Failed);
    let retried = retry(&runtime, handle.id).await;
    assert_eq!(harness.base.row(retried).status, TaskStatus::Completed);

    // The second run waits for the first, and is cancelled in the queue.
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let mut first = runtime.create(CreateTask::new(coder(&json!({})), "b")).await.unwrap();
    let queued = cancelled_run(&runtime, coder(&json!({})), 100).await;
    first.wait().await.unwrap();
    let retried = retry(&runtime, queued).await;
    assert_eq!(harness.base.row(retried).status, TaskStatus::Completed);
    assert_eq!(harness.programs.inputs(), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn doubt_that_a_person_has_not_settled_is_asked_about_again() {
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let cancelled = cancelled_run(&runtime, coder(&json!({})), 100).await;
    let rejected = retry(&runtime, cancelled).await;
    harness.base.answer(&runtime, rejected, ReviewVerdict::Reject).await;
    assert_eq!(harness.base.row(rejected).status, TaskStatus::Failed);
    let again = retry(&runtime, rejected).await;
    assert_eq!(harness.base.row(again).status, TaskStatus::AwaitingHuman);
    runtime.cancel(again).await.unwrap();
    let third = retry(&runtime, again).await;
    assert_eq!(harness.base.row(third).status, TaskStatus::AwaitingHuman);
    assert_eq!(harness.programs.inputs().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn run_whose_process_died_was_repeated_by_a_retry_after_its_doubt_was_rejected() {
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let handle = runtime.create(CreateTask::new(coder(&json!({})), "a")).await.unwrap();
    sleep(100).await;
    harness.base.kill(1, runtime);
    let runtime = harness.process(2);
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::AwaitingHuman);
    harness.base.answer(&runtime, handle.id, ReviewVerdict::Reject).await;
    let retried = retry(&runtime, handle.id).await;
    assert_eq!(harness.base.row(retried).status, TaskStatus::AwaitingHuman);
    assert_eq!(harness.programs.inputs().len(), 1);
}

/// Runs a workflow and cancels it after a while.
async fn cancelled(harness: &WorkflowHarness, runtime: &Runtime, after_ms: u64) -> TaskId {
    let mut handle = runtime.create(harness.order("go")).await.unwrap();
    sleep(after_ms).await;
    runtime.cancel(handle.id).await.unwrap();
    harness.wait(&mut handle).await;
    handle.id
}

/// The parts of a task that wait for a person, with their questions.
async fn questions(harness: &WorkflowHarness, task: TaskId) -> Vec<(TaskId, String)> {
    let mut questions = Vec::new();
    for part in harness.base.sub_tasks(task) {
        if part.status == TaskStatus::AwaitingHuman {
            questions.push((part.id, harness.question(part.id).await));
        }
    }
    questions
}

#[tokio::test(start_paused = true)]
async fn cancelled_script_was_repeated_without_asking() {
    for idempotent in [true, false] {
        let harness = workflow(&format!(
            "  s: {{type: script, file: steps/note.sh, arguments: {{text: t}}, idempotent: {idempotent}}}\n"
        ));
        let runtime = harness.runtime(1);
        let stopped = cancelled(&harness, &runtime, 15).await;
        let task = retry(&runtime, stopped).await;
        if idempotent {
            assert_eq!(end(&harness.base.task(task)), "[\"t\"]");
            assert_eq!(harness.tools.notes(), ["t", "t"]);
            continue;
        }
        let [(part, question)] = questions(&harness, task).await.try_into().unwrap();
        insta::assert_snapshot!(
            question,
            @r#"The earlier task ended while script_steps_note was running for node s with {"text":"t"}, and it is unknown what it did before that. Run it again, or continue with a result of your own?"#
        );
        let skip = ReviewVerdict::SkipWith { result: output_of_script("t") };
        harness.base.answer(&runtime, part, skip).await;
        assert_eq!(end(&harness.go_on(&runtime, task).await), "[\"t\"]");
        assert_eq!(harness.tools.notes(), ["t"]);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_scripts_of_a_map_were_repeated_without_asking() {
    let harness = workflow(
        "  each: {type: map, over: [a, b, c], max_parallel: 2, node: {type: script, file: steps/note.sh, arguments: {text: '{{ item }}'}}}\n",
    );
    let runtime = harness.runtime(1);
    let stopped = cancelled(&harness, &runtime, 15).await;
    let task = retry(&runtime, stopped).await;
    assert_eq!(harness.nodes(task)[0], "each: start");
    let asked = questions(&harness, task).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    for ((part, question), (item, text)) in asked.into_iter().zip([(0, "a"), (1, "b")]) {
        let expected = format!("for item {item} of node each with {{\"text\":\"{text}\"}}");
        assert!(question.contains(&expected), "{question}");
        let skip = ReviewVerdict::SkipWith { result: output_of_script(text) };
        harness.base.answer(&runtime, part, skip).await;
    }
    let task = harness.go_on(&runtime, task).await;
    assert_eq!(end(&task), json!([["a"], ["b"], ["c"]]).to_string());
    assert_eq!(harness.tools.notes(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_tools_of_a_map_were_repeated_without_asking() {
    let harness = workflow(
        "  each: {type: map, over: [a, b], max_parallel: 1, node: {type: tool, tool: kit/note, arguments: {text: '{{ item }}', ms: 100}}}\n",
    );
    let runtime = harness.runtime(1);
    let stopped = cancelled(&harness, &runtime, 150).await;
    assert_eq!(harness.tools.notes(), ["a", "b"]);
    let task = retry(&runtime, stopped).await;
    insta::assert_snapshot!(
        harness.question(task).await,
        @r#"test was calling kit/note with {"ms":100,"text":"b"} for item 1 of node each when the earlier task ended; it is unknown whether the call took effect"#
    );
    let skip = ReviewVerdict::SkipWith { result: "by hand".into() };
    harness.base.answer(&runtime, task, skip).await;
    assert_eq!(end(&harness.base.task(task)), json!(["a", "by hand"]).to_string());
    assert_eq!(harness.tools.notes(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn agents_of_a_map_started_again_instead_of_continuing_their_turn() {
    // The asker calls a tool in its first turn, and its item waits for an approval.
    let harness = workflow(
        "
  all: {type: parallel, branches: [each, other]}
  each: {type: map, over: [a, b], max_parallel: 2, node: {type: agent, agent: asker}}
  other: {type: agent, agent: ann}
",
    );
    harness.play("asker", AgentBehaviour::Hang);
    let (runtime, paused) = harness.start("go").await;
    for (part, _) in questions(&harness, paused.id).await {
        harness.base.answer(&runtime, part, ReviewVerdict::Approve).await;
    }
    let mut handle = runtime.adopt(paused.id).await.unwrap();
    // The tools have answered, and the second turns hang.
    sleep(1000).await;
    assert_eq!(harness.tools.notes().len(), 2);
    runtime.cancel(handle.id).await.unwrap();
    harness.wait(&mut handle).await;
    let calls = harness.models.called().len();
    harness.play("asker", AgentBehaviour::Echo);
    let task = retry(&runtime, handle.id).await;
    let task = harness.base.task(task);
    assert!(end(&task).contains("asker(a)"), "{task:?}");
    assert_eq!(harness.models.called().len(), calls + 2, "only the second turns are repeated");
    assert_eq!(harness.tools.notes().len(), 2);
    for part in harness.base.sub_tasks(task.id) {
        assert!(harness.base.task(part.id).retry_of.is_some());
        assert!(part.map_item.is_some(), "an item stays one");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_item_continues_in_its_own_turn() {
    let harness = workflow(
        "  each: {type: map, over: [a, b, c], max_parallel: 1, node: {type: agent, agent: ann}}\n",
    );
    harness.play("ann", AgentBehaviour::Fail);
    let (runtime, failed) = harness.start("go").await;
    assert_eq!(failed.status, TaskStatus::Failed);
    harness.play("ann", AgentBehaviour::Echo);
    let task = retry(&runtime, failed.id).await;
    assert_eq!(end(&harness.base.task(task)), json!(["ann(a)", "ann(b)", "ann(c)"]).to_string());
    let earlier = harness.base.sub_tasks(failed.id)[0].id;
    let parts = harness.base.sub_tasks(task);
    assert_eq!(harness.base.task(parts[0].id).retry_of, Some(earlier));
    assert_eq!(harness.nodes(task)[..2], ["each: start", "each: start 1"]);
}

#[tokio::test(start_paused = true)]
async fn result_that_the_script_node_cannot_take_failed_it_later() {
    let harness = workflow(
        "  s: {type: script, file: steps/note.sh, arguments: {text: t}, outputs: [x, y]}\n",
    );
    let runtime = harness.runtime(1);
    let stopped = cancelled(&harness, &runtime, 15).await;
    let task = retry(&runtime, stopped).await;
    let [(part, _)] = questions(&harness, task).await.try_into().unwrap();
    let checkpoint_id = harness.base.load(part).await.review().unwrap().checkpoint_id;
    for (result, problem) in [
        ("done", "node s cannot take this result: the script printed no JSON value"),
        ("{\"x\": 1}", "the output of the script has no field \"y\", which the step declares"),
    ] {
        let verdict = ReviewVerdict::SkipWith { result: result.into() };
        let refused =
            runtime.answer(part, answer_review(checkpoint_id, verdict)).await.unwrap_err();
        assert!(refused.to_string().contains(problem), "{refused}");
    }
    let skip = ReviewVerdict::SkipWith { result: "{\"x\": 1, \"y\": 2}".into() };
    harness.base.answer(&runtime, part, skip).await;
    assert_eq!(harness.go_on(&runtime, task).await.status, TaskStatus::Completed);
}

//! Sub-agents: isolation, parallel calls, crashes, reviews and cancellation.

use polity_testkit::task_fixtures::commit;

use crate::participants::ScriptedReply::{Ask, Fail, Hang, Outage, Text};
use crate::participants::{ScriptedReply, TestModels, create_boss_task, for_boss, helpers, part};
use crate::prelude::*;

#[tokio::test(start_paused = true)]
async fn conversations_of_parent_and_sub_agent_stay_separate() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "CANARY-DOWN")]), Text("over")]),
        ("deputy", vec![Ask(vec![part("agent/helper", "deeper")]), Text("SUMMARY")]),
        ("helper", vec![Text("CANARY-BELOW")]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut create = for_boss("CANARY-ABOVE");
    create.parameters.insert("secret".to_owned(), "CANARY-PARAMETER".into());
    let id = complete(&runtime, create).await;
    let shown = models.shown();
    let sessions: Vec<&str> = shown.keys().map(String::as_str).collect();
    assert_eq!(sessions, ["boss", "boss/1.1/deputy", "boss/1.1/deputy/1.1/helper"]);
    assert_eq!(shown["boss"], ["CANARY-ABOVE", "", "SUMMARY"]);
    assert_eq!(shown["boss/1.1/deputy"], ["CANARY-DOWN", "", "CANARY-BELOW"]);
    assert_eq!(shown["boss/1.1/deputy/1.1/helper"], ["deeper"]);
    let deputy = &fixture.sub_tasks(id)[0];
    let task = fixture.task(deputy.id);
    assert_eq!((task.parent_task_id, task.parameters.len()), (Some(id), 0));
    assert_eq!(fixture.message_texts(deputy.id), ["CANARY-DOWN", "", "CANARY-BELOW", "SUMMARY"]);
}

#[tokio::test(start_paused = true)]
async fn sub_agents_of_one_turn_run_in_parallel_without_own_slots() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new(helpers(8));
    let one = |limits| Limits { concurrent_tasks: NonZeroU32::MIN, ..limits };
    let runtime = fixture.limited(1, &models, one);
    let mut first = create_boss_task(&runtime, "a").await;
    let mut second = create_boss_task(&runtime, "b").await;
    assert_eq!(first.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(models.max_concurrent(), 8);
    assert_eq!(second.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!((fixture.sub_tasks(first.id).len(), fixture.sub_tasks(second.id).len()), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn task_gives_up_its_slot_while_all_its_sub_agents_wait() {
    let fixture = RuntimeFixture::new();
    let both = Ask(vec![part("agent/helper", "x"), part("agent/deputy", "y")]);
    let models =
        TestModels::new([("boss", vec![both]), ("helper", vec![Outage]), ("deputy", vec![Outage])]);
    let one = |limits| Limits { concurrent_tasks: NonZeroU32::MIN, ..limits };
    let runtime = fixture.limited(1, &models, one);
    let mut first = create_boss_task(&runtime, "a").await;
    let mut second = create_boss_task(&runtime, "b").await;
    fixture.until("both wait", |fixture| fixture.sub_tasks(second.id).len() == 2).await;
    assert_eq!(fixture.row(first.id).status, TaskStatus::Running);
    // The answer of each failed sub-agent goes back to its boss, which answers.
    for handle in [&mut first, &mut second] {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
        let row = fixture.row(handle.id);
        let took = row.completed_at.unwrap().duration_since(row.started_at.unwrap());
        assert!((600..610).contains(&took.as_secs()), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_fan_out_limit_are_reported_to_the_model() {
    let fixture = RuntimeFixture::new();
    let two = |limits| Limits { sub_agent_fan_out: NonZeroU32::new(2).unwrap(), ..limits };
    let runtime = fixture.limited(1, &TestModels::new(helpers(4)), two);
    let id = complete(&runtime, for_boss("a")).await;
    assert_eq!(fixture.sub_tasks(id).len(), 2);
    let refused = "error: at most 2 sub-agents are called at once (limits.sub_agent_fan_out); ask \
                   for this one again";
    assert_eq!(fixture.message_texts(id)[2..6], ["done", "done", refused, refused]);
}

#[tokio::test(start_paused = true)]
async fn fan_out_limit_covers_every_depth() {
    let fixture = RuntimeFixture::new();
    let two = || Ask(vec![part("agent/deputy", "x")]);
    let models = TestModels::new([
        ("boss", vec![two(), two(), Text("over")]),
        ("deputy", vec![Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![]),
    ]);
    let runtime = fixture
        .limited(1, &models, |limits| Limits { sub_agents: NonZeroU32::new(3).unwrap(), ..limits });
    let id = complete(&runtime, for_boss("a")).await;
    assert_eq!(fixture.store.task_tree(id).await.unwrap().task_count, 4);
    let second = fixture.sub_tasks(id)[1].id;
    let expected = "error: the sub-agent was not called: 3 have worked for this task, the most that \
                limits.sub_agents allows";
    assert_eq!(fixture.message_texts(second)[2], expected);
}

#[tokio::test(start_paused = true)]
async fn too_deep_delegation_is_rejected_before_any_call() {
    let fixture = RuntimeFixture::new();
    let one = |limits| Limits { sub_agent_depth: NonZeroU32::MIN, ..limits };
    let runtime = fixture.limited(1, &TestModels::new([]), one);
    let refused = runtime.create(for_boss("a")).await.unwrap_err();
    insta::assert_snapshot!(refused, @"work could be handed on over 2 steps (boss -> deputy -> helper); limits.sub_agent_depth allows 1");
    assert_eq!(fixture.store.last_position().await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn sub_agent_failure_is_reported_to_its_parent() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/helper", "x")]), Text("by myself, then")]),
        ("helper", vec![Fail]),
    ]);
    let runtime = fixture.process(1, &models);
    let id = complete(&runtime, for_boss("a")).await;
    let expected = "error: helper failed (model_rejected): no such model";
    assert_eq!(fixture.message_texts(id)[2..], [expected, "by myself, then"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_parent_cancels_all_sub_agents() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "x"), part("agent/helper", "y")])]),
        ("deputy", vec![Ask(vec![part("agent/helper", "z")])]),
        ("helper", vec![Hang]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = create_boss_task(&runtime, "a").await;
    fixture.until("all tasks exist", |fixture| fixture.all_tasks().len() == 4).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    // A cancelled parent has cancelled subtasks.
    assert!(fixture.all_tasks().iter().all(|row| row.status == TaskStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn cancelled_sub_agent_is_reported_to_its_parent() {
    let fixture = RuntimeFixture::new();
    let models = helped_by(Hang);
    let runtime = fixture.process(1, &models);
    let mut handle = create_boss_task(&runtime, "a").await;
    fixture.until("the agent is running", |fixture| has_running_sub_task(fixture, handle.id)).await;
    runtime.cancel(fixture.sub_tasks(handle.id)[0].id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.message_texts(handle.id)[2], "error: helper was cancelled");
}

/// A boss with one helper, which replies like this.
fn helped_by(reply: ScriptedReply) -> Arc<TestModels> {
    TestModels::new([("boss", vec![Ask(vec![part("agent/helper", "x")])]), ("helper", vec![reply])])
}

/// A call that needs approval.
fn delete() -> ScriptedReply {
    Ask(vec![("files/delete", json!({"n": 1}))])
}

/// A process whose first tool call times out.
fn with_hanging_tool(fixture: &RuntimeFixture, models: Arc<TestModels>) -> Runtime {
    let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
    start(RuntimeDeps { tools: Arc::new(tools), ..fixture.deps(1, models) })
}

/// The newest task of an agent.
fn named(fixture: &RuntimeFixture, agent: &str) -> Option<TaskRow> {
    fixture.all_tasks().into_iter().find(|row| row.assigned_agent.as_str() == agent)
}

fn status(fixture: &RuntimeFixture, agent: &str) -> Option<TaskStatus> {
    named(fixture, agent).map(|row| row.status)
}

fn has_running_sub_task(fixture: &RuntimeFixture, id: TaskId) -> bool {
    fixture.sub_tasks(id).iter().any(|row| row.status == TaskStatus::Running)
}

#[tokio::test(start_paused = true)]
async fn parent_and_sub_agents_resume_after_a_crash() {
    let fixture = RuntimeFixture::new();
    let scripts = |deputy, helper| {
        let boss = vec![Ask(vec![part("agent/deputy", "x")])];
        TestModels::new([("boss", boss), ("deputy", deputy), ("helper", helper)])
    };
    let stuck = scripts(vec![Ask(vec![part("agent/helper", "y")])], vec![Hang]);
    let runtime = fixture.process(1, &stuck);
    let id = create_boss_task(&runtime, "a").await.id;
    fixture.until("all tasks exist", |fixture| fixture.all_tasks().len() == 3).await;
    fixture.kill(1, runtime);
    // One of them is resumed, and the others with it.
    assert_eq!(fixture.orphan_ids().await, [id]);
    let runtime = fixture.process(2, &scripts(vec![], vec![]));
    assert_eq!(adopt(&runtime, id).await, TaskStatus::Completed);
    assert_eq!(fixture.all_tasks().len(), 3, "no sub-agent was opened twice");
    assert!(fixture.all_tasks().iter().all(|row| row.status == TaskStatus::Completed));
    let texts: Vec<String> = fixture.message_texts(fixture.sub_tasks(id)[0].id);
    assert_eq!(texts, ["x", "", "done", "done"]);
}

#[tokio::test(start_paused = true)]
async fn sub_agent_of_an_ended_parent_is_cancelled() {
    let fixture = RuntimeFixture::new();
    let models = helped_by(Hang);
    let runtime = fixture.process(1, &models);
    let handle = create_boss_task(&runtime, "a").await;
    fixture.until("the agent is running", |fixture| has_running_sub_task(fixture, handle.id)).await;
    fixture.kill(1, runtime);
    let runtime = fixture.process(2, &models);
    // Cancelling the parent from outside cancels its subtasks.
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(fixture.task(fixture.sub_tasks(handle.id)[0].id).status, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn parent_pauses_with_its_sub_agent_and_frees_its_slot() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "x")]), Text("all done")]),
        ("deputy", vec![Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![delete()]),
    ]);
    let runtime = fixture.process(1, &models);
    let id = pause(&runtime, for_boss("a")).await;
    for row in fixture.all_tasks() {
        assert_eq!((row.status, row.owner), (TaskStatus::AwaitingHuman, None));
    }
    assert_eq!(fixture.orphan_ids().await, []);
    fixture.kill(1, runtime);
    let runtime = fixture.process(2, &models);
    // Without an answer, it pauses again.
    assert_eq!(adopt(&runtime, id).await, TaskStatus::AwaitingHuman);
    let deputy = fixture.sub_tasks(id)[0].id;
    let helper = fixture.sub_tasks(deputy)[0].id;
    fixture.answer(&runtime, helper, ReviewVerdict::Approve).await;
    assert_eq!(fixture.orphan_ids().await, [id]);
    assert_eq!(adopt(&runtime, id).await, TaskStatus::Completed);
    assert_eq!(fixture.task(id).result.as_deref(), Some("all done"));
    assert_eq!(fixture.all_tasks().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn other_sub_agents_continue_during_a_review() {
    let fixture = RuntimeFixture::new();
    let boss = Ask(vec![part("agent/helper", "x"), part("agent/deputy", "y")]);
    let models = TestModels::new([
        ("boss", vec![boss, Text("both done")]),
        ("deputy", vec![Hang]),
        ("helper", vec![delete()]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = create_boss_task(&runtime, "a").await;
    let waits = Some(TaskStatus::AwaitingHuman);
    fixture.until("one waits", |fixture| status(fixture, "helper") == waits).await;
    let helper = named(&fixture, "helper").unwrap().id;
    assert_eq!(fixture.task(handle.id).status, TaskStatus::Running);
    fixture.answer(&runtime, helper, ReviewVerdict::Approve).await;
    // The parent's process notices the answer, and resumes the sub-agent.
    let done = Some(TaskStatus::Completed);
    fixture.until("the run continues", |fixture| status(fixture, "helper") == done).await;
    assert_eq!(fixture.task(handle.id).status, TaskStatus::Running);
    runtime.cancel(named(&fixture, "deputy").unwrap().id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn nested_answer_reaches_a_busy_parent() {
    let fixture = RuntimeFixture::new();
    let parts = Ask(vec![part("agent/deputy", "x"), part("agent/helper", "hang")]);
    let models = TestModels::new([
        ("boss", vec![parts]),
        ("deputy", vec![Ask(vec![part("agent/helper", "delete")]), Text("deleted")]),
        ("helper", vec![delete()]),
    ]);
    let runtime = fixture.process(1, &models);
    let id = pause(&runtime, for_boss("a")).await;
    let rows = fixture.all_tasks();
    assert_eq!(
        rows.iter().map(|row| row.status).collect::<Vec<_>>(),
        [TaskStatus::AwaitingHuman; 4]
    );
    let below = |agent: &str, of: TaskId| {
        let mut rows = fixture.sub_tasks(of).into_iter();
        rows.find(|row| row.assigned_agent.as_str() == agent).unwrap().id
    };
    let deputy = below("deputy", id);
    let far_below = below("helper", deputy);
    // The answer to the innermost task makes its ancestors orphans.
    fixture.answer(&runtime, far_below, ReviewVerdict::Approve).await;
    assert_eq!(fixture.orphan_ids().await, [id]);
    assert_eq!(adopt(&runtime, id).await, TaskStatus::AwaitingHuman);
    assert_eq!(fixture.task(deputy).status, TaskStatus::Completed);
    // The owner of the root finishes it while the other is answered.
    fixture.answer(&runtime, below("helper", id), ReviewVerdict::Approve).await;
    assert_eq!(adopt(&runtime, id).await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn answer_two_levels_down_is_noticed_by_a_running_root() {
    let fixture = RuntimeFixture::new();
    // The boss also waits for a tool, which times out.
    let hangs = ("files/write", json!({"n": 2}));
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "x"), hangs])]),
        ("deputy", vec![Ask(vec![part("agent/helper", "delete")]), Text("deleted")]),
        ("helper", vec![delete()]),
    ]);
    let runtime = with_hanging_tool(&fixture, models);
    let mut handle = create_boss_task(&runtime, "a").await;
    let waits = Some(TaskStatus::AwaitingHuman);
    fixture.until("the deputy waits", |fixture| status(fixture, "deputy") == waits).await;
    assert_eq!(status(&fixture, "boss"), Some(TaskStatus::Running));
    fixture.answer(&runtime, named(&fixture, "helper").unwrap().id, ReviewVerdict::Approve).await;
    // The running process notices without a resume.
    let done = Some(TaskStatus::Completed);
    fixture.until("the deputy is done", |fixture| status(fixture, "deputy") == done).await;
    assert_eq!(status(&fixture, "boss"), Some(TaskStatus::Running));
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn answer_at_any_moment_around_the_pause_is_applied() {
    // The tool times out after five seconds, and then the boss pauses.
    for ms in (4_800..5_300).step_by(20) {
        let fixture = RuntimeFixture::new();
        let hangs = ("files/write", json!({"n": 2}));
        let models = TestModels::new([
            ("boss", vec![Ask(vec![part("agent/helper", "x"), hangs])]),
            ("helper", vec![delete()]),
        ]);
        let runtime = with_hanging_tool(&fixture, models);
        let mut handle = create_boss_task(&runtime, "a").await;
        sleep(ms).await;
        fixture.answer(&runtime, fixture.sub_tasks(handle.id)[0].id, ReviewVerdict::Approve).await;
        // The answerer resumes the root, unless another process runs it.
        let adopted = runtime.adopt(handle.id).await;
        let first = handle.wait().await.unwrap();
        if let Ok(mut adopted) = adopted {
            adopted.wait().await.unwrap();
        }
        let status = fixture.task(handle.id).status;
        assert_eq!(status, TaskStatus::Completed, "answered after {ms} ms, first {first}");
    }
}

#[tokio::test(start_paused = true)]
async fn paused_sub_agent_ends_with_its_parent_after_a_crash() {
    let fixture = RuntimeFixture::new();
    let models = helped_by(delete());
    let runtime = fixture.process(1, &models);
    let id = pause(&runtime, for_boss("a")).await;
    // The process crashes after ending the parent and before ending the sub-agent.
    let sequence = fixture.load(id).await.sequence().0;
    let commit = commit(id, sequence, None, vec![Event::TaskCancelled]);
    fixture.store.commit(commit).await.unwrap();
    fixture.kill(1, runtime);
    let helper = fixture.sub_tasks(id)[0].id;
    assert_eq!(fixture.orphan_ids().await, [helper]);
    let refused = fixture.process(2, &models).adopt(helper).await.unwrap_err();
    assert!(refused.to_string().contains("is already cancelled"), "{refused}");
    assert_eq!(fixture.task(helper).status, TaskStatus::Cancelled);
}

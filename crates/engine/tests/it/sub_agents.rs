//! Sub-agents: isolation, parallel calls, crashes, reviews and cancellation.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::Limits;
use polity_engine::commands::CreateTask;
use polity_engine::runtime::{Runtime, RuntimeDeps, load_task};
use polity_model::event::Event;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_store::{Commit, TaskRow};
use polity_testkit::runtime::boss;
use polity_testkit::tools::{FakeToolAct, FakeTools};
use serde_json::json;

use crate::participants::ScriptedReply::{Ask, Fail, Hang, Text};
use crate::participants::{RuntimeFixture, TestModels, give, part};

#[tokio::test(start_paused = true)]
async fn conversations_of_parent_and_sub_agent_stay_separate() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "CANARY-DOWN")]), Text("over")]),
        ("deputy", vec![Ask(vec![part("agent/helper", "deeper")]), Text("SUMMARY")]),
        ("helper", vec![Text("CANARY-BELOW")]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut create = CreateTask::new(boss(), "CANARY-ABOVE");
    create.parameters.insert("secret".to_owned(), "CANARY-PARAMETER".into());
    let mut handle = runtime.create(create).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let shown = models.shown();
    let sessions: Vec<&str> = shown.keys().map(String::as_str).collect();
    assert_eq!(sessions, ["boss", "boss/1.1/deputy", "boss/1.1/deputy/1.1/helper"]);
    assert_eq!(shown["boss"], ["CANARY-ABOVE", "", "SUMMARY"]);
    assert_eq!(shown["boss/1.1/deputy"], ["CANARY-DOWN", "", "CANARY-BELOW"]);
    assert_eq!(shown["boss/1.1/deputy/1.1/helper"], ["deeper"]);
    let deputy = &fixture.sub_tasks(handle.id)[0];
    let task = fixture.task(deputy.id);
    assert_eq!((task.parent_task_id, task.parameters.len()), (Some(handle.id), 0));
    assert_eq!(fixture.said(deputy.id), ["CANARY-DOWN", "", "CANARY-BELOW", "SUMMARY"]);
}

#[tokio::test(start_paused = true)]
async fn sub_agents_of_one_turn_run_in_parallel_without_own_slots() {
    let fixture = RuntimeFixture::new();
    let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
    let models = TestModels::new([("boss", vec![Ask(helpers)]), ("helper", vec![])]);
    let one = |limits| Limits { concurrent_tasks: NonZeroU32::MIN, ..limits };
    let runtime = fixture.limited(1, &models, one);
    let mut first = give(&runtime, "a").await;
    let mut second = give(&runtime, "b").await;
    assert_eq!(first.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(models.max_concurrent(), 8);
    assert_eq!(second.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!((fixture.sub_tasks(first.id).len(), fixture.sub_tasks(second.id).len()), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_fan_out_limit_are_reported_to_the_model() {
    let fixture = RuntimeFixture::new();
    let helpers = (0..4).map(|number| part("agent/helper", &number.to_string())).collect();
    let models = TestModels::new([("boss", vec![Ask(helpers)]), ("helper", vec![])]);
    let two = NonZeroU32::new(2).unwrap();
    let runtime = fixture.limited(1, &models, |limits| Limits {
        sub_agent_fan_out: NonZeroU32::new(2).unwrap(),
        ..limits
    });
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.sub_tasks(handle.id).len(), two.get() as usize);
    let refused = "error: at most 2 sub-agents are called at once (limits.sub_agent_fan_out); ask \
                   for this one again";
    assert_eq!(fixture.said(handle.id)[2..6], ["done", "done", refused, refused]);
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
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.store.task_tree(handle.id).await.unwrap().task_count, 4);
    let second = fixture.sub_tasks(handle.id)[1].id;
    let expected = "error: the sub-agent was not called: 3 have worked for this task, the most that \
                limits.sub_agents allows";
    assert_eq!(fixture.said(second)[2], expected);
}

#[tokio::test(start_paused = true)]
async fn too_deep_delegation_is_rejected_before_any_call() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([]);
    let runtime =
        fixture.limited(1, &models, |limits| Limits { sub_agent_depth: NonZeroU32::MIN, ..limits });
    let refused = runtime.create(CreateTask::new(boss(), "a")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "work could be handed on over 2 steps (boss -> deputy -> helper); limits.sub_agent_depth \
         allows 1"
    );
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
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let expected = "error: helper failed (model_rejected): no such model";
    assert_eq!(fixture.said(handle.id)[2..], [expected, "by myself, then"]);
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
    let mut handle = give(&runtime, "a").await;
    fixture.until("all are at work", |fixture| fixture.all_tasks().len() == 4).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    // A cancelled parent has cancelled subtasks.
    assert!(fixture.all_tasks().iter().all(|row| row.status == TaskStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn cancelled_sub_agent_is_reported_to_its_parent() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Hang]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = give(&runtime, "a").await;
    fixture.until("it is at work", |fixture| has_running_sub_task(fixture, handle.id)).await;
    runtime.cancel(fixture.sub_tasks(handle.id)[0].id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.said(handle.id)[2], "error: helper was cancelled");
}

fn has_running_sub_task(fixture: &RuntimeFixture, id: TaskId) -> bool {
    fixture.sub_tasks(id).iter().any(|row| row.status == TaskStatus::Running)
}

#[tokio::test(start_paused = true)]
async fn parent_and_sub_agents_resume_after_a_crash() {
    let fixture = RuntimeFixture::new();
    let scripts = || [("boss", vec![Ask(vec![part("agent/deputy", "x")])])];
    let stuck = [("deputy", vec![Ask(vec![part("agent/helper", "y")])]), ("helper", vec![Hang])];
    let runtime = fixture.process(1, &TestModels::new(scripts().into_iter().chain(stuck)));
    let id = give(&runtime, "a").await.id;
    fixture.until("all are at work", |fixture| fixture.all_tasks().len() == 3).await;
    fixture.kill(1, runtime);
    // One of them is resumed, and the others with it.
    assert_eq!(fixture.orphan_ids().await, [id]);
    let models =
        TestModels::new(scripts().into_iter().chain([("deputy", vec![]), ("helper", vec![])]));
    let runtime = fixture.process(2, &models);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.all_tasks().len(), 3, "no sub-agent was opened twice");
    assert!(fixture.all_tasks().iter().all(|row| row.status == TaskStatus::Completed));
    let said: Vec<String> = fixture.said(fixture.sub_tasks(id)[0].id);
    assert_eq!(said, ["x", "", "done", "done"]);
}

#[tokio::test(start_paused = true)]
async fn sub_agent_of_an_ended_parent_is_cancelled() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Hang]),
    ]);
    let runtime = fixture.process(1, &models);
    let handle = give(&runtime, "a").await;
    fixture.until("it is at work", |fixture| has_running_sub_task(fixture, handle.id)).await;
    fixture.kill(1, runtime);
    let runtime = fixture.process(2, &models);
    // Cancelling the parent from outside cancels its subtasks.
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(fixture.task(fixture.sub_tasks(handle.id)[0].id).status, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn parent_pauses_with_its_sub_agent_and_frees_its_slot() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "x")]), Text("all done")]),
        ("deputy", vec![Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let rows = fixture.all_tasks();
    for row in &rows {
        assert_eq!((row.status, row.owner), (TaskStatus::AwaitingHuman, None));
    }
    assert_eq!(fixture.orphan_ids().await, []);
    fixture.kill(1, runtime);
    let runtime = fixture.process(2, &models);
    // Without an answer, it pauses again.
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let deputy = fixture.sub_tasks(handle.id)[0].id;
    let helper = fixture.sub_tasks(deputy)[0].id;
    fixture.answer(&runtime, helper, ReviewVerdict::Approve).await;
    assert_eq!(fixture.orphan_ids().await, [handle.id]);
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.task(handle.id).result.as_deref(), Some("all done"));
    assert_eq!(fixture.all_tasks().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn other_sub_agents_continue_during_a_review() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let boss = Ask(vec![part("agent/helper", "x"), part("agent/deputy", "y")]);
    let models = TestModels::new([
        ("boss", vec![boss, Text("both done")]),
        ("deputy", vec![Hang]),
        ("helper", vec![Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let named = |fixture: &RuntimeFixture, agent: &str| {
        fixture.sub_tasks(id).into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status =
        |fixture: &RuntimeFixture, agent: &str| named(fixture, agent).map(|row| row.status);
    fixture
        .until("one waits", |fixture| status(fixture, "helper") == Some(TaskStatus::AwaitingHuman))
        .await;
    let helper = named(&fixture, "helper").unwrap().id;
    assert_eq!(fixture.task(handle.id).status, TaskStatus::Running);
    fixture.answer(&runtime, helper, ReviewVerdict::Approve).await;
    // The parent's process notices the answer, and resumes the sub-agent.
    fixture
        .until("it goes on", |fixture| status(fixture, "helper") == Some(TaskStatus::Completed))
        .await;
    assert_eq!(fixture.task(handle.id).status, TaskStatus::Running);
    runtime.cancel(named(&fixture, "deputy").unwrap().id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn nested_answer_reaches_a_busy_parent() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let parts = Ask(vec![part("agent/deputy", "x"), part("agent/helper", "hang")]);
    let models = TestModels::new([
        ("boss", vec![parts]),
        ("deputy", vec![Ask(vec![part("agent/helper", "delete")]), Text("deleted")]),
        ("helper", vec![Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let waiting = |fixture: &RuntimeFixture| -> Vec<TaskRow> {
        let rows = fixture.all_tasks();
        rows.into_iter().filter(|row| row.status == TaskStatus::AwaitingHuman).collect()
    };
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(waiting(&fixture).len(), 4);
    let below = |fixture: &RuntimeFixture, agent: &str, of: TaskId| {
        fixture
            .sub_tasks(of)
            .into_iter()
            .find(|row| row.assigned_agent.as_str() == agent)
            .unwrap()
            .id
    };
    let deputy = below(&fixture, "deputy", id);
    let far_below = below(&fixture, "helper", deputy);
    // The answer to the innermost task makes its ancestors orphans.
    fixture.answer(&runtime, far_below, ReviewVerdict::Approve).await;
    assert_eq!(fixture.orphan_ids().await, [id]);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(fixture.task(deputy).status, TaskStatus::Completed);
    // The owner of the root finishes it while the other is answered.
    fixture.answer(&runtime, below(&fixture, "helper", id), ReviewVerdict::Approve).await;
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn answer_two_levels_down_is_noticed_by_a_running_root() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    // The boss also waits for a tool, which times out.
    let hangs = ("files/write", json!({"n": 2}));
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/deputy", "x"), hangs])]),
        ("deputy", vec![Ask(vec![part("agent/helper", "delete")]), Text("deleted")]),
        ("helper", vec![Ask(vec![delete])]),
    ]);
    let deps = fixture.deps_of_process(1, &models);
    let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
    let runtime = Runtime::start(RuntimeDeps { tools: Arc::new(tools), ..deps }).await.unwrap();
    let mut handle = give(&runtime, "a").await;
    let named = |fixture: &RuntimeFixture, agent: &str| {
        let rows = fixture.all_tasks();
        rows.into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status =
        |fixture: &RuntimeFixture, agent: &str| named(fixture, agent).map(|row| row.status);
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
        let (delete, hangs) = (("files/delete", json!({"n": 1})), ("files/write", json!({"n": 2})));
        let models = TestModels::new([
            ("boss", vec![Ask(vec![part("agent/helper", "x"), hangs])]),
            ("helper", vec![Ask(vec![delete])]),
        ]);
        let deps = fixture.deps_of_process(1, &models);
        let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
        let runtime = Runtime::start(RuntimeDeps { tools: Arc::new(tools), ..deps }).await.unwrap();
        let mut handle = give(&runtime, "a").await;
        tokio::time::sleep(Duration::from_millis(ms)).await;
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
    let delete = ("files/delete", json!({"n": 1}));
    let models = TestModels::new([
        ("boss", vec![Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    // The process crashes after ending the parent and before ending the sub-agent.
    let parent = load_task(&*fixture.store, handle.id).await.unwrap().state;
    let commit = Commit {
        stream: parent.stream(),
        expected_sequence: parent.sequence(),
        owner_epoch: None,
        at: parent.task().order().created_at,
        events: vec![Event::TaskCancelled],
        definitions: Vec::new(),
        sealed_input: None,
    };
    fixture.store.commit(commit).await.unwrap();
    fixture.kill(1, runtime);
    let helper = fixture.sub_tasks(handle.id)[0].id;
    assert_eq!(fixture.orphan_ids().await, [helper]);
    let refused = fixture.process(2, &models).adopt(helper).await.unwrap_err();
    assert!(refused.to_string().contains("is already cancelled"), "{refused}");
    assert_eq!(fixture.task(helper).status, TaskStatus::Cancelled);
}

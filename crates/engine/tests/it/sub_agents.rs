//! Agents that hand work to others: apart, side by side, after a crash, before a person, and ended
//! together.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polity_definition::Limits;
use polity_engine::commands::CreateTask;
use polity_engine::runtime::{Runtime, RuntimeDeps, find_orphans, load_task};
use polity_model::event::Event;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_store::{Commit, TaskFilter, TaskRow};
use polity_testkit::runtime::boss;
use polity_testkit::tools::{FakeToolAct, FakeTools};
use serde_json::json;

use crate::participants::{RuntimeFixture, ScriptedModels, ScriptedReply, give, part};

#[tokio::test(start_paused = true)]
async fn nothing_leaks_either_way() {
    let fixture = RuntimeFixture::new();
    let cast = ScriptedModels::new([
        (
            "boss",
            vec![
                ScriptedReply::Ask(vec![part("agent/deputy", "CANARY-DOWN")]),
                ScriptedReply::Text("over"),
            ],
        ),
        (
            "deputy",
            vec![
                ScriptedReply::Ask(vec![part("agent/helper", "deeper")]),
                ScriptedReply::Text("SUMMARY"),
            ],
        ),
        ("helper", vec![ScriptedReply::Text("CANARY-BELOW")]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut create = CreateTask::new(boss(), "CANARY-ABOVE");
    create.parameters.insert("secret".to_owned(), "CANARY-PARAMETER".into());
    let mut handle = runtime.create(create).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let shown = cast.shown();
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
async fn sub_agents_of_one_turn_work_side_by_side_and_need_no_place_of_their_own() {
    let fixture = RuntimeFixture::new();
    let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast =
        ScriptedModels::new([("boss", vec![ScriptedReply::Ask(helpers)]), ("helper", vec![])]);
    let one = |limits| Limits { concurrent_tasks: NonZeroU32::MIN, ..limits };
    let runtime = fixture.limited(1, &cast, one);
    let mut first = give(&runtime, "a").await;
    let mut second = give(&runtime, "b").await;
    assert_eq!(first.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(cast.at_once_most(), 8);
    assert_eq!(second.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!((fixture.sub_tasks(first.id).len(), fixture.sub_tasks(second.id).len()), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn more_sub_agents_than_the_limit_allows_are_not_called_and_the_model_is_told() {
    let fixture = RuntimeFixture::new();
    let helpers = (0..4).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast =
        ScriptedModels::new([("boss", vec![ScriptedReply::Ask(helpers)]), ("helper", vec![])]);
    let two = NonZeroU32::new(2).unwrap();
    let runtime = fixture.limited(1, &cast, |limits| Limits {
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
async fn no_more_sub_agents_work_for_a_task_than_allowed_at_any_depth() {
    let fixture = RuntimeFixture::new();
    let two = || ScriptedReply::Ask(vec![part("agent/deputy", "x")]);
    let cast = ScriptedModels::new([
        ("boss", vec![two(), two(), ScriptedReply::Text("over")]),
        ("deputy", vec![ScriptedReply::Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![]),
    ]);
    let runtime = fixture
        .limited(1, &cast, |limits| Limits { sub_agents: NonZeroU32::new(3).unwrap(), ..limits });
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.store.task_tree(handle.id).await.unwrap().task_count, 4);
    let second = fixture.sub_tasks(handle.id)[1].id;
    let told = "error: the sub-agent was not called: 3 have worked for this task, the most that \
                limits.sub_agents allows";
    assert_eq!(fixture.said(second)[2], told);
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_is_too_long_is_refused_before_anything_is_spent() {
    let fixture = RuntimeFixture::new();
    let cast = ScriptedModels::new([]);
    let runtime =
        fixture.limited(1, &cast, |limits| Limits { sub_agent_depth: NonZeroU32::MIN, ..limits });
    let refused = runtime.create(CreateTask::new(boss(), "a")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "work could be handed on over 2 steps (boss -> deputy -> helper); limits.sub_agent_depth \
         allows 1"
    );
    assert_eq!(fixture.store.last_position().await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_parent_learns_why_a_sub_agent_failed_and_goes_another_way() {
    let fixture = RuntimeFixture::new();
    let cast = ScriptedModels::new([
        (
            "boss",
            vec![
                ScriptedReply::Ask(vec![part("agent/helper", "x")]),
                ScriptedReply::Text("by myself, then"),
            ],
        ),
        ("helper", vec![ScriptedReply::Fail]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let told = "error: helper failed (model_rejected): no such model";
    assert_eq!(fixture.said(handle.id)[2..], [told, "by myself, then"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_parent_cancels_its_sub_agents_to_the_last() {
    let fixture = RuntimeFixture::new();
    let cast = ScriptedModels::new([
        (
            "boss",
            vec![ScriptedReply::Ask(vec![part("agent/deputy", "x"), part("agent/helper", "y")])],
        ),
        ("deputy", vec![ScriptedReply::Ask(vec![part("agent/helper", "z")])]),
        ("helper", vec![ScriptedReply::Hang]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let all =
        |fixture: &RuntimeFixture| fixture.store.task_rows(&TaskFilter::default()).wait().unwrap();
    fixture.until("all are at work", |fixture| all(fixture).len() == 4).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    // When the parent is told to be over, so are its parts.
    assert!(all(&fixture).iter().all(|row| row.status == TaskStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_someone_cancels_is_an_answer_to_its_parent() {
    let fixture = RuntimeFixture::new();
    let cast = ScriptedModels::new([
        ("boss", vec![ScriptedReply::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![ScriptedReply::Hang]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    fixture.until("it is at work", |fixture| cast_at_work(fixture, handle.id)).await;
    runtime.cancel(fixture.sub_tasks(handle.id)[0].id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.said(handle.id)[2], "error: helper was cancelled");
}

fn cast_at_work(fixture: &RuntimeFixture, id: TaskId) -> bool {
    fixture.sub_tasks(id).iter().any(|row| row.status == TaskStatus::Running)
}

#[tokio::test(start_paused = true)]
async fn a_crash_resumes_parent_and_sub_agents_where_they_were() {
    let fixture = RuntimeFixture::new();
    let lines = || [("boss", vec![ScriptedReply::Ask(vec![part("agent/deputy", "x")])])];
    let stuck = [
        ("deputy", vec![ScriptedReply::Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![ScriptedReply::Hang]),
    ];
    let runtime = fixture.process(1, &ScriptedModels::new(lines().into_iter().chain(stuck)));
    let id = give(&runtime, "a").await.id;
    let all =
        |fixture: &RuntimeFixture| fixture.store.task_rows(&TaskFilter::default()).wait().unwrap();
    fixture.until("all are at work", |fixture| all(fixture).len() == 3).await;
    fixture.kill(1, runtime);
    // One of them is resumed, and the others go on with it.
    let left =
        find_orphans(&*fixture.store, &*fixture.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    let cast =
        ScriptedModels::new(lines().into_iter().chain([("deputy", vec![]), ("helper", vec![])]));
    let runtime = fixture.process(2, &cast);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(all(&fixture).len(), 3, "no sub-agent was opened twice");
    assert!(all(&fixture).iter().all(|row| row.status == TaskStatus::Completed));
    let said: Vec<String> = fixture.said(fixture.sub_tasks(id)[0].id);
    assert_eq!(said, ["x", "", "done", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_whose_parent_has_ended_ends_with_it() {
    let fixture = RuntimeFixture::new();
    let cast = ScriptedModels::new([
        ("boss", vec![ScriptedReply::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![ScriptedReply::Hang]),
    ]);
    let runtime = fixture.process(1, &cast);
    let handle = give(&runtime, "a").await;
    fixture.until("it is at work", |fixture| cast_at_work(fixture, handle.id)).await;
    fixture.kill(1, runtime);
    let runtime = fixture.process(2, &cast);
    // Whoever ends the parent from outside ends what it has handed out.
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(fixture.task(fixture.sub_tasks(handle.id)[0].id).status, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_parent_waits_with_its_sub_agent_for_a_person_and_holds_nothing() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let cast = ScriptedModels::new([
        (
            "boss",
            vec![
                ScriptedReply::Ask(vec![part("agent/deputy", "x")]),
                ScriptedReply::Text("all done"),
            ],
        ),
        ("deputy", vec![ScriptedReply::Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![ScriptedReply::Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let rows = fixture.store.task_rows(&TaskFilter::default()).await.unwrap();
    for row in &rows {
        assert_eq!((row.status, row.owner), (TaskStatus::AwaitingHuman, None));
    }
    assert_eq!(
        find_orphans(&*fixture.store, &*fixture.leases, Timestamp::UNIX_EPOCH).await.unwrap(),
        []
    );
    fixture.kill(1, runtime);
    let runtime = fixture.process(2, &cast);
    // Without an answer, resuming it only finds that it waits.
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let deputy = fixture.sub_tasks(handle.id)[0].id;
    let helper = fixture.sub_tasks(deputy)[0].id;
    fixture.answer(&runtime, helper, ReviewVerdict::Approve).await;
    let left =
        find_orphans(&*fixture.store, &*fixture.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [handle.id]);
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.task(handle.id).result.as_deref(), Some("all done"));
    assert_eq!(fixture.store.task_rows(&TaskFilter::default()).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_one_sub_agent_waits_for_a_person_the_others_work_on() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let boss = ScriptedReply::Ask(vec![part("agent/helper", "x"), part("agent/deputy", "y")]);
    let cast = ScriptedModels::new([
        ("boss", vec![boss, ScriptedReply::Text("both done")]),
        ("deputy", vec![ScriptedReply::Hang]),
        ("helper", vec![ScriptedReply::Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &cast);
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
    // The parent's process notices the answer, and goes on with the sub-agent.
    fixture
        .until("it goes on", |fixture| status(fixture, "helper") == Some(TaskStatus::Completed))
        .await;
    assert_eq!(fixture.task(handle.id).status, TaskStatus::Running);
    runtime.cancel(named(&fixture, "deputy").unwrap().id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_far_below_reaches_a_parent_that_is_busy_with_others() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let parts = ScriptedReply::Ask(vec![part("agent/deputy", "x"), part("agent/helper", "hang")]);
    let cast = ScriptedModels::new([
        ("boss", vec![parts]),
        (
            "deputy",
            vec![
                ScriptedReply::Ask(vec![part("agent/helper", "delete")]),
                ScriptedReply::Text("deleted"),
            ],
        ),
        ("helper", vec![ScriptedReply::Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let waiting = |fixture: &RuntimeFixture| -> Vec<TaskRow> {
        let rows = fixture.store.task_rows(&TaskFilter::default()).wait().unwrap();
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
    // The one far below is answered, and that is something to do for those above it.
    fixture.answer(&runtime, far_below, ReviewVerdict::Approve).await;
    let left =
        find_orphans(&*fixture.store, &*fixture.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(fixture.task(deputy).status, TaskStatus::Completed);
    // While the other is being answered and goes on, the whole is taken to its end by its owner.
    fixture.answer(&runtime, below(&fixture, "helper", id), ReviewVerdict::Approve).await;
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_two_steps_below_is_noticed_while_the_top_is_at_work() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    // The boss has something else to wait for: a tool that does not answer in time.
    let hangs = ("files/write", json!({"n": 2}));
    let cast = ScriptedModels::new([
        ("boss", vec![ScriptedReply::Ask(vec![part("agent/deputy", "x"), hangs])]),
        (
            "deputy",
            vec![
                ScriptedReply::Ask(vec![part("agent/helper", "delete")]),
                ScriptedReply::Text("deleted"),
            ],
        ),
        ("helper", vec![ScriptedReply::Ask(vec![delete])]),
    ]);
    let deps = fixture.deps_of_process(1, &cast);
    let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
    let runtime = Runtime::start(RuntimeDeps { tools: Arc::new(tools), ..deps }).await.unwrap();
    let mut handle = give(&runtime, "a").await;
    let named = |fixture: &RuntimeFixture, agent: &str| {
        let rows = fixture.store.task_rows(&TaskFilter::default()).wait().unwrap();
        rows.into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status =
        |fixture: &RuntimeFixture, agent: &str| named(fixture, agent).map(|row| row.status);
    let waits = Some(TaskStatus::AwaitingHuman);
    fixture.until("the deputy waits", |fixture| status(fixture, "deputy") == waits).await;
    assert_eq!(status(&fixture, "boss"), Some(TaskStatus::Running));
    fixture.answer(&runtime, named(&fixture, "helper").unwrap().id, ReviewVerdict::Approve).await;
    // Nobody resumes anything: the one at work notices.
    let done = Some(TaskStatus::Completed);
    fixture.until("the deputy is done", |fixture| status(fixture, "deputy") == done).await;
    assert_eq!(status(&fixture, "boss"), Some(TaskStatus::Running));
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_any_moment_around_the_pause_is_acted_upon() {
    // The tool is given up after five seconds, and then the boss has nothing left but to wait.
    for ms in (4_800..5_300).step_by(20) {
        let fixture = RuntimeFixture::new();
        let (delete, hangs) = (("files/delete", json!({"n": 1})), ("files/write", json!({"n": 2})));
        let cast = ScriptedModels::new([
            ("boss", vec![ScriptedReply::Ask(vec![part("agent/helper", "x"), hangs])]),
            ("helper", vec![ScriptedReply::Ask(vec![delete])]),
        ]);
        let deps = fixture.deps_of_process(1, &cast);
        let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
        let runtime = Runtime::start(RuntimeDeps { tools: Arc::new(tools), ..deps }).await.unwrap();
        let mut handle = give(&runtime, "a").await;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        fixture.answer(&runtime, fixture.sub_tasks(handle.id)[0].id, ReviewVerdict::Approve).await;
        // Whoever answers goes on with the whole, unless someone is at work on it.
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
async fn a_sub_agent_that_waits_for_a_person_is_ended_with_its_parent_even_after_a_crash() {
    let fixture = RuntimeFixture::new();
    let delete = ("files/delete", json!({"n": 1}));
    let cast = ScriptedModels::new([
        ("boss", vec![ScriptedReply::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![ScriptedReply::Ask(vec![delete])]),
    ]);
    let runtime = fixture.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    // The parent is ended, and the process dies before it has ended the sub-agent.
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
    let left =
        find_orphans(&*fixture.store, &*fixture.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [helper]);
    let refused = fixture.process(2, &cast).adopt(helper).await.unwrap_err();
    assert!(refused.to_string().contains("is already cancelled"), "{refused}");
    assert_eq!(fixture.task(helper).status, TaskStatus::Cancelled);
}

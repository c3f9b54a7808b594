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

use crate::participants::{Cast, Say, Stage, give, part};

#[tokio::test(start_paused = true)]
async fn nothing_leaks_either_way() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "CANARY-DOWN")]), Say::Text("over")]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "deeper")]), Say::Text("SUMMARY")]),
        ("helper", vec![Say::Text("CANARY-BELOW")]),
    ]);
    let runtime = stage.process(1, &cast);
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
    let deputy = &stage.sub_tasks(handle.id)[0];
    let task = stage.task(deputy.id);
    assert_eq!((task.parent_task_id, task.parameters.len()), (Some(handle.id), 0));
    assert_eq!(stage.said(deputy.id), ["CANARY-DOWN", "", "CANARY-BELOW", "SUMMARY"]);
}

#[tokio::test(start_paused = true)]
async fn sub_agents_of_one_turn_work_side_by_side_and_need_no_place_of_their_own() {
    let stage = Stage::new();
    let helpers = (0..8).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast = Cast::new([("boss", vec![Say::Ask(helpers)]), ("helper", vec![])]);
    let one = |limits| Limits { concurrent_tasks: NonZeroU32::MIN, ..limits };
    let runtime = stage.limited(1, &cast, one);
    let mut first = give(&runtime, "a").await;
    let mut second = give(&runtime, "b").await;
    assert_eq!(first.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(cast.at_once_most(), 8);
    assert_eq!(second.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!((stage.sub_tasks(first.id).len(), stage.sub_tasks(second.id).len()), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn more_sub_agents_than_the_limit_allows_are_not_called_and_the_model_is_told() {
    let stage = Stage::new();
    let helpers = (0..4).map(|number| part("agent/helper", &number.to_string())).collect();
    let cast = Cast::new([("boss", vec![Say::Ask(helpers)]), ("helper", vec![])]);
    let two = NonZeroU32::new(2).unwrap();
    let runtime = stage.limited(1, &cast, |limits| Limits {
        sub_agent_fan_out: NonZeroU32::new(2).unwrap(),
        ..limits
    });
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.sub_tasks(handle.id).len(), two.get() as usize);
    let refused = "error: at most 2 sub-agents are called at once (limits.sub_agent_fan_out); ask \
                   for this one again";
    assert_eq!(stage.said(handle.id)[2..6], ["done", "done", refused, refused]);
}

#[tokio::test(start_paused = true)]
async fn no_more_sub_agents_work_for_a_task_than_allowed_at_any_depth() {
    let stage = Stage::new();
    let two = || Say::Ask(vec![part("agent/deputy", "x")]);
    let cast = Cast::new([
        ("boss", vec![two(), two(), Say::Text("over")]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![]),
    ]);
    let runtime = stage
        .limited(1, &cast, |limits| Limits { sub_agents: NonZeroU32::new(3).unwrap(), ..limits });
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.store.task_tree(handle.id).await.unwrap().task_count, 4);
    let second = stage.sub_tasks(handle.id)[1].id;
    let told = "error: the sub-agent was not called: 3 have worked for this task, the most that \
                limits.sub_agents allows";
    assert_eq!(stage.said(second)[2], told);
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_is_too_long_is_refused_before_anything_is_spent() {
    let stage = Stage::new();
    let cast = Cast::new([]);
    let runtime =
        stage.limited(1, &cast, |limits| Limits { sub_agent_depth: NonZeroU32::MIN, ..limits });
    let refused = runtime.create(CreateTask::new(boss(), "a")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "work could be handed on over 2 steps (boss -> deputy -> helper); limits.sub_agent_depth \
         allows 1"
    );
    assert_eq!(stage.store.last_position().await.unwrap().0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_parent_learns_why_a_sub_agent_failed_and_goes_another_way() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")]), Say::Text("by myself, then")]),
        ("helper", vec![Say::Fail]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    let told = "error: helper failed (model_rejected): no such model";
    assert_eq!(stage.said(handle.id)[2..], [told, "by myself, then"]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_parent_cancels_its_sub_agents_to_the_last() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "x"), part("agent/helper", "y")])]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "z")])]),
        ("helper", vec![Say::Hang]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let all = |stage: &Stage| stage.store.task_rows(&TaskFilter::default()).wait().unwrap();
    stage.until("all are at work", |stage| all(stage).len() == 4).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    // When the parent is told to be over, so are its parts.
    assert!(all(&stage).iter().all(|row| row.status == TaskStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_someone_cancels_is_an_answer_to_its_parent() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Say::Hang]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    stage.until("it is at work", |stage| cast_at_work(stage, handle.id)).await;
    runtime.cancel(stage.sub_tasks(handle.id)[0].id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.said(handle.id)[2], "error: helper was cancelled");
}

fn cast_at_work(stage: &Stage, id: TaskId) -> bool {
    stage.sub_tasks(id).iter().any(|row| row.status == TaskStatus::Running)
}

#[tokio::test(start_paused = true)]
async fn a_crash_resumes_parent_and_sub_agents_where_they_were() {
    let stage = Stage::new();
    let lines = || [("boss", vec![Say::Ask(vec![part("agent/deputy", "x")])])];
    let stuck =
        [("deputy", vec![Say::Ask(vec![part("agent/helper", "y")])]), ("helper", vec![Say::Hang])];
    let runtime = stage.process(1, &Cast::new(lines().into_iter().chain(stuck)));
    let id = give(&runtime, "a").await.id;
    let all = |stage: &Stage| stage.store.task_rows(&TaskFilter::default()).wait().unwrap();
    stage.until("all are at work", |stage| all(stage).len() == 3).await;
    stage.kill(1, runtime);
    // One of them is resumed, and the others go on with it.
    let left = find_orphans(&*stage.store, &*stage.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    let cast = Cast::new(lines().into_iter().chain([("deputy", vec![]), ("helper", vec![])]));
    let runtime = stage.process(2, &cast);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(all(&stage).len(), 3, "no sub-agent was opened twice");
    assert!(all(&stage).iter().all(|row| row.status == TaskStatus::Completed));
    let said: Vec<String> = stage.said(stage.sub_tasks(id)[0].id);
    assert_eq!(said, ["x", "", "done", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_whose_parent_has_ended_ends_with_it() {
    let stage = Stage::new();
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Say::Hang]),
    ]);
    let runtime = stage.process(1, &cast);
    let handle = give(&runtime, "a").await;
    stage.until("it is at work", |stage| cast_at_work(stage, handle.id)).await;
    stage.kill(1, runtime);
    let runtime = stage.process(2, &cast);
    // Whoever ends the parent from outside ends what it has handed out.
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(stage.task(stage.sub_tasks(handle.id)[0].id).status, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_parent_waits_with_its_sub_agent_for_a_person_and_holds_nothing() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "x")]), Say::Text("all done")]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "y")])]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let rows = stage.store.task_rows(&TaskFilter::default()).await.unwrap();
    for row in &rows {
        assert_eq!((row.status, row.owner), (TaskStatus::AwaitingHuman, None));
    }
    assert_eq!(
        find_orphans(&*stage.store, &*stage.leases, Timestamp::UNIX_EPOCH).await.unwrap(),
        []
    );
    stage.kill(1, runtime);
    let runtime = stage.process(2, &cast);
    // Without an answer, resuming it only finds that it waits.
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    let deputy = stage.sub_tasks(handle.id)[0].id;
    let helper = stage.sub_tasks(deputy)[0].id;
    stage.answer(&runtime, helper, ReviewVerdict::Approve).await;
    let left = find_orphans(&*stage.store, &*stage.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [handle.id]);
    let mut handle = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(stage.task(handle.id).result.as_deref(), Some("all done"));
    assert_eq!(stage.store.task_rows(&TaskFilter::default()).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_one_sub_agent_waits_for_a_person_the_others_work_on() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let boss = Say::Ask(vec![part("agent/helper", "x"), part("agent/deputy", "y")]);
    let cast = Cast::new([
        ("boss", vec![boss, Say::Text("both done")]),
        ("deputy", vec![Say::Hang]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let named = |stage: &Stage, agent: &str| {
        stage.sub_tasks(id).into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status = |stage: &Stage, agent: &str| named(stage, agent).map(|row| row.status);
    stage
        .until("one waits", |stage| status(stage, "helper") == Some(TaskStatus::AwaitingHuman))
        .await;
    let helper = named(&stage, "helper").unwrap().id;
    assert_eq!(stage.task(handle.id).status, TaskStatus::Running);
    stage.answer(&runtime, helper, ReviewVerdict::Approve).await;
    // The parent's process notices the answer, and goes on with the sub-agent.
    stage.until("it goes on", |stage| status(stage, "helper") == Some(TaskStatus::Completed)).await;
    assert_eq!(stage.task(handle.id).status, TaskStatus::Running);
    runtime.cancel(named(&stage, "deputy").unwrap().id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_far_below_reaches_a_parent_that_is_busy_with_others() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let parts = Say::Ask(vec![part("agent/deputy", "x"), part("agent/helper", "hang")]);
    let cast = Cast::new([
        ("boss", vec![parts]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "delete")]), Say::Text("deleted")]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    let id = handle.id;
    let waiting = |stage: &Stage| -> Vec<TaskRow> {
        let rows = stage.store.task_rows(&TaskFilter::default()).wait().unwrap();
        rows.into_iter().filter(|row| row.status == TaskStatus::AwaitingHuman).collect()
    };
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(waiting(&stage).len(), 4);
    let below = |stage: &Stage, agent: &str, of: TaskId| {
        stage.sub_tasks(of).into_iter().find(|row| row.assigned_agent.as_str() == agent).unwrap().id
    };
    let deputy = below(&stage, "deputy", id);
    let far_below = below(&stage, "helper", deputy);
    // The one far below is answered, and that is something to do for those above it.
    stage.answer(&runtime, far_below, ReviewVerdict::Approve).await;
    let left = find_orphans(&*stage.store, &*stage.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(stage.task(deputy).status, TaskStatus::Completed);
    // While the other is being answered and goes on, the whole is taken to its end by its owner.
    stage.answer(&runtime, below(&stage, "helper", id), ReviewVerdict::Approve).await;
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_two_steps_below_is_noticed_while_the_top_is_at_work() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    // The boss has something else to wait for: a tool that does not answer in time.
    let hangs = ("files/write", json!({"n": 2}));
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/deputy", "x"), hangs])]),
        ("deputy", vec![Say::Ask(vec![part("agent/helper", "delete")]), Say::Text("deleted")]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let deps = stage.deps_of_process(1, &cast);
    let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
    let runtime = Runtime::start(RuntimeDeps { tools: Arc::new(tools), ..deps }).await.unwrap();
    let mut handle = give(&runtime, "a").await;
    let named = |stage: &Stage, agent: &str| {
        let rows = stage.store.task_rows(&TaskFilter::default()).wait().unwrap();
        rows.into_iter().find(|row| row.assigned_agent.as_str() == agent)
    };
    let status = |stage: &Stage, agent: &str| named(stage, agent).map(|row| row.status);
    let waits = Some(TaskStatus::AwaitingHuman);
    stage.until("the deputy waits", |stage| status(stage, "deputy") == waits).await;
    assert_eq!(status(&stage, "boss"), Some(TaskStatus::Running));
    stage.answer(&runtime, named(&stage, "helper").unwrap().id, ReviewVerdict::Approve).await;
    // Nobody resumes anything: the one at work notices.
    let done = Some(TaskStatus::Completed);
    stage.until("the deputy is done", |stage| status(stage, "deputy") == done).await;
    assert_eq!(status(&stage, "boss"), Some(TaskStatus::Running));
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_any_moment_around_the_pause_is_acted_upon() {
    // The tool is given up after five seconds, and then the boss has nothing left but to wait.
    for ms in (4_800..5_300).step_by(20) {
        let stage = Stage::new();
        let (delete, hangs) = (("files/delete", json!({"n": 1})), ("files/write", json!({"n": 2})));
        let cast = Cast::new([
            ("boss", vec![Say::Ask(vec![part("agent/helper", "x"), hangs])]),
            ("helper", vec![Say::Ask(vec![delete])]),
        ]);
        let deps = stage.deps_of_process(1, &cast);
        let tools = FakeTools::new(&Arc::default(), [FakeToolAct::Hang], Duration::from_millis(5));
        let runtime = Runtime::start(RuntimeDeps { tools: Arc::new(tools), ..deps }).await.unwrap();
        let mut handle = give(&runtime, "a").await;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        stage.answer(&runtime, stage.sub_tasks(handle.id)[0].id, ReviewVerdict::Approve).await;
        // Whoever answers goes on with the whole, unless someone is at work on it.
        let adopted = runtime.adopt(handle.id).await;
        let first = handle.wait().await.unwrap();
        if let Ok(mut adopted) = adopted {
            adopted.wait().await.unwrap();
        }
        let status = stage.task(handle.id).status;
        assert_eq!(status, TaskStatus::Completed, "answered after {ms} ms, first {first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_that_waits_for_a_person_is_ended_with_its_parent_even_after_a_crash() {
    let stage = Stage::new();
    let delete = ("files/delete", json!({"n": 1}));
    let cast = Cast::new([
        ("boss", vec![Say::Ask(vec![part("agent/helper", "x")])]),
        ("helper", vec![Say::Ask(vec![delete])]),
    ]);
    let runtime = stage.process(1, &cast);
    let mut handle = give(&runtime, "a").await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    // The parent is ended, and the process dies before it has ended the sub-agent.
    let parent = load_task(&*stage.store, handle.id).await.unwrap().state;
    let commit = Commit {
        stream: parent.stream(),
        expected_sequence: parent.sequence(),
        owner_epoch: None,
        at: parent.task().order().created_at,
        events: vec![Event::TaskCancelled],
        definitions: Vec::new(),
        sealed_input: None,
    };
    stage.store.commit(commit).await.unwrap();
    stage.kill(1, runtime);
    let helper = stage.sub_tasks(handle.id)[0].id;
    let left = find_orphans(&*stage.store, &*stage.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [helper]);
    let refused = stage.process(2, &cast).adopt(helper).await.unwrap_err();
    assert!(refused.to_string().contains("is already cancelled"), "{refused}");
    assert_eq!(stage.task(helper).status, TaskStatus::Cancelled);
}

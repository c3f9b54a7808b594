//! Retries of failed and cancelled agents, and the checkpoints of their turns.

use polity_model::event::RaisedLimits;
use polity_model::task::retry_id;

use crate::participants::ScriptedReply::{Ask, Fail, Hang, Text};
use crate::participants::{ScriptedReply, TestModels, for_boss, part};
use crate::prelude::*;

fn request(task: TaskId) -> RetryRequest {
    RetryRequest { task, raised: RaisedLimits::default(), definitions: None, request: None }
}

/// Creates a task and waits until it has ended.
async fn end(runtime: &Runtime, create: CreateTask) -> TaskId {
    let mut handle = runtime.create(create).await.unwrap();
    handle.wait().await.unwrap();
    handle.id
}

/// Retries a task and waits until it has ended or waits.
async fn retry(runtime: &Runtime, task: TaskId) -> TaskId {
    let mut handle = runtime.retry(request(task)).await.unwrap();
    handle.wait().await.unwrap();
    handle.id
}

fn helper() -> ScriptedReply {
    Ask(vec![part("agent/helper", "a part")])
}

#[tokio::test(start_paused = true)]
async fn each_turn_has_a_checkpoint_that_can_be_forked() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([
        ("boss", vec![helper(), helper(), Text("the end")]),
        ("helper", vec![Text("half"), Text("more")]),
    ]);
    let runtime = fixture.process(1, &models);
    let id = complete(&runtime, for_boss("a")).await;
    let rows = fixture.store.checkpoints(id).await.unwrap();
    let counts: Vec<_> = rows.iter().map(|row| (row.sequence, row.message_count)).collect();
    assert_eq!(counts, [(0, 3), (1, 5), (2, 6)]);
    assert!(rows.iter().all(|row| row.node == "boss" && !row.awaiting_human));
    // No turn is stored twice: a checkpoint is a mark on the call that follows it.
    let marks =
        fixture.events(id).iter().filter(|event| event.label() == "checkpoint_taken").count();
    assert_eq!(marks, 1);
    for (at, helpers) in [(0, 1), (1, 0)] {
        let request = ForkRequest::new(id, at, StateUpdates::default());
        let mut fork = runtime.fork(request).await.unwrap();
        assert_eq!(fork.wait().await.unwrap(), TaskStatus::Completed);
        assert_eq!(fixture.sub_tasks(fork.id).len(), helpers, "{at}");
        assert_eq!(fixture.task(fork.id).result.as_deref(), Some("the end"));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_agent_goes_on_before_the_failed_call() {
    let fixture = RuntimeFixture::new();
    let broken = TestModels::new([("boss", vec![helper(), Fail]), ("helper", vec![Text("half")])]);
    let runtime = fixture.process(1, &broken);
    let failed = end(&runtime, for_boss("a")).await;
    assert_eq!(fixture.task(failed).status, TaskStatus::Failed);

    let mended = TestModels::new([("boss", vec![Fail, Text("whole")]), ("helper", vec![])]);
    let runtime = fixture.process(2, &mended);
    let retried = retry(&runtime, failed).await;
    let task = fixture.task(retried);
    assert_eq!((task.status, task.result.as_deref()), (TaskStatus::Completed, Some("whole")));
    assert_eq!((task.retry_of, retried), (Some(failed), retry_id(failed)));
    assert_eq!(fixture.sub_tasks(retried), []);
    assert_eq!(mended.shown()["boss"], ["a", "", "half"]);
    assert_eq!(fixture.task(failed).status, TaskStatus::Failed, "an ended task stays ended");
    // Read again, it is the same.
    assert_eq!(fixture.load(retried).await.messages().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn sub_agent_goes_on_inside_its_own_turn() {
    let fixture = RuntimeFixture::new();
    let deputy = || Ask(vec![part("agent/deputy", "a share")]);
    let hanging = TestModels::new([
        ("boss", vec![deputy()]),
        ("deputy", vec![helper(), Hang]),
        ("helper", vec![Text("half")]),
    ]);
    let runtime = fixture.process(1, &hanging);
    let mut handle = runtime.create(for_boss("a")).await.unwrap();
    sleep(1000).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    let earlier = fixture.sub_tasks(handle.id)[0].id;
    assert_eq!(fixture.row(earlier).status, TaskStatus::Cancelled);

    let mended = TestModels::new([
        ("boss", vec![Fail, Text("whole")]),
        ("deputy", vec![Fail, Text("both halves")]),
        ("helper", vec![Fail]),
    ]);
    let runtime = fixture.process(2, &mended);
    let retried = retry(&runtime, handle.id).await;
    assert_eq!(fixture.task(retried).result.as_deref(), Some("whole"));
    let parts = fixture.sub_tasks(retried);
    assert_eq!(parts.len(), 1);
    assert_eq!(fixture.task(parts[0].id).retry_of, Some(earlier));
    assert_ne!(parts[0].id, earlier);
    assert_eq!(mended.shown()["boss"], ["a", "", "both halves"]);
    assert_eq!(fixture.sub_tasks(parts[0].id), [], "its helper had answered");
}

#[tokio::test(start_paused = true)]
async fn completed_part_of_a_cancelled_task_is_not_run_again() {
    let fixture = RuntimeFixture::new();
    let two = || Ask(vec![part("agent/helper", "one"), part("agent/deputy", "two")]);
    let models = TestModels::new([
        ("boss", vec![two()]),
        ("helper", vec![Text("one done")]),
        ("deputy", vec![Hang]),
    ]);
    let runtime = fixture.process(1, &models);
    let mut handle = runtime.create(for_boss("a")).await.unwrap();
    sleep(1000).await;
    runtime.cancel(handle.id).await.unwrap();
    handle.wait().await.unwrap();
    let mended = TestModels::new([
        ("boss", vec![Fail, Text("whole")]),
        ("helper", vec![Fail]),
        ("deputy", vec![Text("two done")]),
    ]);
    let retried = retry(&fixture.process(2, &mended), handle.id).await;
    assert_eq!(fixture.task(retried).status, TaskStatus::Completed);
    assert_eq!(mended.shown()["boss"], ["a", "", "one done", "two done"]);
}

#[tokio::test(start_paused = true)]
async fn used_up_budget_must_be_raised() {
    let fixture = RuntimeFixture::new();
    let lines = || [("boss", vec![helper(), Text("the end")]), ("helper", vec![])];
    let models = TestModels::new(lines());
    let runtime = fixture.process(1, &models);
    let budget = Budget { max_cost_usd: None, max_tokens: NonZeroU64::new(25) };
    let create = CreateTask { budget: Some(budget), ..for_boss("a") };
    let failed = end(&runtime, create).await;
    // The last answer came, and was one call too many.
    assert_eq!(fixture.task(failed).error_code, Some(ErrorCode::Budget));

    let refused = runtime.retry(request(failed)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "task {failed} cannot go on: the budget of boss is used up: 30 of 25 tokens \
             (budget.max_tokens)"
        )
    );
    let raised = RaisedLimits { max_tokens: NonZeroU64::new(35), ..RaisedLimits::default() };
    let silent = TestModels::new([("boss", vec![Fail, Fail]), ("helper", vec![Fail])]);
    let runtime = fixture.process(2, &silent);
    let mut handle = runtime.retry(RetryRequest { raised, ..request(failed) }).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(fixture.task(handle.id).result.as_deref(), Some("the end"), "it was paid for");
    assert!(silent.shown().is_empty());
}

#[tokio::test(start_paused = true)]
async fn spending_of_earlier_tasks_counts() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([("boss", vec![helper(), Fail]), ("helper", vec![])]);
    let budget = Budget { max_cost_usd: None, max_tokens: NonZeroU64::new(35) };
    let create = CreateTask { budget: Some(budget), ..for_boss("a") };
    let failed = end(&fixture.process(1, &models), create).await;
    let models =
        TestModels::new([("boss", vec![Fail, helper(), Text("the end")]), ("helper", vec![])]);
    // 20 tokens were used: the next turn and its helper use 20 more.
    let retried = retry(&fixture.process(2, &models), failed).await;
    let task = fixture.task(retried);
    assert_eq!(task.error_code, Some(ErrorCode::Budget), "{task:?}");
    let error = task.error.unwrap();
    assert!(error.contains("40 of 35 tokens"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn turns_start_afresh() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([("greeter", vec![Ask(vec![("time/now", json!({"n": 1}))]); 9])]);
    let more = json!({"tools": ["time/now"], "max_iterations": 2});
    let agent = json!({"kind": "llm", "name": "greeter", "role": "greets", "system_prompt": "Greet.",
        "llm_config": {"provider": "scripted", "script": "greeter"}});
    let pinned = pinned_agent(agent, &more);
    let world = Arc::new(ToolEffects::default());
    let tools = Arc::new(FakeTools::new(&world, [], Duration::from_millis(1)));
    let runtime = start(RuntimeDeps { tools, ..fixture.deps(1, models) });
    let mut task = end(&runtime, CreateTask::new(pinned, "a")).await;
    for _ in 0..2 {
        assert_eq!(fixture.task(task).error_code, Some(ErrorCode::LimitIterations));
        task = retry(&runtime, task).await;
        // The requested call is made, which the last turn had no room for.
        let calls = fixture.events(task).into_iter().filter(|event| {
            matches!(event, Event::ToolChanged { change: ToolChange::Call { .. }, .. })
        });
        assert_eq!(calls.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn only_failed_and_cancelled_tasks_are_retried_and_only_once() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([("boss", vec![Text("done")]), ("helper", vec![])]);
    let runtime = fixture.process(1, &models);
    let done = complete(&runtime, for_boss("a")).await;
    let refused = runtime.retry(request(done)).await.unwrap_err();
    assert!(matches!(refused, EngineError::Retry(RetryError::Completed { .. })), "{refused}");

    let models = TestModels::new([("boss", vec![Hang]), ("helper", vec![])]);
    let runtime = fixture.process(2, &models);
    let mut handle = runtime.create(for_boss("a")).await.unwrap();
    sleep(100).await;
    let refused = runtime.retry(request(handle.id)).await.unwrap_err();
    assert!(matches!(refused, EngineError::Retry(RetryError::NotEnded { .. })), "{refused}");
    runtime.cancel(handle.id).await.unwrap();
    handle.wait().await.unwrap();

    let models = TestModels::new([("boss", vec![Text("done")]), ("helper", vec![])]);
    let (one, other) = (fixture.process(3, &models), fixture.process(4, &models));
    let both = tokio::join!(one.retry(request(handle.id)), other.retry(request(handle.id)));
    let (mut retried, refused) = match both {
        (Ok(handle), Err(refused)) | (Err(refused), Ok(handle)) => (handle, refused),
        both => panic!("{both:?}"),
    };
    assert!(matches!(refused, EngineError::Retry(RetryError::Retried { .. })), "{refused}");
    assert_eq!(retried.wait().await.unwrap(), TaskStatus::Completed);
    let refused = one.retry(request(handle.id)).await.unwrap_err();
    let expected = format!("task {} was retried as {}, which is completed", handle.id, retried.id);
    assert_eq!(refused.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn part_is_retried_with_its_whole() {
    let fixture = RuntimeFixture::new();
    let models = TestModels::new([("boss", vec![helper(), Fail]), ("helper", vec![Fail])]);
    let runtime = fixture.process(1, &models);
    let failed = end(&runtime, for_boss("a")).await;
    let part = fixture.sub_tasks(failed)[0].id;
    let refused = runtime.retry(request(part)).await.unwrap_err();
    let expected = RetryError::Part { task: part, whole: failed };
    assert!(matches!(&refused, EngineError::Retry(found) if *found == expected), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn call_in_doubt_is_asked_about_and_repeatable_ones_are_repeated() {
    let fixture = RuntimeFixture::new();
    let world = Arc::new(ToolEffects::default());
    let turns = [FakeModelTurn::RequestTools(&["files/write", "files/read"])];
    let pause = Duration::from_millis(10);
    let models = Arc::new(FakeModels::new(turns, pause).on(&world));
    let acts = [FakeToolAct::Hang, FakeToolAct::Hang];
    let tools = Arc::new(FakeTools::new(&world, acts, pause));
    let runtime = start(RuntimeDeps { tools, ..fixture.deps(1, models) });
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    sleep(1000).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);

    let models = Arc::new(FakeModels::new([FakeModelTurn::Answer("done")], pause).on(&world));
    let tools = Arc::new(FakeTools::new(&world, [], pause));
    let runtime = start(RuntimeDeps { tools, ..fixture.deps(2, models) });
    let retried = retry(&runtime, handle.id).await;
    assert_eq!(fixture.row(retried).status, TaskStatus::AwaitingHuman);
    let state = fixture.load(retried).await;
    assert!(matches!(state.review().unwrap().subject, ReviewSubject::Doubt { .. }));
    let result = "written by hand".to_owned();
    fixture.answer(&runtime, retried, ReviewVerdict::SkipWith { result }).await;
    assert_eq!(adopt(&runtime, retried).await, TaskStatus::Completed);
    assert!(world.effects().values().all(|times| *times <= 2), "{:?}", world.effects());
}

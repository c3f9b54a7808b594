//! Several processes on one store: adoption, fencing, cancellation.

use polity_testkit::runtime::FakeModelTurn::{Answer, Hang, Panic, TransientFailure};

use crate::prelude::*;

impl RuntimeFixture {
    /// A process whose models play these turns.
    fn fake_process(&self, number: u64, turns: Vec<FakeModelTurn>) -> Runtime {
        start(self.deps(number, Arc::new(FakeModels::new(turns, Duration::from_millis(10)))))
    }
}

/// A crashed process, and the task that its model hung on.
async fn crashed(world: &RuntimeFixture) -> TaskId {
    let first = world.fake_process(1, vec![Hang]);
    let id = first.create(create_task("a")).await.unwrap().id;
    sleep(50).await;
    world.kill(1, first);
    id
}

#[tokio::test(start_paused = true)]
async fn orphan_is_adopted_and_finished() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Hang]);
    let id = first.create(create_task("a")).await.unwrap().id;
    sleep(50).await;
    assert_eq!(world.orphan_ids().await, []);
    world.kill(1, first);

    assert_eq!(world.orphan_ids().await, [id]);
    assert_eq!(world.row(id).status, TaskStatus::Running);
    let second = world.fake_process(2, vec![]);
    assert_eq!(adopt(&second, id).await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn live_process_keeps_its_tasks() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Hang]);
    let handle = first.create(create_task("a")).await.unwrap();
    let second = world.fake_process(2, vec![]);
    let refused = second.adopt(handle.id).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Rejected(CommandRejection::OwnerAlive { .. })),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_of_two_adopters_wins() {
    let world = RuntimeFixture::new();
    let id = crashed(&world).await;
    let (second, third) = (world.fake_process(2, vec![]), world.fake_process(3, vec![]));
    let (a, b) = tokio::join!(second.adopt(id), third.adopt(id));
    assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "{a:?} {b:?}");
    let mut winner = a.or(b).unwrap();
    assert_eq!(winner.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn former_owner_commits_nothing_more() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Answer("late")]);
    let mut handle = first.create(create_task("a")).await.unwrap();
    // Its lease ends during the model call.
    world.leases.end(instance_id(1));
    let second = world.fake_process(2, vec![Answer("in time")]);
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::Completed);
    let lost = handle.wait().await.unwrap_err();
    assert!(matches!(lost, EngineError::TakenOver(_)), "{lost}");
    assert_eq!(world.task(handle.id).result.as_deref(), Some("in time"));
}

#[tokio::test(start_paused = true)]
async fn cancel_from_another_process_is_noticed_within_200_ms() {
    let world = RuntimeFixture::new();
    let owner = world.fake_process(1, vec![Hang]);
    let mut handle = owner.create(create_task("a")).await.unwrap();
    sleep(50).await;
    let asked_at = tokio::time::Instant::now();
    assert_eq!(world.cancel(handle.id).await.unwrap(), CancelOutcome::Requested);
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    let waited = asked_at.elapsed();
    assert!(waited.as_millis() <= 200, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn orphan_is_cancelled_by_any_process() {
    let world = RuntimeFixture::new();
    let id = crashed(&world).await;
    assert_eq!(world.cancel(id).await.unwrap(), CancelOutcome::Done(TaskStatus::Cancelled));
    let again = world.cancel(id).await;
    assert!(matches!(again, Err(EngineError::Rejected(CommandRejection::Finished { .. }))));
}

#[tokio::test(start_paused = true)]
async fn cancel_missed_by_a_crashed_owner_is_applied_on_resume() {
    let world = RuntimeFixture::new();
    let owner = world.fake_process(1, vec![Hang]);
    let handle = owner.create(create_task("a")).await.unwrap();
    sleep(50).await;
    world.cancel(handle.id).await.unwrap();
    world.kill(1, owner);
    let second = world.fake_process(2, vec![]);
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::Cancelled);
    let events = world.events(handle.id).into_iter();
    let calls = events.filter(|event| matches!(event, Event::ModelCalled { .. })).count();
    assert_eq!(calls, 1, "a cancelled task calls no model");
}

#[tokio::test(start_paused = true)]
async fn queued_adopted_task_is_cancelled_by_another_process() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Hang, Hang]);
    create_all(&first, 4).await;
    sleep(50).await;
    world.kill(1, first);
    // Two were running and two pending; the second process has two slots.
    let before = world.orphan_ids().await;
    let more = world.fake_process(3, vec![Hang, Hang]);
    create_all(&more, 2).await;
    sleep(50).await;
    world.kill(3, more);
    let second = world.fake_process(2, vec![Hang, Hang, Hang, Hang]);
    let mut handles = Vec::new();
    for id in world.orphan_ids().await {
        handles.push(second.adopt(id).await.unwrap());
    }
    assert_eq!((before.len(), handles.len()), (4, 6));
    sleep(50).await;
    // All but the first two wait: some were running when they were adopted, some pending.
    for handle in &mut handles[2..] {
        world.cancel(handle.id).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_millis(300), handle.wait()).await;
        assert_eq!(ended.unwrap().unwrap(), TaskStatus::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn retry_backoff_survives_a_crash() {
    let world = RuntimeFixture::new();
    let owner = world.fake_process(1, vec![TransientFailure]);
    let handle = owner.create(create_task("a")).await.unwrap();
    sleep(200).await;
    world.kill(1, owner);
    let second = world.fake_process(2, vec![]);
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::Completed);
    assert!(world.events(handle.id).contains(&Event::TaskResumed));
    assert_eq!(world.store.executions(handle.id).await.unwrap()[0].retry_count, 1);
}

#[tokio::test(start_paused = true)]
async fn released_task_is_cancelled_or_resumed_by_another_process() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Panic, Panic]);
    let mut handles = create_all(&first, 2).await;
    for handle in &mut handles {
        assert!(matches!(handle.wait().await, Err(EngineError::Panicked { .. })));
    }
    sleep(50).await;
    let cancelled = world.cancel(handles[0].id).await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Done(TaskStatus::Cancelled));
    assert_eq!(world.orphan_ids().await[0], handles[1].id);
    let second = world.fake_process(2, vec![]);
    assert_eq!(adopt(&second, handles[1].id).await, TaskStatus::Completed);
    // The first process still runs, and has changed neither of them since.
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn cancel_before_the_first_journal_read_is_noticed() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Hang, Hang, Hang]);
    // No slot is free, so it waits; it is cancelled before the first read of the journal.
    let mut waiting = create_all(&first, 3).await.pop().unwrap();
    world.cancel(waiting.id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(300), waiting.wait()).await;
    assert_eq!(ended.unwrap().unwrap(), TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn adoption_is_completed_if_its_caller_stops_waiting() {
    let world = RuntimeFixture::new();
    let first = world.fake_process(1, vec![Hang]);
    let handle = first.create(create_task("a")).await.unwrap();
    sleep(50).await;
    world.kill(1, first);
    let second = world.fake_process(2, vec![]);
    {
        let adopt = second.adopt(handle.id);
        // Polled once, and then dropped.
        let _ = tokio::time::timeout(Duration::ZERO, adopt).await;
    }
    sleep(5000).await;
    assert_eq!(world.row(handle.id).status, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn cancelled_model_call_has_unknown_usage() {
    let world = RuntimeFixture::new();
    let owner = world.fake_process(1, vec![Hang]);
    let mut handle = owner.create(create_task("a")).await.unwrap();
    sleep(50).await;
    owner.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    assert!(world.row(handle.id).usage.tokens_unknown);
    assert_eq!(world.row(handle.id).usage.report().input_tokens, None);
}

#[tokio::test(start_paused = true)]
async fn model_call_lost_in_a_crash_has_unknown_usage() {
    let world = RuntimeFixture::new();
    let owner = world.fake_process(1, vec![Hang]);
    let handle = owner.create(create_task("a")).await.unwrap();
    sleep(50).await;
    world.kill(1, owner);
    let second = world.fake_process(2, vec![]);
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::Completed);
    assert!(world.row(handle.id).usage.tokens_unknown);
}

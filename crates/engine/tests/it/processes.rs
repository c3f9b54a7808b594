//! Several processes on one store: adoption, fencing, cancellation.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polity_engine::clock::Clock;
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{CancelOutcome, EngineError, Runtime, find_orphans};
use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::machine::task::TaskStatus;
use polity_store::{MemoryStore, Store};
use polity_testkit::runtime::FakeModelTurn::{self, Answer, Hang, Panic, TransientFailure};
use polity_testkit::runtime::{
    FakeModels, TestLeases, TokioClock, cancel_from_outside, create_task, runtime_deps,
};
use polity_testkit::task_fixtures::instance_id;

struct ProcessFixture {
    store: Arc<dyn Store>,
    leases: Arc<TestLeases>,
}

impl ProcessFixture {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), leases: Arc::default() }
    }

    fn process(&self, number: u64, turns: Vec<FakeModelTurn>) -> Runtime {
        let models = Arc::new(FakeModels::new(turns, Duration::from_millis(10)));
        let store = Arc::clone(&self.store);
        polity_store::block_on(Runtime::start(runtime_deps(
            store,
            models,
            &self.leases,
            instance_id(number),
            number,
        )))
        .unwrap()
    }

    /// Kills the process.
    fn kill(&self, number: u64, runtime: Runtime) {
        drop(runtime);
        self.leases.end(instance_id(number));
    }
}

#[tokio::test(start_paused = true)]
async fn orphan_is_adopted_and_finished() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Hang]);
    let handle = first.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        find_orphans(&*world.store, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap(),
        []
    );
    world.kill(1, first);

    let orphan =
        &find_orphans(&*world.store, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap()[0];
    assert_eq!((orphan.id, orphan.status), (handle.id, TaskStatus::Running));
    let second = world.process(2, vec![]);
    let mut adopted = second.adopt(orphan.id).await.unwrap();
    assert_eq!(adopted.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn live_process_keeps_its_tasks() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Hang]);
    let handle = first.create(create_task("a")).await.unwrap();
    let second = world.process(2, vec![]);
    let refused = second.adopt(handle.id).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Rejected(CommandRejection::OwnerAlive { .. })),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_of_two_adopters_wins() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Hang]);
    let handle = first.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.kill(1, first);
    let (second, third) = (world.process(2, vec![]), world.process(3, vec![]));
    let (a, b) = tokio::join!(second.adopt(handle.id), third.adopt(handle.id));
    assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "{a:?} {b:?}");
    let mut winner = a.or(b).unwrap();
    assert_eq!(winner.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn former_owner_commits_nothing_more() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Answer("late")]);
    let mut handle = first.create(create_task("a")).await.unwrap();
    // Its lease ends during the model call.
    world.leases.end(instance_id(1));
    let second = world.process(2, vec![Answer("in time")]);
    let mut adopted = second.adopt(handle.id).await.unwrap();
    assert_eq!(adopted.wait().await.unwrap(), TaskStatus::Completed);
    let lost = handle.wait().await.unwrap_err();
    assert!(matches!(lost, EngineError::TakenOver(_)), "{lost}");
    let row = world.store.task_row(handle.id).await.unwrap().unwrap();
    assert_eq!(world.store.task(&row).await.unwrap().result.as_deref(), Some("in time"));
}

#[tokio::test(start_paused = true)]
async fn cancel_from_another_process_is_noticed_within_200_ms() {
    let world = ProcessFixture::new();
    let owner = world.process(1, vec![Hang]);
    let mut handle = owner.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let clock = TokioClock::new();
    let asked_at = clock.now();
    let steered =
        cancel_from_outside(&world.store, &*world.leases, &clock, handle.id).await.unwrap();
    assert_eq!(steered, CancelOutcome::Requested);
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    let waited = clock.now().duration_since(asked_at);
    assert!(waited.as_millis() <= 200, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn orphan_is_cancelled_by_any_process() {
    let world = ProcessFixture::new();
    let owner = world.process(1, vec![Hang]);
    let handle = owner.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.kill(1, owner);
    let steered = cancel_from_outside(&world.store, &*world.leases, &TokioClock::new(), handle.id)
        .await
        .unwrap();
    assert_eq!(steered, CancelOutcome::Done(TaskStatus::Cancelled));
    let again =
        cancel_from_outside(&world.store, &*world.leases, &TokioClock::new(), handle.id).await;
    assert!(matches!(again, Err(EngineError::Rejected(CommandRejection::Finished { .. }))));
}

#[tokio::test(start_paused = true)]
async fn cancel_missed_by_a_crashed_owner_is_applied_on_resume() {
    let world = ProcessFixture::new();
    let owner = world.process(1, vec![Hang]);
    let handle = owner.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    cancel_from_outside(&world.store, &*world.leases, &TokioClock::new(), handle.id).await.unwrap();
    world.kill(1, owner);
    let second = world.process(2, vec![]);
    let mut adopted = second.adopt(handle.id).await.unwrap();
    assert_eq!(adopted.wait().await.unwrap(), TaskStatus::Cancelled);
    let events =
        world.store.events(&StreamId::Task(handle.id), StreamSequence::default()).await.unwrap();
    let calls = events
        .iter()
        .filter(|recorded| matches!(recorded.event, Event::ModelCalled { .. }))
        .count();
    assert_eq!(calls, 1, "no model is called for a task that is to end");
}

#[tokio::test(start_paused = true)]
async fn queued_adopted_task_is_cancelled_by_another_process() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Hang, Hang]);
    for _ in 0..4 {
        first.create(create_task("a")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.kill(1, first);
    // Two were running and two pending; the second process has two slots.
    let rows = find_orphans(&*world.store, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap();
    let more = world.process(3, vec![Hang, Hang]);
    for _ in 0..2 {
        more.create(create_task("b")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.kill(3, more);
    let second = world.process(2, vec![Hang, Hang, Hang, Hang]);
    let mut handles = Vec::new();
    for row in find_orphans(&*world.store, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap() {
        handles.push(second.adopt(row.id).await.unwrap());
    }
    assert_eq!((rows.len(), handles.len()), (4, 6));
    tokio::time::sleep(Duration::from_millis(50)).await;
    // All but the first two wait: some were running when they were adopted, some pending.
    for handle in &mut handles[2..] {
        let clock = TokioClock::new();
        cancel_from_outside(&world.store, &*world.leases, &clock, handle.id).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_millis(300), handle.wait()).await;
        assert_eq!(ended.unwrap().unwrap(), TaskStatus::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn retry_backoff_survives_a_crash() {
    let world = ProcessFixture::new();
    let owner = world.process(1, vec![TransientFailure]);
    let handle = owner.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.kill(1, owner);
    let second = world.process(2, vec![]);
    let mut adopted = second.adopt(handle.id).await.unwrap();
    assert_eq!(adopted.wait().await.unwrap(), TaskStatus::Completed);
    let stream = StreamId::Task(handle.id);
    let events = world.store.events(&stream, StreamSequence::default()).await.unwrap();
    assert!(events.iter().any(|recorded| recorded.event == Event::TaskResumed));
    assert_eq!(world.store.executions(handle.id).await.unwrap()[0].retry_count, 1);
}

#[tokio::test(start_paused = true)]
async fn released_task_is_cancelled_or_resumed_by_another_process() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Panic, Panic]);
    let mut handles = Vec::new();
    for _ in 0..2 {
        handles.push(first.create(create_task("a")).await.unwrap());
    }
    for handle in &mut handles {
        assert!(matches!(handle.wait().await, Err(EngineError::Panicked { .. })));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let cancelled =
        cancel_from_outside(&world.store, &*world.leases, &TokioClock::new(), handles[0].id).await;
    assert_eq!(cancelled.unwrap(), CancelOutcome::Done(TaskStatus::Cancelled));
    assert_eq!(
        find_orphans(&*world.store, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap()[0].id,
        handles[1].id
    );
    let second = world.process(2, vec![]);
    let mut adopted = second.adopt(handles[1].id).await.unwrap();
    assert_eq!(adopted.wait().await.unwrap(), TaskStatus::Completed);
    // The first process still runs, and has changed neither of them since.
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn cancel_before_the_first_journal_read_is_noticed() {
    let world = ProcessFixture::new();
    let first = world.process(1, vec![Hang, Hang, Hang]);
    let mut busy = Vec::new();
    for _ in 0..2 {
        busy.push(first.create(create_task("a")).await.unwrap());
    }
    // No slot is free, so it waits; it is cancelled before the first read of the journal.
    let mut waiting = first.create(create_task("b")).await.unwrap();
    cancel_from_outside(&world.store, &*world.leases, &TokioClock::new(), waiting.id)
        .await
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(300), waiting.wait()).await;
    assert_eq!(ended.unwrap().unwrap(), TaskStatus::Cancelled);
}

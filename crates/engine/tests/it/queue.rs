//! The queue: first in, first out, and never more at once than the limit.

use std::sync::Arc;
use std::time::Duration;

use polity_engine::runtime::{CancelOutcome, LiveEvent, Runtime, TaskHandle};
use polity_model::event::{StreamId, StreamSequence};
use polity_model::machine::task::TaskStatus;
use polity_store::{MemoryStore, Store, TaskFilter};
use polity_testkit::faults::CrashingStore;
use polity_testkit::runtime::FakeModelTurn::{self, Hang, Panic, TransientFailure};
use polity_testkit::runtime::{FakeModels, TestLeases, create_task, runtime_deps};
use polity_testkit::task_fixtures::instance_id;

fn start(turns: Vec<FakeModelTurn>) -> (Runtime, Arc<dyn Store>, Arc<FakeModels>) {
    start_on(Arc::new(MemoryStore::new()), turns)
}

fn start_on(
    store: Arc<dyn Store>,
    turns: Vec<FakeModelTurn>,
) -> (Runtime, Arc<dyn Store>, Arc<FakeModels>) {
    let models = Arc::new(FakeModels::new(turns, Duration::from_millis(50)));
    let leases = Arc::new(TestLeases::default());
    let deps = runtime_deps(Arc::clone(&store), models.clone(), &leases, instance_id(1), 1);
    (polity_store::block_on(Runtime::start(deps)).unwrap(), store, models)
}

#[tokio::test(start_paused = true)]
async fn tasks_run_in_order_within_the_concurrency_limit() {
    let (runtime, store, models) = start(vec![]);
    let mut handles = Vec::new();
    for number in 0..9 {
        handles.push(runtime.create(create_task(&format!("task {number}"))).await.unwrap());
    }
    for handle in &mut handles {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
    assert_eq!((models.calls(), models.max_concurrent()), (9, 2));
    let rows: Vec<_> =
        handles.iter().map(|handle| store.task_row(handle.id).wait().unwrap().unwrap()).collect();
    assert!(rows.windows(2).all(|pair| pair[0].started_at <= pair[1].started_at));
}

#[tokio::test(start_paused = true)]
async fn cancelled_queued_task_never_runs() {
    let (runtime, _, models) = start(vec![Hang, Hang]);
    let mut running = runtime.create(create_task("a")).await.unwrap();
    let mut also_running = runtime.create(create_task("b")).await.unwrap();
    let mut waiting = runtime.create(create_task("c")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    let steered = runtime.cancel(waiting.id).await.unwrap();
    assert_eq!(steered, CancelOutcome::Done(TaskStatus::Cancelled));
    assert_eq!(waiting.wait().await.unwrap(), TaskStatus::Cancelled);
    for handle in [&mut running, &mut also_running] {
        assert_eq!(runtime.cancel(handle.id).await.unwrap(), CancelOutcome::Requested);
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(models.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn worker_panic_is_reported_and_frees_its_slot() {
    let (runtime, _, models) = start(vec![Panic, Panic]);
    let mut handles = Vec::new();
    for number in 0..4 {
        handles.push(runtime.create(create_task(&format!("task {number}"))).await.unwrap());
    }
    for handle in &mut handles[..2] {
        let error = handle.wait().await.unwrap_err().to_string();
        assert!(error.contains("ended in an error of this program"), "{error}");
    }
    for handle in &mut handles[2..] {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
    assert_eq!(models.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn cancels_a_task_during_backoff() {
    let (runtime, store, models) = start(vec![TransientFailure]);
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    assert_eq!(models.calls(), 1);
    assert_eq!(store.executions(handle.id).await.unwrap()[0].state.to_string(), "idle");
}

#[tokio::test(start_paused = true)]
async fn subscriber_receives_every_event_in_order() {
    let (runtime, store, _) = start(vec![]);
    let mut live = runtime.subscribe();
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    handle.wait().await.unwrap();
    let mut seen = Vec::new();
    while let Ok(LiveEvent::Event(event)) = live.try_recv() {
        seen.push((*event).clone());
    }
    let stream = StreamId::Task(handle.id);
    assert_eq!(seen, store.events(&stream, StreamSequence::default()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn queued_tasks_are_not_read_again() {
    let store = Arc::new(CrashingStore::new(Arc::new(MemoryStore::new()), None));
    let (runtime, _, _) = start_on(store.clone(), vec![]);
    store.fail_reads(u32::MAX);
    for handle in &mut create_all(&runtime, 4).await {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_task_is_reported_to_its_handle() {
    let store = Arc::new(CrashingStore::new(Arc::new(MemoryStore::new()), None));
    let (runtime, _, models) = start_on(store.clone(), vec![]);
    store.fail_reads(u32::MAX);
    // Two get a slot, and two are cached.
    let mut handle = create_all(&runtime, 5).await.pop().unwrap();
    let error = handle.wait().await.unwrap_err().to_string();
    assert!(error.contains("scripted failure"), "{error}");
    // The task has no owner, and its adopter finishes it.
    store.fail_reads(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let row = store.task_row(handle.id).await.unwrap().unwrap();
    assert_eq!((row.status, row.owner, models.calls()), (TaskStatus::Pending, None, 4));
    let mut adopted = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(adopted.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn task_runs_after_its_submitter_is_dropped() {
    let (runtime, store, models) = start(vec![]);
    {
        let create = runtime.create(create_task("a"));
        // Polled once, and then dropped.
        let _ = tokio::time::timeout(Duration::ZERO, create).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rows = store.task_rows(&TaskFilter::default()).await.unwrap();
    assert_eq!((rows.len(), models.calls()), (1, 1));
    assert_eq!(rows[0].status, TaskStatus::Completed);
}

/// Creates tasks, of which two get a slot.
async fn create_all(runtime: &Runtime, count: u32) -> Vec<TaskHandle> {
    let mut handles = Vec::new();
    for number in 0..count {
        handles.push(runtime.create(create_task(&format!("task {number}"))).await.unwrap());
    }
    handles
}

//! The queue: first in, first out, and never more at once than the limit.

use polity_testkit::runtime::FakeModelTurn::{Hang, Panic, TransientFailure};

use crate::prelude::*;

fn process(turns: Vec<FakeModelTurn>) -> (Runtime, RuntimeFixture, Arc<FakeModels>) {
    process_on(Arc::new(MemoryStore::new()), turns)
}

fn process_on(
    store: Arc<dyn Store>,
    turns: Vec<FakeModelTurn>,
) -> (Runtime, RuntimeFixture, Arc<FakeModels>) {
    let models = Arc::new(FakeModels::new(turns, Duration::from_millis(50)));
    let fixture = RuntimeFixture::on(store);
    (start(fixture.deps(1, models.clone())), fixture, models)
}

#[tokio::test(start_paused = true)]
async fn tasks_run_in_order_within_the_concurrency_limit() {
    let (runtime, fixture, models) = process(vec![]);
    let mut handles = create_all(&runtime, 9).await;
    for handle in &mut handles {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
    assert_eq!((models.calls(), models.max_concurrent()), (9, 2));
    let rows: Vec<_> = handles.iter().map(|handle| fixture.row(handle.id)).collect();
    assert!(rows.windows(2).all(|pair| pair[0].started_at <= pair[1].started_at));
}

#[tokio::test(start_paused = true)]
async fn cancelled_queued_task_never_runs() {
    let (runtime, _, models) = process(vec![Hang, Hang]);
    let mut running = create_all(&runtime, 3).await;
    let mut waiting = running.pop().unwrap();
    sleep(60).await;
    let outcome = runtime.cancel(waiting.id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Done(TaskStatus::Cancelled));
    assert_eq!(waiting.wait().await.unwrap(), TaskStatus::Cancelled);
    for handle in &mut running {
        assert_eq!(runtime.cancel(handle.id).await.unwrap(), CancelOutcome::Requested);
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(models.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn worker_panic_is_reported_and_frees_its_slot() {
    let (runtime, _, models) = process(vec![Panic, Panic]);
    let mut handles = create_all(&runtime, 4).await;
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
    let (runtime, fixture, models) = process(vec![TransientFailure]);
    let mut handle = runtime.create(create_task("a")).await.unwrap();
    sleep(200).await;
    runtime.cancel(handle.id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
    assert_eq!(models.calls(), 1);
    assert_eq!(fixture.store.executions(handle.id).await.unwrap()[0].state.to_string(), "idle");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_retry_holds_no_slot() {
    let (runtime, fixture, models) = process(vec![TransientFailure, TransientFailure]);
    let mut handles = create_all(&runtime, 6).await;
    for handle in &mut handles {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
    assert_eq!((models.calls(), models.max_concurrent()), (8, 2));
    let ends: Vec<_> =
        handles.iter().map(|handle| fixture.row(handle.id).completed_at.unwrap()).collect();
    assert!(ends[2..].iter().all(|end| *end < ends[0].min(ends[1])), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn retries_stay_within_the_concurrency_limit() {
    let (runtime, _, models) = process(vec![TransientFailure; 30]);
    let mut handles = create_all(&runtime, 12).await;
    for handle in &mut handles {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
    assert_eq!((models.calls(), models.max_concurrent()), (42, 2));
}

#[tokio::test(start_paused = true)]
async fn task_that_waits_to_return_can_be_cancelled() {
    let (runtime, _, models) = process(vec![TransientFailure, Hang, Hang]);
    let mut handles = create_all(&runtime, 3).await;
    // The first task wants its slot back, and the others keep theirs.
    sleep(5000).await;
    assert_eq!(models.calls(), 3);
    runtime.cancel(handles[0].id).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(300), handles[0].wait()).await;
    assert_eq!(ended.unwrap().unwrap(), TaskStatus::Cancelled);
    // Its place in line is free, too: the next one gets the slot.
    let mut last = runtime.create(create_task("last")).await.unwrap();
    runtime.cancel(handles[1].id).await.unwrap();
    assert_eq!(last.wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn subscriber_receives_every_event_in_order() {
    let (runtime, fixture, _) = process(vec![]);
    let mut live = runtime.subscribe();
    let id = complete(&runtime, create_task("a")).await;
    let mut seen = Vec::new();
    while let Ok(LiveEvent::Event(event)) = live.try_recv() {
        seen.push((*event).clone());
    }
    assert_eq!(seen, fixture.recorded(id));
}

#[tokio::test(start_paused = true)]
async fn queued_tasks_are_not_read_again() {
    let store = Arc::new(CrashingStore::new(Arc::new(MemoryStore::new()), None));
    let (runtime, _, _) = process_on(store.clone(), vec![]);
    store.fail_reads(u32::MAX);
    for handle in &mut create_all(&runtime, 4).await {
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_task_is_reported_to_its_handle() {
    let store = Arc::new(CrashingStore::new(Arc::new(MemoryStore::new()), None));
    let (runtime, fixture, models) = process_on(store.clone(), vec![]);
    store.fail_reads(u32::MAX);
    // Two get a slot, and two are cached.
    let mut handle = create_all(&runtime, 5).await.pop().unwrap();
    let error = handle.wait().await.unwrap_err().to_string();
    assert!(error.contains("scripted failure"), "{error}");
    // The task has no owner, and its adopter finishes it.
    store.fail_reads(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let row = fixture.row(handle.id);
    assert_eq!((row.status, row.owner, models.calls()), (TaskStatus::Pending, None, 4));
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn task_runs_after_its_submitter_is_dropped() {
    let (runtime, fixture, models) = process(vec![]);
    {
        let create = runtime.create(create_task("a"));
        // Polled once, and then dropped.
        let _ = tokio::time::timeout(Duration::ZERO, create).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rows = fixture.all_tasks();
    assert_eq!((rows.len(), models.calls()), (1, 1));
    assert_eq!(rows[0].status, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn task_is_released_after_a_failure_of_hours() {
    let store = Arc::new(CrashingStore::new(Arc::new(MemoryStore::new()), None));
    let (runtime, fixture, _) = process_on(store.clone(), vec![]);
    store.fail_reads(u32::MAX);
    let mut handle = create_all(&runtime, 5).await.pop().unwrap();
    assert!(handle.wait().await.is_err());
    tokio::time::sleep(Duration::from_hours(3)).await;
    assert!(fixture.row(handle.id).owner.is_some());
    store.fail_reads(0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fixture.row(handle.id).owner, None);
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn draining_runtime_starts_no_queued_task() {
    let (runtime, fixture, models) = process(vec![Hang, Hang]);
    let handles = create_all(&runtime, 3).await;
    sleep(50).await;
    assert!(!runtime.is_idle());
    runtime.drain();
    for handle in &handles[..2] {
        runtime.cancel(handle.id).await.unwrap();
    }
    sleep(500).await;
    assert!(runtime.is_idle());
    assert_eq!(models.calls(), 2);
    assert_eq!(fixture.row(handles[2].id).status, TaskStatus::Pending);
}

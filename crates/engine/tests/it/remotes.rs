//! Remote agents: messages, retries and cancellation.

use polity_engine::driver::RemoteEnd;
use polity_engine::runtime::{ControlDeps, cancel};
use polity_model::event::ExecutionChange;
use polity_testkit::remotes::{FakeRemotes, RemoteReaction};

use crate::prelude::*;

struct RemoteFixture {
    base: RuntimeFixture,
    remotes: Arc<FakeRemotes>,
}

impl RemoteFixture {
    fn new(reactions: impl IntoIterator<Item = RemoteReaction>) -> Self {
        Self { base: RuntimeFixture::new(), remotes: Arc::new(FakeRemotes::new(reactions)) }
    }

    fn process(&self, number: u64) -> Runtime {
        self.limited(number, |limits| limits)
    }

    fn limited(&self, number: u64, limit: impl FnOnce(Limits) -> Limits) -> Runtime {
        self.on(Arc::clone(&self.base.store), number, limit)
    }

    /// A process that uses this store.
    fn on(
        &self,
        store: Arc<dyn Store>,
        number: u64,
        limit: impl FnOnce(Limits) -> Limits,
    ) -> Runtime {
        let models = Arc::new(FakeModels::new([], Duration::ZERO));
        let deps = self.base.deps_on(store, number, models);
        start(RuntimeDeps { remotes: self.remotes.clone(), limits: limit(deps.limits), ..deps })
    }

    /// The current row of a task.
    fn end(&self, id: TaskId) -> (TaskStatus, String) {
        let task = self.base.task(id);
        (task.status, task.result.or(task.error).unwrap_or_default())
    }

    /// Answers reviews without sending a message again, until the task has ended.
    async fn answer_reviews(&self, runtime: &Runtime, id: TaskId) -> Result<(), EngineError> {
        loop {
            let state = load_task(&*self.base.store, id).await?.state;
            let Some(review) = state.review() else {
                if state.status().is_final() {
                    return Ok(());
                }
                runtime.adopt(id).await?.wait().await?;
                continue;
            };
            let verdict = match review.subject {
                ReviewSubject::RemoteQuestion { .. } => ReviewVerdict::Approve,
                ReviewSubject::RunDoubt { .. } => ReviewVerdict::SkipWith { result: "done".into() },
                ReviewSubject::Approval { .. }
                | ReviewSubject::Doubt { .. }
                | ReviewSubject::Node { .. }
                | ReviewSubject::Checkpoint { .. } => panic!("{:?}", review.subject),
            };
            answer_with(runtime, id, review.checkpoint_id, verdict).await?;
        }
    }

    /// True if the journal has a cancel request to the server.
    fn has_cancel_request(&self, id: TaskId) -> bool {
        let ends = ExecutionChange::EndRemote { task: task("t-1"), refusal: None };
        self.base
            .events(id)
            .iter()
            .any(|event| matches!(event, Event::ExecutionChanged { change, .. } if *change == ends))
    }

    /// Cancels from a process that runs nothing.
    async fn cancel(&self, id: TaskId) {
        let RuntimeFixture { store, leases } = &self.base;
        let (clock, remotes) = (&SystemClock, &*self.remotes);
        cancel(&ControlDeps { store, leases: &**leases, clock, remotes }, id).await.unwrap();
    }
}

fn task(id: &str) -> polity_model::remote::RemoteTask {
    serde_json::from_value(json!({"task_id": id, "context_id": "c-1"})).unwrap()
}

fn painter() -> PinnedAgent {
    let agent = json!({"kind": "remote", "name": "painter", "card_url": "https://h/card.json"});
    pinned_agent(agent, &json!({}))
}

async fn create_paint_task(runtime: &Runtime) -> TaskHandle {
    runtime.create(CreateTask::new(painter(), "paint")).await.unwrap()
}

async fn answer(harness: &RemoteFixture, runtime: &Runtime, id: TaskId, verdict: ReviewVerdict) {
    let checkpoint_id =
        harness.base.store.checkpoints(id).await.unwrap().last().unwrap().checkpoint_id;
    answer_with(runtime, id, checkpoint_id, verdict).await.unwrap();
}

async fn answer_with(
    runtime: &Runtime,
    id: TaskId,
    checkpoint_id: CheckpointId,
    verdict: ReviewVerdict,
) -> Result<(), EngineError> {
    let message = Some("blue".to_owned());
    let answer = AnswerReview { message, ..answer_review(checkpoint_id, verdict) };
    runtime.answer(id, answer).await
}

fn asks_for_colour() -> RemoteReaction {
    RemoteReaction::Task(RemoteEnd::Asks("Which colour?".into()))
}

#[tokio::test(start_paused = true)]
async fn server_answer_is_the_result() {
    let harness = RemoteFixture::new([]);
    let runtime = harness.process(1);
    let mut handle = create_paint_task(&runtime).await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.end(handle.id).1, "paint");
    assert_eq!(harness.remotes.messages(), [("paint".to_owned(), None)]);
    assert_eq!(harness.remotes.cancelled(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn crash_during_remote_work_sends_no_message_twice() {
    let harness = RemoteFixture::new([]);
    let first = harness.process(1);
    let handle = create_paint_task(&first).await;
    sleep(1500).await;
    harness.base.kill(1, first);
    let second = harness.process(2);
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::Completed);
    assert_eq!(harness.remotes.messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn crash_while_sending_opens_a_review() {
    let harness = RemoteFixture::new([]);
    let first = harness.process(1);
    let handle = create_paint_task(&first).await;
    sleep(500).await;
    harness.base.kill(1, first);
    let second = harness.process(2);
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::AwaitingHuman);
    assert_eq!(harness.remotes.messages().len(), 1);
    answer(&harness, &second, handle.id, ReviewVerdict::Retry).await;
    assert_eq!(adopt(&second, handle.id).await, TaskStatus::Completed);
    assert_eq!(harness.remotes.messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn crash_at_any_commit_sends_no_message_twice() {
    let mut crashes = 0;
    for (number, side) in (0..14).flat_map(|n| [(n, CrashSide::Before), (n, CrashSide::After)]) {
        let harness = RemoteFixture::new([asks_for_colour()]);
        let crashing =
            Arc::new(CrashingStore::new(Arc::clone(&harness.base.store), Some((number, side))));
        let first = harness.on(Arc::clone(&crashing) as Arc<dyn Store>, 1, |limits| limits);
        if let Ok(mut handle) = first.create(CreateTask::new(painter(), "paint")).await {
            // The process has crashed by now.
            let _ = handle.wait().await;
            let _ = harness.answer_reviews(&first, handle.id).await;
        }
        crashes += u32::from(crashing.has_crashed());
        crashing.crash();
        drop(first);
        harness.base.leases.end(instance_id(1));
        let second = harness.process(2);
        for row in harness.base.store.task_rows(&TaskFilter::default()).await.unwrap() {
            harness.answer_reviews(&second, row.id).await.unwrap();
            assert_eq!(harness.end(row.id).0, TaskStatus::Completed, "{number} {side:?}");
        }
        let messages = harness.remotes.messages();
        for text in ["paint", "blue"] {
            let times = messages.iter().filter(|(sent, _)| sent == text).count();
            assert!(times <= 1, "{number} {side:?}: {messages:?}");
        }
    }
    assert!(crashes >= 12, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn undelivered_message_is_sent_until_retries_are_used_up() {
    let failure = transient("busy");
    let busy = RemoteReaction::Reply(RemoteEnd::Failed { failure, retry_after: None });
    for (times, status) in [(2, TaskStatus::Completed), (9, TaskStatus::Failed)] {
        let harness = RemoteFixture::new(vec![busy.clone(); times]);
        let runtime = harness.process(1);
        let mut handle = create_paint_task(&runtime).await;
        assert_eq!(handle.wait().await.unwrap(), status);
        assert_eq!(harness.remotes.messages().len(), times.min(3) + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn answer_goes_to_the_same_remote_task() {
    let harness = RemoteFixture::new([asks_for_colour()]);
    let runtime = harness.process(1);
    let mut handle = create_paint_task(&runtime).await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    answer(&harness, &runtime, handle.id, ReviewVerdict::Approve).await;
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::Completed);
    let messages = [("paint".to_owned(), None), ("blue".to_owned(), Some("t-1".to_owned()))];
    assert_eq!(harness.remotes.messages(), messages);
    assert_eq!(harness.end(handle.id).1, "blue");
}

#[tokio::test(start_paused = true)]
async fn ending_a_task_cancels_its_remote_work() {
    // While the message is sent, and while the server works.
    for after in [500, 1500] {
        let harness = RemoteFixture::new([]);
        let runtime = harness.process(1);
        let mut handle = create_paint_task(&runtime).await;
        sleep(after).await;
        runtime.cancel(handle.id).await.unwrap();
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
        assert_eq!(harness.remotes.cancelled(), ["t-1"]);
        assert!(harness.has_cancel_request(handle.id));
    }
    // While it waits for an answer, and by rejection.
    for says_no in [true, false] {
        let harness = RemoteFixture::new([asks_for_colour()]);
        let runtime = harness.process(1);
        let mut handle = create_paint_task(&runtime).await;
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
        if says_no {
            answer(&harness, &runtime, handle.id, ReviewVerdict::Reject).await;
        } else {
            harness.cancel(handle.id).await;
        }
        assert!(harness.end(handle.id).0.is_final());
        assert_eq!(harness.remotes.cancelled(), ["t-1"]);
        assert!(harness.has_cancel_request(handle.id));
    }
    // After a crash of its process.
    let harness = RemoteFixture::new([]);
    let runtime = harness.process(1);
    let handle = create_paint_task(&runtime).await;
    sleep(1500).await;
    harness.base.kill(1, runtime);
    harness.cancel(handle.id).await;
    assert_eq!(harness.remotes.cancelled(), ["t-1"]);
}

#[tokio::test(start_paused = true)]
async fn timeout_cancels_remote_work() {
    let mut slow = FakeRemotes::new([]);
    (slow.answers_after, slow.works_for) = (Duration::ZERO, Duration::from_secs(9));
    let harness = RemoteFixture { remotes: Arc::new(slow), ..RemoteFixture::new([]) };
    let one = std::num::NonZeroU64::MIN;
    let runtime = harness.limited(1, |limits| Limits { remote_seconds: one, ..limits });
    let mut handle = create_paint_task(&runtime).await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Failed);
    assert_eq!(harness.base.row(handle.id).error_code, Some(ErrorCode::Timeout));
    assert_eq!(harness.remotes.cancelled(), ["t-1"]);
}

#[tokio::test(start_paused = true)]
async fn remote_work_that_delivers_is_not_idle() {
    // A sign of life each second, for nine seconds, with a limit of two.
    for (is_busy, status) in [(true, TaskStatus::Completed), (false, TaskStatus::Failed)] {
        let mut slow = FakeRemotes::new([]);
        (slow.answers_after, slow.works_for) = (Duration::ZERO, Duration::from_secs(9));
        slow.shows_progress_every = is_busy.then_some(Duration::from_secs(1));
        let harness = RemoteFixture { remotes: Arc::new(slow), ..RemoteFixture::new([]) };
        let remote_idle_seconds = std::num::NonZeroU64::new(2).unwrap();
        let runtime = harness.limited(1, |limits| Limits { remote_idle_seconds, ..limits });
        let mut handle = create_paint_task(&runtime).await;
        assert_eq!(handle.wait().await.unwrap(), status);
        let error = harness.base.task(handle.id).error.unwrap_or_default();
        assert_eq!(error.contains("limits.remote_idle_seconds"), !is_busy, "{error}");
    }
}

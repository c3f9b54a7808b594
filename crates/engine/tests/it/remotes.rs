//! Remote agents: messages, retries and cancellation.

use std::sync::Arc;
use std::time::Duration;

use polity_definition::{AgentDefinition, Limits};
use polity_engine::clock::SystemClock;
use polity_engine::commands::{AnswerReview, CreateTask};
use polity_engine::driver::{RemoteDriver, RemoteEnd};
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::{
    ControlDeps, EngineError, Runtime, RuntimeDeps, TaskHandle, cancel, load_task,
};
use polity_model::event::{Event, ExecutionChange, StreamId, StreamSequence};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::ids::{CheckpointId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::review::{ReviewSubject, ReviewVerdict};
use polity_model::state::StateUpdates;
use polity_store::{MemoryStore, Store, TaskFilter};
use polity_testkit::faults::{CrashSide, CrashingStore};
use polity_testkit::remotes::{FakeRemotes, RemoteReaction};
use polity_testkit::runtime::{FakeModels, TestLeases, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use serde_json::json;

struct RemoteFixture {
    store: Arc<dyn Store>,
    leases: Arc<TestLeases>,
    remotes: Arc<FakeRemotes>,
}

impl RemoteFixture {
    fn new(reactions: impl IntoIterator<Item = RemoteReaction>) -> Self {
        let remotes = Arc::new(FakeRemotes::new(reactions));
        Self { store: Arc::new(MemoryStore::new()), leases: Arc::default(), remotes }
    }

    fn process(&self, number: u64) -> Runtime {
        self.limited(number, |limits| limits)
    }

    fn limited(&self, number: u64, limit: impl FnOnce(Limits) -> Limits) -> Runtime {
        self.on(Arc::clone(&self.store), number, limit)
    }

    /// A process that uses this store.
    fn on(
        &self,
        store: Arc<dyn Store>,
        number: u64,
        limit: impl FnOnce(Limits) -> Limits,
    ) -> Runtime {
        let models = Arc::new(FakeModels::new([], Duration::ZERO));
        let deps = runtime_deps(store, models, &self.leases, instance_id(number), number);
        let remotes = Arc::clone(&self.remotes) as Arc<dyn RemoteDriver>;
        let limits = limit(deps.limits);
        polity_store::block_on(Runtime::start(RuntimeDeps { remotes, limits, ..deps })).unwrap()
    }

    /// The current row of a task.
    fn end(&self, id: TaskId) -> (TaskStatus, String) {
        let row = self.store.task_row(id).wait().unwrap().unwrap();
        let task = self.store.task(&row).wait().unwrap();
        (task.status, task.result.or(task.error).unwrap_or_default())
    }

    /// Answers reviews without sending a message again, until the task has ended.
    async fn attend(&self, runtime: &Runtime, id: TaskId) -> Result<(), EngineError> {
        loop {
            let state = load_task(&*self.store, id).await?.state;
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
    fn tells_of_end(&self, id: TaskId) -> bool {
        let events =
            self.store.events(&StreamId::Task(id), StreamSequence::default()).wait().unwrap();
        events.iter().any(|recorded| {
            let ends = ExecutionChange::EndRemote { task: task("t-1"), refusal: None };
            matches!(&recorded.event, Event::ExecutionChanged { change, .. } if *change == ends)
        })
    }

    /// Cancels from a process that runs nothing.
    async fn cancel(&self, id: TaskId) {
        let (store, clock) = (&self.store, &SystemClock);
        let steering = ControlDeps { store, leases: &*self.leases, clock, remotes: &*self.remotes };
        cancel(&steering, id).await.unwrap();
    }
}

fn task(id: &str) -> polity_model::remote::RemoteTask {
    serde_json::from_value(json!({"task_id": id, "context_id": "c-1"})).unwrap()
}

fn painter() -> PinnedAgent {
    let agent = json!({"kind": "remote", "name": "painter", "card_url": "https://h/card.json"});
    PinnedAgent::alone(Arc::new(AgentDefinition::from_canonical(&agent.to_string()).unwrap()), None)
}

async fn give(runtime: &Runtime) -> TaskHandle {
    runtime.create(CreateTask::new(painter(), "paint")).await.unwrap()
}

async fn answer(harness: &RemoteFixture, runtime: &Runtime, id: TaskId, verdict: ReviewVerdict) {
    let checkpoint_id = harness.store.checkpoints(id).await.unwrap().last().unwrap().checkpoint_id;
    answer_with(runtime, id, checkpoint_id, verdict).await.unwrap();
}

async fn answer_with(
    runtime: &Runtime,
    id: TaskId,
    checkpoint_id: CheckpointId,
    verdict: ReviewVerdict,
) -> Result<(), EngineError> {
    let (message, by) = (Some("blue".to_owned()), "ada".to_owned());
    let state_updates = StateUpdates::default();
    let answer = AnswerReview { checkpoint_id, verdict, message, by, state_updates };
    runtime.answer(id, answer).await
}

fn asks() -> RemoteReaction {
    RemoteReaction::Task(RemoteEnd::Asks("Which colour?".into()))
}

#[tokio::test(start_paused = true)]
async fn server_answer_is_the_result() {
    let harness = RemoteFixture::new([]);
    let runtime = harness.process(1);
    let mut handle = give(&runtime).await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.end(handle.id).1, "paint");
    assert_eq!(harness.remotes.messages(), [("paint".to_owned(), None)]);
    assert_eq!(harness.remotes.cancelled(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn crash_during_remote_work_sends_no_message_twice() {
    let harness = RemoteFixture::new([]);
    let first = harness.process(1);
    let handle = give(&first).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    drop(first);
    harness.leases.end(instance_id(1));
    let second = harness.process(2);
    let mut again = second.adopt(handle.id).await.unwrap();
    assert_eq!(again.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.remotes.messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn crash_while_sending_opens_a_review() {
    let harness = RemoteFixture::new([]);
    let first = harness.process(1);
    let handle = give(&first).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(first);
    harness.leases.end(instance_id(1));
    let second = harness.process(2);
    let mut again = second.adopt(handle.id).await.unwrap();
    assert_eq!(again.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    assert_eq!(harness.remotes.messages().len(), 1);
    answer(&harness, &second, handle.id, ReviewVerdict::Retry).await;
    let mut again = second.adopt(handle.id).await.unwrap();
    assert_eq!(again.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.remotes.messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn crash_at_any_commit_sends_no_message_twice() {
    let mut deaths = 0;
    for (number, side) in (0..14).flat_map(|n| [(n, CrashSide::Before), (n, CrashSide::After)]) {
        let harness = RemoteFixture::new([asks()]);
        let mortal = Arc::new(CrashingStore::new(Arc::clone(&harness.store), Some((number, side))));
        let first = harness.on(Arc::clone(&mortal) as Arc<dyn Store>, 1, |limits| limits);
        if let Ok(mut handle) = first.create(CreateTask::new(painter(), "paint")).await {
            // The process has crashed by now.
            let _ = handle.wait().await;
            let _ = harness.attend(&first, handle.id).await;
        }
        deaths += u32::from(mortal.has_crashed());
        mortal.crash();
        drop(first);
        harness.leases.end(instance_id(1));
        let second = harness.process(2);
        for row in harness.store.task_rows(&TaskFilter::default()).await.unwrap() {
            harness.attend(&second, row.id).await.unwrap();
            assert_eq!(harness.end(row.id).0, TaskStatus::Completed, "{number} {side:?}");
        }
        let messages = harness.remotes.messages();
        for text in ["paint", "blue"] {
            let times = messages.iter().filter(|(said, _)| said == text).count();
            assert!(times <= 1, "{number} {side:?}: {messages:?}");
        }
    }
    assert!(deaths >= 12, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn undelivered_message_is_sent_until_retries_are_used_up() {
    let failure = AttemptFailure { category: ErrorCategory::Transient, message: "busy".into() };
    let busy = RemoteReaction::Reply(RemoteEnd::Failed { failure, retry_after: None });
    for (times, status) in [(2, TaskStatus::Completed), (9, TaskStatus::Failed)] {
        let harness = RemoteFixture::new(vec![busy.clone(); times]);
        let runtime = harness.process(1);
        let mut handle = give(&runtime).await;
        assert_eq!(handle.wait().await.unwrap(), status);
        assert_eq!(harness.remotes.messages().len(), times.min(3) + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn answer_goes_to_the_same_remote_task() {
    let harness = RemoteFixture::new([asks()]);
    let runtime = harness.process(1);
    let mut handle = give(&runtime).await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
    answer(&harness, &runtime, handle.id, ReviewVerdict::Approve).await;
    let mut again = runtime.adopt(handle.id).await.unwrap();
    assert_eq!(again.wait().await.unwrap(), TaskStatus::Completed);
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
        let mut handle = give(&runtime).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        runtime.cancel(handle.id).await.unwrap();
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Cancelled);
        assert_eq!(harness.remotes.cancelled(), ["t-1"]);
        assert!(harness.tells_of_end(handle.id));
    }
    // While it waits for an answer, and by rejection.
    for says_no in [true, false] {
        let harness = RemoteFixture::new([asks()]);
        let runtime = harness.process(1);
        let mut handle = give(&runtime).await;
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::AwaitingHuman);
        if says_no {
            answer(&harness, &runtime, handle.id, ReviewVerdict::Reject).await;
        } else {
            harness.cancel(handle.id).await;
        }
        assert!(harness.end(handle.id).0.is_final());
        assert_eq!(harness.remotes.cancelled(), ["t-1"]);
        assert!(harness.tells_of_end(handle.id));
    }
    // After a crash of its process.
    let harness = RemoteFixture::new([]);
    let runtime = harness.process(1);
    let handle = give(&runtime).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    drop(runtime);
    harness.leases.end(instance_id(1));
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
    let mut handle = give(&runtime).await;
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Failed);
    let row = harness.store.task_row(handle.id).await.unwrap().unwrap();
    assert_eq!(row.error_code, Some(ErrorCode::Timeout));
    assert_eq!(harness.remotes.cancelled(), ["t-1"]);
}

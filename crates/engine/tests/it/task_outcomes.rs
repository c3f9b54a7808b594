//! Outcomes of tasks: answered, retried, failed, timed out, cancelled.

use jiff::SignedDuration;
use polity_engine::clock::Clock;
use polity_testkit::runtime::FakeModelTurn::{
    Answer, DeliverFor, Hang, PermanentFailure, RequestTools, TransientFailure,
};

use crate::prelude::*;

async fn run(turns: impl IntoIterator<Item = FakeModelTurn>) -> (Task, Arc<dyn Store>, u64) {
    let fixture = RuntimeFixture::new();
    let models = Arc::new(FakeModels::new(turns, Duration::from_millis(10)));
    let runtime = start(fixture.deps(1, models.clone()));
    let mut handle = runtime.create(create_task("Ada")).await.unwrap();
    let status = handle.wait().await.unwrap();
    let task = fixture.task(handle.id);
    assert_eq!(task.status, status);
    (task, fixture.store, models.calls())
}

#[tokio::test(start_paused = true)]
async fn answer_is_the_result() {
    let (task, store, calls) = run([Answer("Hello.")]).await;
    assert_eq!((task.status, calls), (TaskStatus::Completed, 1));
    assert_eq!(task.result.as_deref(), Some("Hello."));
    assert_eq!(task.usage.input_tokens, Some(3));
    assert_eq!(store.messages(task.id).await.unwrap().len(), 2);
    assert_eq!(store.checkpoints(task.id).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn transient_failures_are_retried_with_backoff() {
    let (task, store, calls) =
        run([TransientFailure, TransientFailure, TransientFailure, Answer("at last")]).await;
    assert_eq!((task.status, calls), (TaskStatus::Completed, 4));
    let execution = &store.executions(task.id).await.unwrap()[0];
    assert_eq!(execution.retry_count, 3);
    let took = task.completed_at.unwrap().duration_since(task.started_at.unwrap());
    assert!((7..10).contains(&took.as_secs()), "{took:?}");
}

/// A clock that was set back.
struct LateClock {
    clock: TokioClock,
    behind: SignedDuration,
}

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        self.clock.now() - self.behind
    }
}

#[tokio::test(start_paused = true)]
async fn clock_set_back_does_not_prolong_a_retry() {
    let fixture = RuntimeFixture::new();
    let models = Arc::new(FakeModels::new([TransientFailure], Duration::from_millis(10)));
    let runtime = start(fixture.deps(1, models));
    let id = runtime.create(create_task("Ada")).await.unwrap().id;
    while fixture.load(id).await.retry_at().is_none() {
        sleep(1).await;
    }
    fixture.kill(1, runtime);
    let models = Arc::new(FakeModels::new([Answer("at last")], Duration::from_millis(10)));
    let clock = LateClock { clock: TokioClock::new(), behind: SignedDuration::from_hours(2) };
    let runtime = start(RuntimeDeps { clock: Arc::new(clock), ..fixture.deps(2, models) });
    let began = tokio::time::Instant::now();
    let mut handle = runtime.adopt(id).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    // The first backoff has one second and up to a quarter more.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_transient_failures_fail_the_task() {
    let (task, store, calls) = run(vec![TransientFailure; 99]).await;
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!(task.error_code, Some(ErrorCode::ModelUnavailable));
    assert!((12..20).contains(&calls), "{calls}");
    let took = task.completed_at.unwrap().duration_since(task.started_at.unwrap());
    assert!((600..602).contains(&took.as_secs()), "{took:?}");
    let execution = &store.executions(task.id).await.unwrap()[0];
    assert_eq!(u64::from(execution.retry_count), calls - 1);
}

#[tokio::test(start_paused = true)]
async fn outage_of_nine_minutes_is_survived() {
    let turns = vec![TransientFailure; 13].into_iter().chain([Answer("at last")]);
    let (task, _, calls) = run(turns).await;
    assert_eq!((task.status, calls), (TaskStatus::Completed, 14));
    let took = task.completed_at.unwrap().duration_since(task.started_at.unwrap());
    assert!(took.as_secs() > 400, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_failure_is_not_retried() {
    let (task, _, calls) = run([PermanentFailure]).await;
    assert_eq!((task.status, calls), (TaskStatus::Failed, 1));
    assert_eq!(task.error.as_deref(), Some("scripted failure: permanent"));
}

#[tokio::test(start_paused = true)]
async fn unresponsive_model_times_out() {
    let (task, store, _) = run(vec![Hang; 99]).await;
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!(task.error_code, Some(ErrorCode::Timeout));
    let path: Vec<_> = store.executions(task.id).await.unwrap()[0]
        .state_transitions
        .iter()
        .map(|transition| transition.to.to_string())
        .collect();
    assert_eq!(path[path.len() - 3..], ["timeout", "cleanup", "idle"]);
    let expected = "the model sent nothing for 120 seconds, the agent's llm_config.timeout_seconds";
    assert_eq!(task.error.as_deref(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn delivering_model_is_not_timed_out() {
    let (task, _, calls) = run([DeliverFor(Duration::from_mins(50))]).await;
    assert_eq!((task.status, calls), (TaskStatus::Completed, 1), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn total_timeout_ends_a_delivering_model_without_a_retry() {
    let (task, _, calls) = run([DeliverFor(Duration::from_hours(2))]).await;
    assert_eq!((task.error_code, calls), (Some(ErrorCode::Timeout), 1));
    let expected = "the model's answer was not complete after 3600 seconds, the agent's \
                    llm_config.total_timeout_seconds";
    assert_eq!(task.error.as_deref(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn endless_tool_calls_reach_the_iteration_limit() {
    let (task, store, calls) = run(vec![RequestTools(&["time/now"]); 20]).await;
    assert_eq!((task.error_code, calls), (Some(ErrorCode::LimitIterations), 10));
    let messages = store.messages(task.id).await.unwrap();
    let asked: Vec<_> = messages.iter().flat_map(Message::tool_calls).map(|c| c.id).collect();
    assert_eq!(asked.len(), 10);
    // Every call has its answer, also the last.
    assert_eq!(messages.len(), 1 + 20);
}

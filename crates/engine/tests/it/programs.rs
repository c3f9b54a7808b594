//! CLI agents: slots, queues, outcomes, and recovery after a crash.

use polity_engine::commands::ToggleAgent;
use polity_engine::runtime::toggle_agent;
use polity_testkit::programs::{FakeCliAgents, SECRET};

use crate::prelude::*;

const TAKES: Duration = Duration::from_secs(1);

pub(crate) struct CliAgentFixture {
    pub(crate) base: RuntimeFixture,
    pub(crate) programs: Arc<FakeCliAgents>,
}

impl CliAgentFixture {
    pub(crate) fn new(ends: impl IntoIterator<Item = RunEnd>) -> Self {
        Self::taking(TAKES, ends)
    }

    fn taking(time: Duration, ends: impl IntoIterator<Item = RunEnd>) -> Self {
        Self { base: RuntimeFixture::new(), programs: Arc::new(FakeCliAgents::new(time, ends)) }
    }

    pub(crate) fn process(&self, number: u64) -> Runtime {
        let deps = self.base.deps(number, Arc::new(FakeModels::new([], Duration::ZERO)));
        let limits = Limits { concurrent_tasks: NonZeroU32::new(64).unwrap(), ..deps.limits };
        start(RuntimeDeps { programs: self.programs.clone(), limits, ..deps })
    }

    fn status(&self, handle: &TaskHandle) -> (TaskStatus, Option<ErrorCode>) {
        let row = self.base.row(handle.id);
        (row.status, row.error_code)
    }

    /// The numbers of queued and of running executions.
    fn queue_counts(&self) -> (usize, usize) {
        let filter = ExecutionFilter { open_only: true, ..ExecutionFilter::default() };
        let rows = self.base.store.execution_rows(&filter).wait().unwrap();
        let running = rows.iter().filter(|row| row.execution.is_active()).count();
        (rows.len() - running, running)
    }
}

pub(crate) fn coder(more: &Value) -> PinnedAgent {
    pinned_agent(json!({"kind": "cli", "name": "coder", "executable_path": "coder"}), more)
}

async fn create_tasks(runtime: &Runtime, agent: &PinnedAgent, inputs: &[&str]) -> Vec<TaskHandle> {
    let mut handles = Vec::new();
    for input in inputs {
        let create = CreateTask::new(agent.clone(), *input);
        handles.push(runtime.create(create).await.unwrap());
    }
    handles
}

async fn ends_of(handles: &mut [TaskHandle]) -> Vec<TaskStatus> {
    let mut ends = Vec::new();
    for handle in handles {
        ends.push(handle.wait().await.unwrap());
    }
    ends
}

#[tokio::test(start_paused = true)]
async fn writing_cli_agents_run_in_order_across_processes() {
    let harness = CliAgentFixture::new([]);
    let (one, two) = (harness.process(1), harness.process(2));
    let agent = coder(&json!({}));
    let mut handles = create_tasks(&one, &agent, &["a", "b"]).await;
    handles.extend(create_tasks(&two, &agent, &["c"]).await);
    handles.extend(create_tasks(&one, &agent, &["d"]).await);
    sleep(200).await;
    assert_eq!(harness.queue_counts(), (3, 1));
    assert!(ends_of(&mut handles).await.iter().all(|end| *end == TaskStatus::Completed));
    assert_eq!(harness.programs.max_concurrent(), 1);
    assert_eq!(harness.programs.inputs(), ["a", "b", "c", "d"]);
    assert_eq!(harness.queue_counts(), (0, 0));
    assert_eq!(harness.base.task(handles[3].id).result.as_deref(), Some("d"));
}

#[tokio::test(start_paused = true)]
async fn read_only_cli_agents_run_in_parallel_up_to_the_limit() {
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let agent = coder(&json!({"access_type": "read-only", "max_concurrent_executions": 3}));
    let mut handles = create_tasks(&runtime, &agent, &["a"; 8]).await;
    assert!(ends_of(&mut handles).await.iter().all(|end| *end == TaskStatus::Completed));
    assert_eq!(harness.programs.max_concurrent(), 3);
}

#[tokio::test(start_paused = true)]
async fn long_queue_waits_in_order_for_as_long_as_it_takes() {
    // Longer than a queue that refuses would wait.
    let harness = CliAgentFixture::taking(Duration::from_mins(3), []);
    let runtime = harness.process(1);
    let names: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut handles = create_tasks(&runtime, &coder(&json!({})), &names).await;
    assert!(ends_of(&mut handles).await.iter().all(|end| *end == TaskStatus::Completed));
    assert_eq!(harness.programs.inputs(), names);
}

#[tokio::test(start_paused = true)]
async fn queue_keeps_its_order_across_a_restart() {
    let harness = CliAgentFixture::new([]);
    let first = harness.process(1);
    let agent = coder(&json!({"idempotent": true}));
    let names = ["a", "b", "c", "d", "e", "f"];
    let handles = create_tasks(&first, &agent, &names).await;
    harness.base.until("the second runs", |_| harness.programs.inputs().len() == 2).await;
    harness.base.kill(1, first);
    drop(handles);
    let second = harness.process(2);
    let mut handles = Vec::new();
    for id in harness.base.orphan_ids().await {
        handles.push(second.adopt(id).await.unwrap());
    }
    // A new task queues behind those that were there before.
    handles.extend(create_tasks(&second, &agent, &["g"]).await);
    assert!(ends_of(&mut handles).await.iter().all(|end| *end == TaskStatus::Completed));
    assert_eq!(harness.programs.inputs(), ["a", "b", "b", "c", "d", "e", "f", "g"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_cli_agent_holds_no_slot() {
    let harness = CliAgentFixture::taking(Duration::from_mins(3), []);
    let deps = harness.base.deps(1, Arc::new(FakeModels::new([], Duration::ZERO)));
    let limits = Limits { concurrent_tasks: NonZeroU32::new(2).unwrap(), ..deps.limits };
    let runtime = start(RuntimeDeps { programs: harness.programs.clone(), limits, ..deps });
    let mut handles = create_tasks(&runtime, &coder(&json!({})), &["a", "b", "c", "d"]).await;
    harness.base.until("all queue", |_| harness.queue_counts() == (3, 1)).await;
    let began = tokio::time::Instant::now();
    complete(&runtime, create_task("quick")).await;
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
    assert!(ends_of(&mut handles).await.iter().all(|end| *end == TaskStatus::Completed));
    assert_eq!(harness.programs.inputs(), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn full_queue_rejects_tasks() {
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let mut handles = create_tasks(&runtime, &coder(&json!({"queue_limit": 2})), &["a"; 5]).await;
    ends_of(&mut handles).await;
    let ends: Vec<_> = handles.iter().map(|handle| harness.status(handle)).collect();
    let full = (TaskStatus::Failed, Some(ErrorCode::LimitQueue));
    assert_eq!(ends.iter().filter(|end| **end == full).count(), 2, "{ends:?}");
    assert_eq!(ends[3..], [full, full]);
}

#[tokio::test(start_paused = true)]
async fn message_of_a_full_queue_does_not_count_refused_runs() {
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let mut handles = create_tasks(&runtime, &coder(&json!({"queue_limit": 1})), &["a"; 6]).await;
    ends_of(&mut handles).await;
    let expected = "the queue of coder is full, and its queue_limit is 1: try again later, raise \
                    the limit, or set queue_full to wait";
    for refused in &handles[2..] {
        assert_eq!(harness.base.task(refused.id).error.as_deref(), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn queue_wait_times_out() {
    let harness = CliAgentFixture::taking(Duration::from_secs(10), []);
    let runtime = harness.process(1);
    let agent = coder(&json!({"queue_timeout_seconds": 1}));
    let mut handles = create_tasks(&runtime, &agent, &["a", "b", "c"]).await;
    ends_of(&mut handles).await;
    let task = harness.base.task(handles[2].id);
    assert_eq!(task.error_code, Some(ErrorCode::LimitQueue));
    assert!(task.error.unwrap().contains("queue_timeout_seconds"));
}

#[tokio::test(start_paused = true)]
async fn cancels_queued_and_running_cli_agents() {
    let harness = CliAgentFixture::new([]);
    let runtime = harness.process(1);
    let mut handles = create_tasks(&runtime, &coder(&json!({})), &["a", "b", "c"]).await;
    sleep(300).await;
    for index in [1, 0] {
        runtime.cancel(handles[index].id).await.unwrap();
        assert_eq!(handles[index].wait().await.unwrap(), TaskStatus::Cancelled);
    }
    assert_eq!(handles[2].wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.programs.inputs(), ["a", "c"]);
    let executions = harness.base.store.executions(handles[0].id).await.unwrap();
    let path: Vec<_> =
        executions[0].state_transitions.iter().map(|moved| moved.to.to_string()).collect();
    assert_eq!(path, ["starting", "running", "cancelled", "cleanup", "idle"]);
}

#[tokio::test(start_paused = true)]
async fn transient_failure_is_retried_with_exponential_backoff() {
    let harness = CliAgentFixture::new(vec![RunEnd::Failed(transient("busy")); 2]);
    let runtime = harness.process(1);
    let began = tokio::time::Instant::now();
    let mut handles = create_tasks(&runtime, &coder(&json!({"idempotent": true})), &["a"]).await;
    assert_eq!(handles[0].wait().await.unwrap(), TaskStatus::Completed);
    // Three runs of a second, and waits of one and two with up to a quarter more.
    let took = began.elapsed().as_secs_f64();
    assert!((6.0..7.0).contains(&took), "{took}");
    let execution = harness.base.store.executions(handles[0].id).await.unwrap().remove(0);
    assert_eq!((execution.retry_count, execution.runs.len()), (2, 3));
    assert_eq!(harness.programs.forgotten(), [(execution.id, 3)]);
}

#[tokio::test(start_paused = true)]
async fn secrets_reach_the_cli_agent_but_not_the_journal() {
    let harness = CliAgentFixture::new([RunEnd::Answered("done".into())]);
    let runtime = harness.process(1);
    let mut create = CreateTask::new(coder(&json!({})), format!("the key is {SECRET}"));
    create.parameters.insert("more".into(), json!([{"deep": SECRET}]));
    create.overrides.envs.insert("TOKEN".into(), SECRET.into());
    let mut handle = runtime.create(create).await.unwrap();
    sleep(100).await;
    assert!(harness.base.store.sealed_input(handle.id).await.unwrap().is_some());
    handle.wait().await.unwrap();
    assert_eq!(harness.programs.inputs(), [format!("the key is {SECRET}")]);
    assert_eq!(harness.base.store.sealed_input(handle.id).await.unwrap(), None);
    assert!(!format!("{:?}", harness.base.recorded(handle.id)).contains(SECRET));
    assert_eq!(harness.base.task(handle.id).description, "the key is ***");
}

/// A process that crashes during the first of two runs, and its successor.
async fn crash_during_first_run(harness: &CliAgentFixture, agent: &Value) -> (Runtime, TaskHandle) {
    let runtime = harness.process(1);
    let handle = create_tasks(&runtime, &coder(agent), &["a"]).await.remove(0);
    sleep(500).await;
    assert_eq!(harness.queue_counts(), (0, 1));
    harness.base.kill(1, runtime);
    tokio::time::sleep(Duration::from_secs(5)).await;
    (harness.process(2), handle)
}

#[tokio::test(start_paused = true)]
async fn finished_run_of_a_crashed_process_is_not_repeated() {
    let harness = CliAgentFixture::new([]);
    let (runtime, handle) = crash_during_first_run(&harness, &json!({})).await;
    harness.programs.find(RunEnd::Answered("found".into()));
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::Completed);
    assert_eq!(harness.programs.inputs().len(), 1);
    assert_eq!(harness.base.task(handle.id).result.as_deref(), Some("found"));
}

#[tokio::test(start_paused = true)]
async fn repeatable_run_is_repeated_after_a_crash() {
    let harness = CliAgentFixture::new([]);
    let (runtime, handle) =
        crash_during_first_run(&harness, &json!({"access_type": "read-only"})).await;
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::Completed);
    assert_eq!(harness.programs.inputs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn unrepeatable_run_opens_a_review_after_a_crash() {
    let harness = CliAgentFixture::new([]);
    let (runtime, handle) = crash_during_first_run(&harness, &json!({})).await;
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::AwaitingHuman);
    assert_eq!((harness.programs.inputs().len(), harness.queue_counts()), (1, (0, 0)));
    harness.base.answer(&runtime, handle.id, ReviewVerdict::Retry).await;
    assert_eq!(adopt(&runtime, handle.id).await, TaskStatus::Completed);
    assert_eq!(harness.programs.inputs().len(), 2);
    assert_eq!(harness.base.store.executions(handle.id).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn budget_counts_and_serializes_cli_agents() {
    let harness = CliAgentFixture::new([]);
    harness.programs.using(Usage { input_tokens: 40, ..Usage::default() });
    let runtime = harness.process(1);
    let agent = coder(&json!({"access_type": "read-only"}));
    let budget = serde_json::from_value(json!({"max_tokens": 30})).unwrap();
    let create = CreateTask { budget, ..CreateTask::new(agent, "a") };
    let mut handle = runtime.create(create).await.unwrap();
    handle.wait().await.unwrap();
    let row = harness.base.row(handle.id);
    // The run that exceeds it is the last one; its answer is kept as a partial result.
    assert_eq!((row.status, row.usage.input_tokens), (TaskStatus::Failed, 40));
    assert_eq!(row.error_code, Some(ErrorCode::Budget));
    assert!(harness.base.task(handle.id).result.is_some());
}

#[tokio::test(start_paused = true)]
async fn agent_disabled_by_another_process_rejects_tasks() {
    let harness = CliAgentFixture::new([]);
    let (runtime, agent) = (harness.process(1), coder(&json!({})));
    let mut before = create_tasks(&runtime, &agent, &["a"]).await;
    let name = "coder".parse().unwrap();
    let disable = ToggleAgent::Disable { reason: Some("no key".into()) };
    assert!(toggle_agent(&*harness.base.store, &SystemClock, &name, &disable).await.unwrap());
    assert!(!toggle_agent(&*harness.base.store, &SystemClock, &name, &disable).await.unwrap());
    sleep(200).await;
    let refused = runtime.create(CreateTask::new(agent.clone(), "b")).await.unwrap_err();
    assert_eq!(refused.to_string(), "agent \"coder\" is disabled: no key");
    // A new process reads it at start.
    let other = harness.process(2);
    assert!(other.create(CreateTask::new(agent.clone(), "b")).await.is_err());
    // Earlier tasks continue.
    assert_eq!(before[0].wait().await.unwrap(), TaskStatus::Completed);
    toggle_agent(&*harness.base.store, &SystemClock, &name, &ToggleAgent::Enable).await.unwrap();
    sleep(200).await;
    let mut after = create_tasks(&runtime, &agent, &["c"]).await;
    assert_eq!(after[0].wait().await.unwrap(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn duplicate_tasks_share_one_run() {
    let harness = CliAgentFixture::new([]);
    let (one, two) = (harness.process(1), harness.process(2));
    let agent = coder(&json!({"deduplicate_seconds": 60}));
    let mut handles = create_tasks(&one, &agent, &["a"]).await;
    handles.extend(create_tasks(&two, &agent, &["a", "b"]).await);
    handles.extend(create_tasks(&one, &agent, &["a"]).await);
    assert!(ends_of(&mut handles).await.iter().all(|end| *end == TaskStatus::Completed));
    // Finished runs are shared too.
    let mut late = create_tasks(&two, &agent, &["a"]).await.remove(0);
    assert_eq!(late.wait().await.unwrap(), TaskStatus::Completed);
    // Each process started one run.
    let mut inputs = harness.programs.inputs();
    inputs.sort();
    assert_eq!(inputs, ["a", "b"]);
    let task = |handle: &TaskHandle| harness.base.task(handle.id);
    for handle in [&handles[1], &handles[3], &late] {
        assert_eq!(task(handle).shared_with, Some(handles[0].id));
        assert_eq!(task(handle).result.as_deref(), Some("a"));
    }
    assert_eq!((task(&handles[0]).shared_with, task(&handles[2]).shared_with), (None, None));
}

#[tokio::test(start_paused = true)]
async fn failed_run_is_not_shared_and_a_duplicate_runs_next() {
    let harness = CliAgentFixture::new([RunEnd::Failed(permanent("no"))]);
    let runtime = harness.process(1);
    let agent = coder(&json!({"deduplicate_seconds": 60}));
    let mut handles = create_tasks(&runtime, &agent, &["a"; 4]).await;
    let ends = ends_of(&mut handles).await;
    assert_eq!(ends[0], TaskStatus::Failed);
    assert_eq!(ends[1..], [TaskStatus::Completed; 3]);
    assert_eq!(harness.programs.inputs(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn duplicates_stop_waiting_for_a_crashed_run() {
    let harness = CliAgentFixture::new([]);
    let agent = coder(&json!({"deduplicate_seconds": 60, "idempotent": true}));
    let first = harness.process(1);
    let _gone = create_tasks(&first, &agent, &["a"]).await;
    let second = harness.process(2);
    let mut waiting = create_tasks(&second, &agent, &["a"]).await.remove(0);
    sleep(300).await;
    harness.base.kill(1, first);
    assert_eq!(waiting.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.programs.inputs(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn start_removes_leftovers_of_crashed_processes() {
    let ends = [RunEnd::Answered("well".into()), RunEnd::Failed(permanent("no"))];
    let harness = CliAgentFixture::new(ends);
    let first = harness.process(1);
    let mut handles = create_tasks(&first, &coder(&json!({})), &["a", "b", "c"]).await;
    ends_of(&mut handles[..2]).await;
    let ids: Vec<_> = handles
        .iter()
        .map(|handle| harness.base.store.executions(handle.id).wait().unwrap()[0].id)
        .collect();
    harness.programs.leave_behind(ids.clone());
    let swept = || async {
        sleep(10).await;
        let mut swept = harness.programs.swept();
        swept.sort();
        swept
    };
    // Its owner is alive.
    let _second = harness.process(2);
    assert_eq!(swept().await, []);
    harness.base.kill(1, first);
    let _third = harness.process(3);
    // The third has not ended.
    let mut expected = vec![(ids[0], true), (ids[1], false)];
    expected.sort();
    assert_eq!(swept().await, expected);
    let mut ended = harness.programs.ended();
    ended.sort();
    let mut all: Vec<_> = ids.iter().map(|id| (*id, 1)).collect();
    all.sort();
    assert_eq!(ended, all, "all leftovers are killed");
}

#[tokio::test(start_paused = true)]
async fn run_with_its_own_workspace_is_repeated() {
    let harness = CliAgentFixture::new([RunEnd::Failed(transient("429"))]);
    let runtime = harness.process(1);
    let mut handle =
        create_tasks(&runtime, &coder(&json!({"workspace": "copy"})), &["a"]).await.remove(0);
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    assert_eq!(harness.programs.inputs(), ["a", "a"]);
}

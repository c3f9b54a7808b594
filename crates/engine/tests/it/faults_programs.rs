//! Crashes at every commit of CLI agent runs, in random histories.
//!
//! Each case starts a few processes on one journal, some of them in parallel. Each crashes at a random
//! commit. A reviewer answers interrupted runs. In the end every task has ended, no unrepeatable run
//! was repeated, and duplicate tasks share one outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use polity_definition::{AgentDefinition, Limits};
use polity_engine::commands::CreateTask;
use polity_engine::decide::CommandRejection;
use polity_engine::driver::{
    BoxFuture, LostRun, NotReady, ProgramPreparation, ProgramRunner, RunCleanup, RunDedup, RunEnd,
    RunIdentity, RunOutcome, RunOverrides, RunRequest,
};
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::{EngineError, Runtime, RuntimeDeps, find_orphans, load_task};
use polity_model::digest::Digest;
use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_model::run::{ProcessExit, RunReport};
use polity_model::usage::Usage;
use polity_store::{ExecutionFilter, MemoryStore, Store, TaskFilter};
use polity_testkit::faults::{AcknowledgedCommit, CrashSide, CrashingStore};
use polity_testkit::runtime::{FakeModels, TestLeases, TokioClock, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::faults::{check, decide, waiting};

/// The names of the agents.
const AGENTS: [&str; 4] = ["writer", "reader", "again", "sharer"];

/// The end of a run that is not stopped.
#[derive(Debug, Clone, Copy)]
enum FakeRunEnd {
    Answer,
    TransientFailure,
    PermanentFailure,
    TimedOut,
}

#[derive(Debug, Clone)]
enum CliAgentOrder {
    /// Creates a task for an agent, with one of a few texts.
    Create(usize, u8),
    Cancel(usize),
    Pause(u64),
    Decide(usize, ReviewVerdict),
}

#[derive(Debug, Clone)]
struct CliAgentProcess {
    orders: Vec<CliAgentOrder>,
    ends: Vec<FakeRunEnd>,
    dies: (u32, CrashSide),
    /// True if it keeps running while the next one starts.
    stays: bool,
}

fn order() -> impl Strategy<Value = CliAgentOrder> {
    let verdict = prop_oneof![
        Just(ReviewVerdict::Retry),
        Just(ReviewVerdict::Reject),
        Just(ReviewVerdict::SkipWith { result: "by hand".into() }),
    ];
    prop_oneof![
        6 => (0usize..AGENTS.len(), 0u8..2).prop_map(|(agent, text)| CliAgentOrder::Create(agent, text)),
        1 => (0usize..6).prop_map(CliAgentOrder::Cancel),
        3 => (0u64..2500).prop_map(CliAgentOrder::Pause),
        1 => (0usize..3, verdict).prop_map(|(index, verdict)| CliAgentOrder::Decide(index, verdict)),
    ]
}

fn process() -> impl Strategy<Value = CliAgentProcess> {
    let side = prop_oneof![Just(CrashSide::Before), Just(CrashSide::After)];
    let end = prop_oneof![
        6 => Just(FakeRunEnd::Answer),
        2 => Just(FakeRunEnd::TransientFailure),
        1 => Just(FakeRunEnd::PermanentFailure),
        1 => Just(FakeRunEnd::TimedOut),
    ];
    let orders = prop::collection::vec(order(), 1..8);
    (orders, prop::collection::vec(end, 0..8), (0u32..40, side), any::<bool>())
        .prop_map(|(orders, ends, dies, stays)| CliAgentProcess { orders, ends, dies, stays })
}

fn agent(name: &str) -> PinnedAgent {
    let more = match name {
        "reader" => json!({"access_type": "read-only", "max_concurrent_executions": 2}),
        "again" => json!({"idempotent": true}),
        "sharer" => json!({"deduplicate_seconds": 60}),
        _ => json!({}),
    };
    let mut agent = json!({"kind": "cli", "name": name, "executable_path": name});
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    PinnedAgent::alone(Arc::new(AgentDefinition::from_canonical(&agent.to_string()).unwrap()), None)
}

/// True if a run may be repeated after a crash.
fn may_be_repeated(name: &str) -> bool {
    ["reader", "again"].contains(&name)
}

/// The runs on the machine, which outlive every process.
#[derive(Default)]
struct FakeMachine {
    state: Mutex<FakeMachineState>,
}

#[derive(Default)]
struct FakeMachineState {
    /// The outcome of each run that has ended.
    runs: BTreeMap<(ExecutionId, u32), Option<RunOutcome>>,
    at_once: BTreeMap<String, usize>,
}

impl FakeMachine {
    fn state(&self) -> MutexGuard<'_, FakeMachineState> {
        self.state.lock().unwrap()
    }

    /// The number of started runs of an execution.
    fn begun(&self, execution: ExecutionId) -> usize {
        self.state().runs.keys().filter(|(id, _)| *id == execution).count()
    }
}

/// The CLI agents of one process.
struct MachinePrograms {
    machine: Arc<FakeMachine>,
    ends: Mutex<Vec<FakeRunEnd>>,
}

/// Counts a run until it is dropped.
struct RunningProgramGuard<'a>(&'a FakeMachine, String);

impl Drop for RunningProgramGuard<'_> {
    fn drop(&mut self) {
        *self.0.state().at_once.get_mut(&self.1).unwrap() -= 1;
    }
}

impl ProgramPreparation for MachinePrograms {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Ok(())
    }

    fn slot_pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        agent.name.to_string()
    }

    fn working_directory(&self, _: &AgentDefinition, _: &RunOverrides) -> String {
        "/work".to_owned()
    }

    fn mask_secrets(&self, _: &AgentDefinition, _: &RunOverrides, values: Value) -> Value {
        values
    }
}

impl RunDedup for MachinePrograms {
    fn dedup_key(&self, identity: &RunIdentity<'_>) -> Option<Digest> {
        Some(Digest::of(format!("{} {}", identity.agent.name, identity.input).as_bytes()))
    }
}

impl ProgramRunner for MachinePrograms {
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let pool = request.agent.name.to_string();
            let most = request.agent.program().unwrap().max_concurrent_executions.get() as usize;
            let key = (request.execution_id, request.attempt);
            let end = self.ends.lock().unwrap().pop().unwrap_or(FakeRunEnd::Answer);
            {
                let mut state = self.machine.state();
                assert!(state.runs.insert(key, None).is_none(), "an attempt is made once");
                let at_once = state.at_once.entry(pool.clone()).or_default();
                *at_once += 1;
                assert!(*at_once <= most, "{at_once} of {pool} run at once");
            }
            let _running = RunningProgramGuard(&self.machine, pool);
            request.progress.started(7);
            let mut stop = request.stop.clone();
            let end = tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => match end {
                    FakeRunEnd::Answer => RunEnd::Answered(format!("{} done", request.input)),
                    FakeRunEnd::TransientFailure => RunEnd::Failed(failed(ErrorCategory::Transient)),
                    FakeRunEnd::PermanentFailure => RunEnd::Failed(failed(ErrorCategory::Permanent)),
                    FakeRunEnd::TimedOut => RunEnd::TimedOut("too long".to_owned()),
                },
                _ = stop.wait_for(|stop| *stop) => RunEnd::Stopped,
            };
            let report = RunReport {
                process_id: Some(7),
                exit: Some(ProcessExit::Code(0)),
                ..RunReport::default()
            };
            let outcome = RunOutcome { end, report, usage: Usage::default() };
            self.machine.state().runs.insert(key, Some(outcome.clone()));
            outcome
        })
    }

    fn recover<'a>(&'a self, run: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        let key = (run.execution_id, run.attempt);
        let found = self.machine.state().runs.get(&key).cloned().flatten();
        Box::pin(async { found })
    }
}

impl RunCleanup for MachinePrograms {}

fn failed(category: ErrorCategory) -> AttemptFailure {
    AttemptFailure { category, message: "scripted failure".into() }
}

/// Fewer cases, because each takes longer than other histories.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 4).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn cli_runs_are_neither_lost_nor_repeated_after_random_crashes(
        processes in prop::collection::vec(process(), 1..5)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(history(&processes));
    }
}

struct CliAgentWorld {
    journal: Arc<dyn Store>,
    leases: Arc<TestLeases>,
    machine: Arc<FakeMachine>,
    clock: Arc<TokioClock>,
    known: Vec<TaskId>,
}

/// A running process with its own view of the journal.
struct LiveProcess {
    number: u64,
    store: Arc<CrashingStore>,
    runtime: Runtime,
}

impl CliAgentWorld {
    fn begin(&self, number: u64, store: Arc<dyn Store>, ends: Vec<FakeRunEnd>) -> Runtime {
        let models = Arc::new(FakeModels::new([], Duration::ZERO));
        let programs =
            Arc::new(MachinePrograms { machine: Arc::clone(&self.machine), ends: ends.into() });
        let deps = runtime_deps(store, models, &self.leases, instance_id(number), number);
        let limits = Limits { concurrent_tasks: 8.try_into().unwrap(), ..deps.limits };
        let clock = self.clock.clone();
        polity_store::block_on(Runtime::start(RuntimeDeps { programs, limits, clock, ..deps }))
            .unwrap()
    }

    /// Kills a process and its runs.
    async fn end(&self, live: LiveProcess, acknowledged: &mut Vec<AcknowledgedCommit>) {
        live.store.crash();
        drop(live.runtime);
        self.leases.end(instance_id(live.number));
        acknowledged.extend(live.store.acknowledged());
        // Lets aborted tasks be dropped.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn history(processes: &[CliAgentProcess]) {
    let mut world = CliAgentWorld {
        journal: Arc::new(MemoryStore::new()),
        leases: Arc::default(),
        machine: Arc::default(),
        clock: Arc::new(TokioClock::new()),
        known: Vec::new(),
    };
    let mut acknowledged = Vec::new();
    let mut previous: Option<LiveProcess> = None;
    for (number, process) in (1..).zip(processes) {
        let store = Arc::new(CrashingStore::new(Arc::clone(&world.journal), Some(process.dies)));
        let runtime = world.begin(number, store.clone(), process.ends.clone());
        let live = LiveProcess { number, store, runtime };
        carry_out(&mut world, &live, process).await;
        if let Some(before) = previous.take() {
            world.end(before, &mut acknowledged).await;
        }
        if process.stays {
            previous = Some(live);
        } else {
            world.end(live, &mut acknowledged).await;
        }
    }
    if let Some(last) = previous {
        world.end(last, &mut acknowledged).await;
    }
    recover(&world).await;
    check(&*world.journal, &acknowledged, &world.known).await;
    check_runs(&world);
}

async fn carry_out(world: &mut CliAgentWorld, live: &LiveProcess, process: &CliAgentProcess) {
    let LiveProcess { store, runtime, .. } = live;
    let journal: Arc<dyn Store> = store.clone();
    for row in
        find_orphans(&**store, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap_or_default()
    {
        // A crash during adoption is one of the tested cases.
        let _ = runtime.adopt(row.id).await;
    }
    for order in &process.orders {
        match order {
            CliAgentOrder::Create(which, text) => {
                let create = CreateTask::new(agent(AGENTS[*which]), format!("text {text}"));
                if let Ok(handle) = runtime.create(create).await {
                    world.known.push(handle.id);
                }
            }
            CliAgentOrder::Cancel(index) => {
                if let Some(id) = world.known.get(*index) {
                    let _ = runtime.cancel(*id).await;
                }
            }
            CliAgentOrder::Decide(index, verdict) => {
                if let Some(row) = waiting(&**store).await.into_iter().nth(*index)
                    && decide(&journal, runtime, row.id, verdict.clone()).await
                {
                    let _ = runtime.adopt(row.id).await;
                }
            }
            CliAgentOrder::Pause(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        }
        if store.has_crashed() {
            return;
        }
    }
}

/// Finishes all tasks in a process without crashes, with truthful review answers.
async fn recover(world: &CliAgentWorld) {
    let journal = &world.journal;
    let runtime = world.begin(99, Arc::clone(journal), Vec::new());
    for _ in 0..20 {
        let mut handles = Vec::new();
        for row in find_orphans(&**journal, &*world.leases, Timestamp::UNIX_EPOCH).await.unwrap() {
            match runtime.adopt(row.id).await {
                Ok(handle) => handles.push(handle),
                Err(EngineError::Rejected(CommandRejection::AwaitingHuman { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
        for handle in &mut handles {
            let patience = Duration::from_hours(2);
            let ended = tokio::time::timeout(patience, handle.wait()).await;
            let Ok(ended) = ended else { panic!("{} is never left", handle.id) };
            ended.unwrap();
        }
        for row in waiting(&**journal).await {
            let loaded = load_task(&**journal, row.id).await.unwrap();
            let begun = world.machine.begun(loaded.state.execution().unwrap().id) > 0;
            let verdict = if begun {
                ReviewVerdict::SkipWith { result: "by hand".into() }
            } else {
                ReviewVerdict::Retry
            };
            assert!(decide(journal, &runtime, row.id, verdict).await);
        }
    }
}

fn check_runs(world: &CliAgentWorld) {
    let journal = &*world.journal;
    let open = ExecutionFilter { open_only: true, ..ExecutionFilter::default() };
    assert_eq!(journal.execution_rows(&open).wait().unwrap().len(), 0, "the queue is empty");
    assert!(world.machine.state().at_once.values().all(|count| *count == 0));
    for row in journal.task_rows(&TaskFilter::default()).wait().unwrap() {
        let task = journal.task(&row).wait().unwrap();
        let executions = journal.executions(row.id).wait().unwrap();
        let begun: usize = executions.iter().map(|run| world.machine.begun(run.id)).sum();
        let events = journal.events(&StreamId::Task(row.id), StreamSequence(0)).wait().unwrap();
        let answered = |wanted: &ReviewVerdict| {
            let same = |event: &Event| matches!(event, Event::ReviewAnswered { verdict, .. } if verdict == wanted);
            events.iter().filter(|recorded| same(&recorded.event)).count()
        };
        let agent = row.assigned_agent.as_str();
        if !may_be_repeated(agent) {
            let most = 1 + answered(&ReviewVerdict::Retry);
            assert!(
                begun <= most,
                "{agent} ran {begun} times, and {most} were allowed: {events:?}"
            );
        }
        if task.status == TaskStatus::Completed {
            let by_hand = ReviewVerdict::SkipWith { result: "by hand".into() };
            let ran = begun > 0 || answered(&by_hand) > 0;
            let result = task.result.as_deref().unwrap();
            assert!([&format!("{} done", task.description), "by hand"].contains(&result));
            match task.shared_with {
                Some(other) => {
                    let other = journal
                        .task(&journal.task_row(other).wait().unwrap().unwrap())
                        .wait()
                        .unwrap();
                    assert_eq!((other.status, other.shared_with), (TaskStatus::Completed, None));
                    assert_eq!(
                        (other.result.as_deref(), &other.description),
                        (Some(result), &task.description)
                    );
                    assert_eq!((agent, begun), ("sharer", 0));
                }
                None => assert!(ran, "nothing comes of nothing: {events:?}"),
            }
        }
    }
}

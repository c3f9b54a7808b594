//! Crashes at every commit of CLI agent runs, in random histories.
//!
//! Each case starts a few processes on one journal, some of them in parallel. Each crashes at a random
//! commit. Cancelled and failed tasks are retried. A reviewer answers interrupted runs. In the end every task has ended, no unrepeatable run
//! was repeated, and duplicate tasks share one outcome.

use std::sync::MutexGuard;

use polity_engine::driver::{
    LostRun, ProgramPreparation, ProgramRunner, RunCleanup, RunDedup, RunIdentity, RunOutcome,
    RunOverrides, RunRequest,
};
use polity_model::digest::Digest;
use polity_model::ids::ExecutionId;
use polity_model::run::{ProcessExit, RunReport};
use proptest::prelude::*;

use crate::faults::{
    ProcessOrder, adopt_orphans, block_on_paused, carry_out, check, crash, decide, finish_orphans,
    waiting,
};
use crate::prelude::*;

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
struct CliAgentProcess {
    /// Orders that create tasks for an agent, with one of a few texts.
    orders: Vec<ProcessOrder<(usize, u8)>>,
    ends: Vec<FakeRunEnd>,
    dies: (u32, CrashSide),
    /// True if it keeps running while the next one starts.
    stays: bool,
    /// The number of its concurrent tasks. Tasks that wait for their agent take none.
    slots: u32,
}

fn order() -> impl Strategy<Value = ProcessOrder<(usize, u8)>> {
    let verdict = prop_oneof![
        Just(ReviewVerdict::Retry),
        Just(ReviewVerdict::Reject),
        Just(ReviewVerdict::SkipWith { result: "by hand".into() }),
    ];
    prop_oneof![
        6 => (0usize..AGENTS.len(), 0u8..2).prop_map(ProcessOrder::Create),
        2 => (0usize..6).prop_map(ProcessOrder::Cancel),
        2 => (0usize..6).prop_map(ProcessOrder::Retry),
        3 => (0u64..2500).prop_map(ProcessOrder::Pause),
        1 => (0usize..3, verdict).prop_map(|(index, verdict)| ProcessOrder::Decide(index, verdict)),
    ]
}

fn process() -> impl Strategy<Value = CliAgentProcess> {
    let end = prop_oneof![
        6 => Just(FakeRunEnd::Answer),
        2 => Just(FakeRunEnd::TransientFailure),
        1 => Just(FakeRunEnd::PermanentFailure),
        1 => Just(FakeRunEnd::TimedOut),
    ];
    let orders = prop::collection::vec(order(), 1..8);
    (orders, prop::collection::vec(end, 0..8), crash(40), any::<bool>(), 1u32..6).prop_map(
        |(orders, ends, dies, stays, slots)| CliAgentProcess { orders, ends, dies, stays, slots },
    )
}

fn agent(name: &str) -> PinnedAgent {
    let more = match name {
        "reader" => json!({"access_type": "read-only", "max_concurrent_executions": 2}),
        "again" => json!({"idempotent": true}),
        "sharer" => json!({"deduplicate_seconds": 60}),
        _ => json!({}),
    };
    pinned_agent(json!({"kind": "cli", "name": name, "executable_path": name}), &more)
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
                assert!(state.runs.insert(key, None).is_none(), "an attempt starts once");
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
                    FakeRunEnd::TransientFailure => RunEnd::Failed(transient("scripted failure")),
                    FakeRunEnd::PermanentFailure => RunEnd::Failed(permanent("scripted failure")),
                    FakeRunEnd::TimedOut => RunEnd::TimedOut("too long".to_owned()),
                },
                _ = stop.wait_for(|stop| *stop) => RunEnd::Stopped,
            };
            let (process_id, exit) = (Some(7), Some(ProcessExit::Code(0)));
            let report = RunReport { process_id, exit, ..RunReport::default() };
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
        block_on_paused(history(&processes));
    }
}

struct CliAgentWorld {
    base: RuntimeFixture,
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
    fn begin(
        &self,
        number: u64,
        store: Arc<dyn Store>,
        ends: Vec<FakeRunEnd>,
        slots: u32,
    ) -> Runtime {
        let models = Arc::new(FakeModels::new([], Duration::ZERO));
        let programs =
            Arc::new(MachinePrograms { machine: Arc::clone(&self.machine), ends: ends.into() });
        let deps = self.base.deps_on(store, number, models);
        let limits = Limits { concurrent_tasks: slots.try_into().unwrap(), ..deps.limits };
        start(RuntimeDeps { programs, limits, clock: self.clock.clone(), ..deps })
    }

    /// Kills a process and its runs.
    async fn end(&self, live: LiveProcess, acknowledged: &mut Vec<AcknowledgedCommit>) {
        live.store.crash();
        self.base.kill(live.number, live.runtime);
        acknowledged.extend(live.store.acknowledged());
        // Lets aborted tasks be dropped.
        sleep(1).await;
    }
}

async fn history(processes: &[CliAgentProcess]) {
    let mut world = CliAgentWorld {
        base: RuntimeFixture::new(),
        machine: Arc::default(),
        clock: Arc::new(TokioClock::new()),
        known: Vec::new(),
    };
    let mut acknowledged = Vec::new();
    let mut previous: Option<LiveProcess> = None;
    for (number, process) in (1..).zip(processes) {
        let store = Arc::new(CrashingStore::new(Arc::clone(&world.base.store), Some(process.dies)));
        let runtime = world.begin(number, store.clone(), process.ends.clone(), process.slots);
        let live = LiveProcess { number, store, runtime };
        adopt_orphans(&live.runtime, &live.store, &world.base.leases).await;
        let create = |(which, text): &(usize, u8)| {
            CreateTask::new(agent(AGENTS[*which]), format!("text {text}"))
        };
        carry_out(&process.orders, create, &live.runtime, &live.store, &mut world.known).await;
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
    check(&*world.base.store, &acknowledged, &world.known).await;
    check_runs(&world);
}

/// Finishes all tasks in a process without crashes, with truthful review answers.
async fn recover(world: &CliAgentWorld) {
    let journal = &world.base.store;
    let runtime = world.begin(99, Arc::clone(journal), Vec::new(), 1);
    for _ in 0..20 {
        let waits = |rejection: &_| matches!(rejection, CommandRejection::AwaitingHuman { .. });
        finish_orphans(&world.base, &runtime, waits).await;
        for row in waiting(&**journal).await {
            let state = world.base.load(row.id).await;
            let ReviewSubject::RunDoubt { execution_id } = state.review().unwrap().subject else {
                panic!("{:?}", state.review());
            };
            let verdict = if world.machine.begun(execution_id) > 0 {
                ReviewVerdict::SkipWith { result: "by hand".into() }
            } else {
                ReviewVerdict::Retry
            };
            assert!(decide(&**journal, &runtime, row.id, verdict).await);
        }
    }
}

fn check_runs(world: &CliAgentWorld) {
    let (base, journal) = (&world.base, &world.base.store);
    let open = ExecutionFilter { open_only: true, ..ExecutionFilter::default() };
    assert_eq!(journal.execution_rows(&open).wait().unwrap().len(), 0, "the queue is empty");
    assert!(world.machine.state().at_once.values().all(|count| *count == 0));
    for row in base.all_tasks() {
        let task = base.task(row.id);
        let executions = journal.executions(row.id).wait().unwrap();
        let begun: usize = executions.iter().map(|run| world.machine.begun(run.id)).sum();
        let events = base.events(row.id);
        let answered = |wanted: &ReviewVerdict| {
            let same = |event: &&Event| matches!(event, Event::ReviewAnswered { verdict, .. } if verdict == wanted);
            events.iter().filter(same).count()
        };
        let agent = row.assigned_agent.as_str();
        if !may_be_repeated(agent) {
            // A retry asks first if the run of the earlier task was cut off.
            let is_asked = matches!(events.first(), Some(Event::TaskCreated(created)) if created.doubted_run.is_some());
            let most = usize::from(!is_asked) + answered(&ReviewVerdict::Retry);
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
                    let other = base.task(other);
                    assert_eq!((other.status, other.shared_with), (TaskStatus::Completed, None));
                    assert_eq!(
                        (other.result.as_deref(), &other.description),
                        (Some(result), &task.description)
                    );
                    assert_eq!((agent, begun), ("sharer", 0));
                }
                None => assert!(ran, "an outcome without a run: {events:?}"),
            }
        }
    }
}

//! Crashes between commits and effects, in random histories.
//!
//! Each case runs a few processes on one journal, one after the other. Each but the last crashes
//! before or after a random commit. The last one finishes everything. The journal must then contain
//! every acknowledged commit.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polity_engine::commands::{AnswerReview, CreateTask};
use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{
    EngineError, Runtime, RuntimeDeps, TaskHistory, active_root, find_orphans, load_task,
};
use polity_model::event::{Event, JournalPosition, StreamId, StreamSequence, ToolChange};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::ReviewVerdict;
use polity_model::session::task_of_call;
use polity_model::state::StateUpdates;
use polity_model::task::Task;
use polity_store::{
    CommitDurability, MemoryStore, SqliteStore, Store, StoreAccess, TaskFilter, TaskRow,
};
use polity_testkit::faults::{AcknowledgedCommit, CrashSide, CrashingStore};
use polity_testkit::runtime::FakeModelTurn::{
    self, Answer, ContextFull, Hang, PermanentFailure, RequestTools, TransientFailure,
};
use polity_testkit::runtime::{FakeModels, TestLeases, boss, create_task, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use polity_testkit::tools::{FakeToolAct, FakeTools, ToolEffects};
use proptest::prelude::*;
use serde_json::Value;

#[derive(Debug, Clone)]
enum ProcessOrder {
    Create,
    /// Creates a task for an agent with sub-agents.
    CreateForBoss,
    Cancel(usize),
    Pause(u64),
    /// Answers the review of a task.
    Decide(usize, ReviewVerdict),
}

#[derive(Debug, Clone)]
struct CrashingProcess {
    orders: Vec<ProcessOrder>,
    turns: Vec<FakeModelTurn>,
    tool_turns: Vec<FakeToolAct>,
    dies: (u32, CrashSide),
}

fn order() -> impl Strategy<Value = ProcessOrder> {
    prop_oneof![
        3 => Just(ProcessOrder::Create),
        3 => Just(ProcessOrder::CreateForBoss),
        1 => (0usize..4).prop_map(ProcessOrder::Cancel),
        1 => (0u64..3000).prop_map(ProcessOrder::Pause),
        2 => (0usize..4, verdict()).prop_map(|(index, verdict)| ProcessOrder::Decide(index, verdict)),
    ]
}

fn verdict() -> impl Strategy<Value = ReviewVerdict> {
    prop_oneof![
        Just(ReviewVerdict::Approve),
        Just(ReviewVerdict::Reject),
        Just(ReviewVerdict::Retry),
        Just(ReviewVerdict::SkipWith { result: "done by hand".into() }),
    ]
}

fn turn() -> impl Strategy<Value = FakeModelTurn> {
    prop_oneof![
        4 => Just(Answer("yes")),
        2 => Just(TransientFailure),
        1 => Just(PermanentFailure),
        2 => Just(RequestTools(&["time/now"])),
        3 => Just(RequestTools(&["files/write", "files/read", "files/write"])),
        2 => Just(RequestTools(&["files/write", "files/delete"])),
        1 => Just(RequestTools(&["nowhere/nothing", "write"])),
        1 => Just(ContextFull),
        2 => Just(RequestTools(&["agent/helper", "agent/deputy", "files/write"])),
        2 => Just(RequestTools(&["agent/deputy"])),
        2 => Just(RequestTools(&["agent/helper", "agent/helper"])),
        1 => Just(Hang),
    ]
}

fn tool_act() -> impl Strategy<Value = FakeToolAct> {
    prop_oneof![
        4 => Just(FakeToolAct::Answer),
        1 => Just(FakeToolAct::Error),
        1 => Just(FakeToolAct::NotReached),
        1 => Just(FakeToolAct::Lost),
        1 => Just(FakeToolAct::Hang),
    ]
}

fn process() -> impl Strategy<Value = CrashingProcess> {
    let side = prop_oneof![Just(CrashSide::Before), Just(CrashSide::After)];
    let orders = prop::collection::vec(order(), 1..6);
    let (turns, tool_turns) =
        (prop::collection::vec(turn(), 0..10), prop::collection::vec(tool_act(), 0..10));
    (orders, turns, tool_turns, 0u32..24, side).prop_map(
        |(orders, turns, tool_turns, commits, side)| CrashingProcess {
            orders,
            turns,
            tool_turns,
            dies: (commits, side),
        },
    )
}

proptest! {
    #[test]
    fn random_crashes_lose_and_duplicate_no_event(
        processes in prop::collection::vec(process(), 1..4)
    ) {
        run(&processes, Arc::new(MemoryStore::new()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: on_disk(), ..ProptestConfig::default() })]

    #[test]
    fn random_crashes_lose_and_duplicate_no_event_on_disk(processes in prop::collection::vec(process(), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polity.db");
        let store = SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Relaxed)).unwrap();
        run(&processes, Arc::new(store));
    }
}

/// Fewer cases, because the disk is slower than memory.
fn on_disk() -> u32 {
    (ProptestConfig::default().cases / 16).max(1)
}

fn run(processes: &[CrashingProcess], journal: Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(history(processes, journal));
}

async fn history(processes: &[CrashingProcess], journal: Arc<dyn Store>) {
    let leases = Arc::new(TestLeases::default());
    let world = Arc::new(ToolEffects::default());
    let mut acknowledged = Vec::new();
    let mut known = Vec::new();
    for (number, process) in (1..).zip(processes) {
        let store = Arc::new(CrashingStore::new(Arc::clone(&journal), Some(process.dies)));
        live(&store, &leases, &world, number, process, &mut known).await;
        store.crash();
        leases.end(instance_id(number));
        acknowledged.extend(store.acknowledged());
    }
    recover(&journal, &leases, &world).await;
    check(&*journal, &acknowledged, &known).await;
    check_effects(&*journal, &world).await;
}

/// Carries out the orders until the process crashes or has finished.
async fn live(
    store: &Arc<CrashingStore>,
    leases: &Arc<TestLeases>,
    world: &Arc<ToolEffects>,
    number: u64,
    process: &CrashingProcess,
    known: &mut Vec<TaskId>,
) {
    let pause = Duration::from_millis(20);
    let models = Arc::new(FakeModels::new(process.turns.clone(), pause).on(world));
    let tools = Arc::new(FakeTools::new(world, process.tool_turns.clone(), pause));
    let journal: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
    let deps = runtime_deps(Arc::clone(&journal), models, leases, instance_id(number), number);
    let runtime = Runtime::start(RuntimeDeps { tools, ..deps }).await.unwrap();
    for row in find_orphans(&**store, &**leases, Timestamp::UNIX_EPOCH).await.unwrap_or_default() {
        // A crash during adoption is one of the tested cases.
        let _ = runtime.adopt(row.id).await;
    }
    for order in &process.orders {
        match order {
            ProcessOrder::Create => {
                if let Ok(handle) = runtime.create(create_task("a")).await {
                    known.push(handle.id);
                }
            }
            ProcessOrder::CreateForBoss => {
                if let Ok(handle) = runtime.create(CreateTask::new(boss(), "a")).await {
                    known.push(handle.id);
                }
            }
            ProcessOrder::Cancel(index) => {
                if let Some(id) = known.get(*index) {
                    let _ = runtime.cancel(*id).await;
                }
            }
            ProcessOrder::Decide(index, verdict) => {
                let waiting = waiting(&**store).await;
                if let Some(row) = waiting.into_iter().nth(*index)
                    && decide(&journal, &runtime, row.id, verdict.clone()).await
                    && let Ok(top) = active_root(&**store, row).await
                {
                    let _ = runtime.adopt(top.id).await;
                }
            }
            ProcessOrder::Pause(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        }
        if store.has_crashed() {
            return;
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// The tasks that await review.
pub(crate) async fn waiting(store: &dyn Store) -> Vec<TaskRow> {
    let waiting = TaskFilter { statuses: vec![TaskStatus::AwaitingHuman], ..TaskFilter::default() };
    store.task_rows(&waiting).await.unwrap_or_default()
}

/// Answers a review and resumes the task. An answer that does not fit the question is rejected.
pub(crate) async fn decide(
    store: &Arc<dyn Store>,
    runtime: &Runtime,
    id: TaskId,
    verdict: ReviewVerdict,
) -> bool {
    let Ok(loaded) = load_task(&**store, id).await else { return false };
    let Some(review) = loaded.state.review() else { return false };
    let checkpoint_id = review.checkpoint_id;
    let answer = AnswerReview {
        checkpoint_id,
        verdict,
        message: None,
        by: "ada".into(),
        state_updates: StateUpdates::default(),
    };
    runtime.answer(id, answer).await.is_ok()
}

/// Finishes all tasks in a process without crashes, with answers to every review.
async fn recover(journal: &Arc<dyn Store>, leases: &Arc<TestLeases>, world: &Arc<ToolEffects>) {
    let pause = Duration::from_millis(1);
    let models = Arc::new(FakeModels::new([], pause).on(world));
    let tools = Arc::new(FakeTools::new(world, [], pause));
    let deps = runtime_deps(Arc::clone(journal), models, leases, instance_id(99), 99);
    let runtime = Runtime::start(RuntimeDeps { tools, ..deps }).await.unwrap();
    for _ in 0..20 {
        let mut handles = Vec::new();
        for row in find_orphans(&**journal, &**leases, Timestamp::UNIX_EPOCH).await.unwrap() {
            match runtime.adopt(row.id).await {
                Ok(handle) => handles.push(handle),
                // One of its sub-agents is left, and it waits for a person itself; or its parent
                // has ended, and it with that.
                Err(EngineError::Rejected(
                    CommandRejection::AwaitingHuman { .. } | CommandRejection::Finished { .. },
                )) => {}
                Err(error) => panic!("{error}"),
            }
        }
        for handle in &mut handles {
            let patience = Duration::from_hours(1);
            let Ok(outcome) = tokio::time::timeout(patience, handle.wait()).await else {
                panic!("{} is never left: {}", handle.id, describe_tasks(&**journal).await);
            };
            outcome.unwrap();
        }
        for row in waiting(&**journal).await {
            assert_eq!(row.owner, None, "a task that waits belongs to no process");
            let result = "done by hand".to_owned();
            for verdict in [ReviewVerdict::SkipWith { result }, ReviewVerdict::Approve] {
                decide(journal, &runtime, row.id, verdict).await;
            }
        }
    }
}

/// Every task with its last events, for failed cases.
async fn describe_tasks(journal: &dyn Store) -> String {
    let mut text = String::new();
    for row in journal.task_rows(&TaskFilter::default()).await.unwrap() {
        let events = journal.events(&StreamId::Task(row.id), StreamSequence(0)).await.unwrap();
        let last: Vec<_> = events.iter().rev().take(8).map(|recorded| &recorded.event).collect();
        let (id, parent, status) = (row.id, row.parent_task_id, row.status);
        write!(text, "\n{id} of {parent:?} is {status}, newest first: {last:?}").unwrap();
    }
    text
}

/// Checks that unrepeatable calls were made at most once, plus once per retry verdict.
async fn check_effects(journal: &dyn Store, world: &ToolEffects) {
    let mut allowed: BTreeMap<u64, u32> = BTreeMap::new();
    for row in journal.task_rows(&TaskFilter::default()).await.unwrap() {
        let events = journal.events(&StreamId::Task(row.id), StreamSequence(0)).await.unwrap();
        let mut numbers = BTreeMap::new();
        let mut in_doubt = None;
        for recorded in &events {
            match &recorded.event {
                Event::ModelAnswered { message, .. } => {
                    for call in message.tool_calls() {
                        let Some(number) = call.arguments.get("n").and_then(Value::as_u64) else {
                            assert_eq!(call.server, "agent");
                            continue;
                        };
                        numbers.insert(call.id, number);
                        allowed.insert(number, 1);
                    }
                }
                Event::ReviewOpened { subject, .. } => in_doubt = subject.call_id(),
                Event::ReviewAnswered { verdict: ReviewVerdict::Retry, .. } => {
                    *allowed.get_mut(&numbers[&in_doubt.unwrap()]).unwrap() += 1;
                }
                _ => {}
            }
        }
    }
    for (number, times) in world.effects() {
        // Every effect has a call in the journal, committed before it.
        let most = allowed.get(&number).copied().unwrap_or(0);
        assert!(times <= most, "{number} was done {times} times, and {most} were allowed");
    }
}

pub(crate) async fn check(
    journal: &dyn Store,
    acknowledged: &[AcknowledgedCommit],
    known: &[TaskId],
) {
    let headers = journal.headers_after(JournalPosition(0), u32::MAX).await.unwrap();
    assert!(headers.iter().zip(1..).all(|(header, position)| header.position.0 == position));
    let mut sequences: BTreeMap<StreamId, u64> = BTreeMap::new();
    for header in &headers {
        let last = sequences.entry(header.stream.clone()).or_default();
        *last += 1;
        assert_eq!(header.sequence.0, *last, "a gap or a double in {:?}", header.stream);
    }
    for (stream, last, _) in acknowledged {
        assert!(sequences[stream] >= last.0, "an acknowledged event of {stream:?} was lost");
    }
    for id in known {
        assert!(journal.task_row(*id).await.unwrap().is_some(), "an acknowledged task was lost");
    }
    for row in journal.task_rows(&TaskFilter::default()).await.unwrap() {
        assert!(row.status.is_final(), "{} is {}", row.id, row.status);
        let events = journal.events(&StreamId::Task(row.id), StreamSequence(0)).await.unwrap();
        let ends = events.iter().filter(|recorded| is_end(&recorded.event)).count();
        assert_eq!(ends, 1, "a task ends once");
        let TaskHistory { state, rest, .. } = TaskHistory::load(journal, row.id).await.unwrap();
        let folded = state.following(rest).unwrap().snapshot();
        let total_usage = journal.task_tree(row.id).await.unwrap().usage.report();
        let folded = Task { total_usage, ..folded };
        assert_eq!(journal.task(&row).await.unwrap(), folded, "the rows say what the events say");
        if let Some(parent) = row.parent_task_id {
            check_part(journal, parent, row.id).await;
        }
    }
}

/// Checks that each sub-agent's task belongs to a call of its parent with one answer.
async fn check_part(journal: &dyn Store, parent: TaskId, part: TaskId) {
    let events = journal.events(&StreamId::Task(parent), StreamSequence(0)).await.unwrap();
    let answers = events.iter().filter(|recorded| {
        matches!(&recorded.event, Event::ToolChanged { call_id, change: ToolChange::Answer { .. } }
            if task_of_call(*call_id) == part)
    });
    assert_eq!(answers.count(), 1);
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::TaskCompleted { .. } | Event::TaskFailed { .. } | Event::TaskCancelled)
}

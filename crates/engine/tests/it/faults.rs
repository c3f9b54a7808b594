//! Crashes between commits and effects, in random histories.
//!
//! Each case runs a few processes on one journal, one after the other. Each but the last crashes
//! before or after a random commit. The last one finishes everything. The journal must then contain
//! every acknowledged commit.

use polity_engine::runtime::TaskHistory;
use polity_model::event::{JournalPosition, RaisedLimits};
use polity_model::session::{task_of_call, task_of_inherited_call};
use polity_model::task::retry_id;
use polity_store::{CommitDurability, SqliteStore, StoreAccess};
use polity_testkit::runtime::FakeModelTurn::{
    Answer, ContextFull, Hang, PermanentFailure, RequestTools, TransientFailure,
};
use proptest::prelude::*;

use crate::prelude::*;

/// An order to a process.
#[derive(Debug, Clone)]
pub(crate) enum ProcessOrder<C> {
    Create(C),
    Cancel(usize),
    /// Retries a task, if it has failed or was cancelled.
    Retry(usize),
    Pause(u64),
    /// Answers the review of a task.
    Decide(usize, ReviewVerdict),
}

#[derive(Debug, Clone)]
struct CrashingProcess {
    /// Orders that create tasks, for an agent with sub-agents if true.
    orders: Vec<ProcessOrder<bool>>,
    turns: Vec<FakeModelTurn>,
    tool_turns: Vec<FakeToolAct>,
    dies: (u32, CrashSide),
}

fn order() -> impl Strategy<Value = ProcessOrder<bool>> {
    prop_oneof![
        3 => Just(ProcessOrder::Create(false)),
        3 => Just(ProcessOrder::Create(true)),
        1 => (0usize..4).prop_map(ProcessOrder::Cancel),
        2 => (0usize..4).prop_map(ProcessOrder::Retry),
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

/// A crash before or after one of the first commits.
pub(crate) fn crash(commits: u32) -> impl Strategy<Value = (u32, CrashSide)> {
    (0..commits, prop_oneof![Just(CrashSide::Before), Just(CrashSide::After)])
}

fn process() -> impl Strategy<Value = CrashingProcess> {
    let orders = prop::collection::vec(order(), 1..6);
    let outage = (2usize..8).prop_map(|calls| vec![TransientFailure; calls]);
    let turns = prop_oneof![9 => turn().prop_map(|turn| vec![turn]), 1 => outage];
    let turns = prop::collection::vec(turns, 0..10).prop_map(|turns| turns.concat());
    let tool_turns = prop::collection::vec(tool_act(), 0..10);
    (orders, turns, tool_turns, crash(24)).prop_map(|(orders, turns, tool_turns, dies)| {
        CrashingProcess { orders, turns, tool_turns, dies }
    })
}

proptest! {
    #[test]
    fn random_crashes_lose_and_duplicate_no_event(
        processes in prop::collection::vec(process(), 1..4)
    ) {
        block_on_paused(history(&processes, Arc::new(MemoryStore::new())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: on_disk(), ..ProptestConfig::default() })]

    #[test]
    fn random_crashes_lose_and_duplicate_no_event_on_disk(processes in prop::collection::vec(process(), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polity.db");
        let store = SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Relaxed)).unwrap();
        block_on_paused(history(&processes, Arc::new(store)));
    }
}

/// Fewer cases, because the disk is slower than memory.
fn on_disk() -> u32 {
    (ProptestConfig::default().cases / 16).max(1)
}

/// Runs a future while Tokio's time is paused.
pub(crate) fn block_on_paused(future: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(future);
}

async fn history(processes: &[CrashingProcess], journal: Arc<dyn Store>) {
    let base = RuntimeFixture::on(journal);
    let world = Arc::new(ToolEffects::default());
    let mut acknowledged = Vec::new();
    let mut known = Vec::new();
    for (number, process) in (1..).zip(processes) {
        let store = Arc::new(CrashingStore::new(Arc::clone(&base.store), Some(process.dies)));
        run_process(&base, &store, &world, number, process, &mut known).await;
        store.crash();
        base.leases.end(instance_id(number));
        acknowledged.extend(store.acknowledged());
    }
    recover(&base, &world).await;
    retry_all(&base, &world, &mut known).await;
    recover(&base, &world).await;
    check(&*base.store, &acknowledged, &known).await;
    check_effects(&*base.store, &world).await;
}

/// Carries out the orders until the process crashes or has finished.
async fn run_process(
    base: &RuntimeFixture,
    store: &Arc<CrashingStore>,
    world: &Arc<ToolEffects>,
    number: u64,
    process: &CrashingProcess,
    known: &mut Vec<TaskId>,
) {
    let pause = Duration::from_millis(20);
    let models = Arc::new(FakeModels::new(process.turns.clone(), pause).on(world));
    let tools = Arc::new(FakeTools::new(world, process.tool_turns.clone(), pause));
    let runtime =
        Runtime::start(RuntimeDeps { tools, ..base.deps_on(store.clone(), number, models) });
    let runtime = runtime.await.unwrap();
    adopt_orphans(&runtime, store, &base.leases).await;
    let create = |for_boss: &bool| match for_boss {
        true => CreateTask::new(boss(), "a"),
        false => create_task("a"),
    };
    carry_out(&process.orders, create, &runtime, store, known).await;
    sleep(500).await;
}

/// Adopts all orphans. A crash during adoption is one of the tested cases.
pub(crate) async fn adopt_orphans(runtime: &Runtime, store: &CrashingStore, leases: &TestLeases) {
    let orphans = find_orphans(store, leases, Timestamp::UNIX_EPOCH).await.unwrap_or_default();
    for row in orphans.resumable {
        let _ = runtime.adopt(row.id).await;
    }
}

/// Carries out orders until the process crashes.
pub(crate) async fn carry_out<C>(
    orders: &[ProcessOrder<C>],
    create: impl Fn(&C) -> CreateTask,
    runtime: &Runtime,
    store: &Arc<CrashingStore>,
    known: &mut Vec<TaskId>,
) {
    for order in orders {
        match order {
            ProcessOrder::Create(what) => {
                if let Ok(handle) = runtime.create(create(what)).await {
                    known.push(handle.id);
                }
            }
            ProcessOrder::Cancel(index) => {
                if let Some(id) = known.get(*index) {
                    let _ = runtime.cancel(*id).await;
                }
            }
            ProcessOrder::Retry(index) => {
                if let Some(id) = known.get(*index)
                    && let Ok(handle) = runtime.retry(retry_request(*id)).await
                {
                    known.push(handle.id);
                }
            }
            ProcessOrder::Decide(index, verdict) => {
                if let Some(row) = waiting(&**store).await.into_iter().nth(*index) {
                    decide_and_resume(store, runtime, row, verdict.clone()).await;
                }
            }
            ProcessOrder::Pause(ms) => sleep(*ms).await,
        }
        if store.has_crashed() {
            return;
        }
    }
}

/// A retry with the same definitions and limits.
pub(crate) fn retry_request(task: TaskId) -> RetryRequest {
    RetryRequest { task, raised: RaisedLimits::default(), definitions: None, request: None }
}

/// Answers a review, if the answer fits, and adopts the root of its task.
pub(crate) async fn decide_and_resume(
    store: &Arc<CrashingStore>,
    runtime: &Runtime,
    row: TaskRow,
    verdict: ReviewVerdict,
) {
    if decide(&**store, runtime, row.id, verdict).await
        && let Ok(top) = active_root(&**store, row).await
    {
        let _ = runtime.adopt(top.id).await;
    }
}

async fn all_tasks(journal: &dyn Store) -> Vec<TaskRow> {
    journal.task_rows(&TaskFilter::default()).await.unwrap()
}

async fn events(journal: &dyn Store, id: TaskId) -> Vec<Event> {
    let recorded = journal.events(&StreamId::Task(id), StreamSequence(0)).await.unwrap();
    recorded.into_iter().map(|recorded| recorded.event).collect()
}

/// The tasks that await review.
pub(crate) async fn waiting(store: &dyn Store) -> Vec<TaskRow> {
    let waiting = TaskFilter { statuses: vec![TaskStatus::AwaitingHuman], ..TaskFilter::default() };
    store.task_rows(&waiting).await.unwrap_or_default()
}

/// Answers a review. An answer that does not fit the question is rejected.
pub(crate) async fn decide(
    store: &dyn Store,
    runtime: &Runtime,
    id: TaskId,
    verdict: ReviewVerdict,
) -> bool {
    let Ok(loaded) = load_task(store, id).await else { return false };
    let Some(review) = loaded.state.review() else { return false };
    runtime.answer(id, answer_review(review.checkpoint_id, verdict)).await.is_ok()
}

/// Adopts all orphans but those that are rejected as expected, and waits for them.
pub(crate) async fn finish_orphans(
    base: &RuntimeFixture,
    runtime: &Runtime,
    is_expected: fn(&CommandRejection) -> bool,
) {
    let mut handles = Vec::new();
    for id in base.orphan_ids().await {
        match runtime.adopt(id).await {
            Ok(handle) => handles.push(handle),
            Err(EngineError::Rejected(rejection)) if is_expected(&rejection) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for handle in &mut handles {
        let Ok(outcome) = tokio::time::timeout(Duration::from_hours(24), handle.wait()).await
        else {
            panic!("{} is never left: {}", handle.id, describe_tasks(&*base.store).await);
        };
        outcome.unwrap();
    }
}

/// True if the parent of the sub-agent awaits a review itself, or has ended.
pub(crate) fn waits_or_has_ended(rejection: &CommandRejection) -> bool {
    matches!(rejection, CommandRejection::AwaitingHuman { .. } | CommandRejection::Finished { .. })
}

/// Finishes all tasks in a process without crashes, with answers to every review.
async fn recover(base: &RuntimeFixture, world: &Arc<ToolEffects>) {
    let pause = Duration::from_millis(1);
    let models = Arc::new(FakeModels::new([], pause).on(world));
    let tools = Arc::new(FakeTools::new(world, [], pause));
    let runtime = Runtime::start(RuntimeDeps { tools, ..base.deps(99, models) }).await.unwrap();
    for _ in 0..20 {
        finish_orphans(base, &runtime, waits_or_has_ended).await;
        for row in waiting(&*base.store).await {
            assert_eq!(row.owner, None, "a task that waits belongs to no process");
            let result = "done by hand".to_owned();
            for verdict in [ReviewVerdict::SkipWith { result }, ReviewVerdict::Approve] {
                decide(&*base.store, &runtime, row.id, verdict).await;
            }
        }
    }
}

/// Retries each task that failed or was cancelled, until it is completed or the model rejects it.
async fn retry_all(base: &RuntimeFixture, world: &Arc<ToolEffects>, known: &mut Vec<TaskId>) {
    let pause = Duration::from_millis(1);
    let models = Arc::new(FakeModels::new([], pause).on(world));
    let tools = Arc::new(FakeTools::new(world, [], pause));
    let runtime = Runtime::start(RuntimeDeps { tools, ..base.deps(98, models) }).await.unwrap();
    for row in all_tasks(&*base.store).await {
        let is_retryable = [TaskStatus::Failed, TaskStatus::Cancelled].contains(&row.status);
        let retried = runtime.retry(retry_request(row.id)).await;
        match retried {
            Ok(mut handle) => {
                assert!(is_retryable && row.parent_task_id.is_none());
                known.push(handle.id);
                // It answers, or waits for a person.
                let status = handle.wait().await.unwrap();
                let fine = [TaskStatus::Completed, TaskStatus::AwaitingHuman];
                assert!(fine.contains(&status), "{}", describe_tasks(&*base.store).await);
            }
            Err(EngineError::Retry(_)) => {
                let is_retried = base.store.task_row(retry_id(row.id)).await.unwrap().is_some();
                assert!(!is_retryable || row.parent_task_id.is_some() || is_retried);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Every task with its last events, for failed cases.
async fn describe_tasks(journal: &dyn Store) -> String {
    let mut text = String::new();
    for TaskRow { id, parent_task_id: parent, status, .. } in all_tasks(journal).await {
        let last: Vec<_> = events(journal, id).await.into_iter().rev().take(8).collect();
        write!(text, "\n{id} of {parent:?} is {status}, newest first: {last:?}").unwrap();
    }
    text
}

/// Checks that unrepeatable calls were made at most once, plus once per retry verdict.
async fn check_effects(journal: &dyn Store, world: &ToolEffects) {
    let mut allowed: BTreeMap<u64, u32> = BTreeMap::new();
    // A retry has calls of the task that it continues.
    let mut numbers = BTreeMap::new();
    let mut tasks = all_tasks(journal).await;
    tasks.sort_by_key(|row| row.created_position);
    for row in tasks {
        let mut in_doubt = None;
        for event in events(journal, row.id).await {
            match event {
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
    for row in all_tasks(journal).await {
        assert!(row.status.is_final(), "{} is {}", row.id, row.status);
        let ends = events(journal, row.id).await.into_iter().filter(is_end).count();
        assert_eq!(ends, 1, "a task ends once");
        let TaskHistory { state, rest, .. } = TaskHistory::load(journal, row.id).await.unwrap();
        let folded = state.following(rest).unwrap().snapshot();
        let total_usage = journal.task_tree(row.id).await.unwrap().usage.report();
        let folded = Task { total_usage, ..folded };
        assert_eq!(journal.task(&row).await.unwrap(), folded, "the rows agree with the events");
        if let Some(parent) = row.parent_task_id {
            check_part(journal, parent, row.id).await;
        }
    }
}

/// Checks that each sub-agent's task belongs to a call of its parent with one answer.
async fn check_part(journal: &dyn Store, parent: TaskId, part: TaskId) {
    let is_answer = |event: &Event| {
        matches!(event, Event::ToolChanged { call_id, change: ToolChange::Answer { .. } }
            if task_of_call(*call_id) == part || task_of_inherited_call(parent, *call_id) == part)
    };
    assert_eq!(events(journal, parent).await.into_iter().filter(is_answer).count(), 1);
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::TaskCompleted { .. } | Event::TaskFailed { .. } | Event::TaskCancelled)
}

//! Crashes at every point between commit and effect, in random histories.
//!
//! Each case is a few processes, one after the other, on one journal. Every process but the last
//! dies at a commit of the case's choosing, before or after it reached the disk. The last one
//! finishes everything. Then the journal is held against what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polity_engine::closure::Closure;
use polity_engine::runtime::{Runtime, orphans};
use polity_engine::state::TaskState;
use polity_model::event::{Event, Position, Sequence, StreamId};
use polity_model::ids::TaskId;
use polity_store::{Access, Durability, MemoryStore, SqliteStore, Store, TaskFilter};
use polity_testkit::faults::{Acknowledged, MortalStore, Side};
use polity_testkit::lives::instance_id;
use polity_testkit::runtime::{Act, ActingModels, Register, create_task, parts};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Order {
    Create,
    Cancel(usize),
    Pause(u64),
}

#[derive(Debug, Clone)]
struct Process {
    orders: Vec<Order>,
    acts: Vec<Act>,
    dies: (u32, Side),
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        3 => Just(Order::Create),
        1 => (0usize..4).prop_map(Order::Cancel),
        1 => (0u64..3000).prop_map(Order::Pause),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Answer("yes")),
        2 => Just(Act::FailForNow),
        1 => Just(Act::FailForGood),
        2 => Just(Act::AskForTool),
        1 => Just(Act::Hang),
    ]
}

fn process() -> impl Strategy<Value = Process> {
    let side = prop_oneof![Just(Side::Before), Just(Side::After)];
    (prop::collection::vec(order(), 1..6), prop::collection::vec(act(), 0..10), 0u32..24, side)
        .prop_map(|(orders, acts, commits, side)| Process { orders, acts, dies: (commits, side) })
}

proptest! {
    #[test]
    fn no_event_is_lost_or_doubled_whenever_a_process_dies(
        processes in prop::collection::vec(process(), 1..4)
    ) {
        run(&processes, Arc::new(MemoryStore::new()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: on_disk(), ..ProptestConfig::default() })]

    #[test]
    fn nor_on_disk(processes in prop::collection::vec(process(), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polity.db");
        let store = SqliteStore::open(&path, Access::ReadWrite(Durability::Relaxed)).unwrap();
        run(&processes, Arc::new(store));
    }
}

/// Each case on disk takes as long as many in memory, so there are fewer.
fn on_disk() -> u32 {
    (ProptestConfig::default().cases / 16).max(1)
}

fn run(processes: &[Process], journal: Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(history(processes, journal));
}

async fn history(processes: &[Process], journal: Arc<dyn Store>) {
    let owners = Arc::new(Register::default());
    let mut acknowledged = Vec::new();
    let mut known = Vec::new();
    for (number, process) in (1..).zip(processes) {
        let store = Arc::new(MortalStore::new(Arc::clone(&journal), Some(process.dies)));
        live(&store, &owners, number, process, &mut known).await;
        store.kill();
        owners.died(instance_id(number));
        acknowledged.extend(store.acknowledged());
    }
    recover(&journal, &owners).await;
    check(&*journal, &acknowledged, &known);
}

/// Carries out the orders until the process dies or has nothing left to do.
async fn live(
    store: &Arc<MortalStore>,
    owners: &Arc<Register>,
    number: u64,
    process: &Process,
    known: &mut Vec<TaskId>,
) {
    let models = Arc::new(ActingModels::new(process.acts.clone(), Duration::from_millis(20)));
    let shared: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
    let runtime =
        Runtime::start(parts(shared, models, owners, instance_id(number), number)).unwrap();
    for row in orphans(&**store, &**owners).unwrap_or_default() {
        // A process that dies while it adopts is what this is about.
        let _ = runtime.adopt(row.id).await;
    }
    for order in &process.orders {
        match order {
            Order::Create => {
                if let Ok(handle) = runtime.create(create_task("a")).await {
                    known.push(handle.id);
                }
            }
            Order::Cancel(index) => {
                if let Some(id) = known.get(*index) {
                    let _ = runtime.cancel(*id).await;
                }
            }
            Order::Pause(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        }
        if store.is_dead() {
            return;
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A process that does not die finishes what is left.
async fn recover(journal: &Arc<dyn Store>, owners: &Arc<Register>) {
    let models = Arc::new(ActingModels::new([], Duration::from_millis(1)));
    let runtime =
        Runtime::start(parts(Arc::clone(journal), models, owners, instance_id(99), 99)).unwrap();
    let mut handles = Vec::new();
    for row in orphans(&**journal, &**owners).unwrap() {
        handles.push(runtime.adopt(row.id).await.unwrap());
    }
    for handle in &mut handles {
        assert!(handle.wait().await.unwrap().is_final());
    }
}

fn check(journal: &dyn Store, acknowledged: &[Acknowledged], known: &[TaskId]) {
    let headers = journal.headers_after(Position(0), u32::MAX).unwrap();
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
        assert!(journal.task_row(*id).unwrap().is_some(), "an acknowledged task was lost");
    }
    for row in journal.task_rows(&TaskFilter::default()).unwrap() {
        assert!(row.status.is_final(), "{} is {}", row.id, row.status);
        let events = journal.events(&StreamId::Task(row.id), Sequence(0)).unwrap();
        let ends = events.iter().filter(|recorded| is_end(&recorded.event)).count();
        assert_eq!(ends, 1, "a task ends once");
        let Event::TaskCreated(created) = &events[0].event else { panic!("{:?}", events[0]) };
        let closure = Closure::load(journal, &created.pins).unwrap();
        let folded = TaskState::load(&closure, events).unwrap().snapshot();
        assert_eq!(journal.task(&row).unwrap(), folded, "the rows say what the events say");
    }
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::TaskCompleted { .. } | Event::TaskFailed { .. } | Event::TaskCancelled)
}

//! Two processes that decide on one schedule, in random histories with kills between a record and
//! its task, and with clocks that jump. Each due time must have one decision and at most one task.

use std::sync::atomic::{AtomicI64, Ordering};

use polity_definition::{DueTimes, ScheduleDefinition};
use polity_engine::clock::Clock;
use polity_engine::commands::TaskOrigin;
use polity_engine::runtime::{ScheduleRecord, ScheduleSubject, decide_schedule};
use polity_engine::schedule::{DueRange, ScheduleCommand};
use polity_model::event::{ScheduleChange, TickOutcome};
use polity_store::CommitError;
use proptest::prelude::*;

use crate::faults::block_on_paused;
use crate::prelude::*;

/// The begin of each history.
const START: i64 = 1_767_261_600;

/// A clock that tests set. The machine's processes share it.
struct SettableClock(AtomicI64);

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

#[derive(Debug, Clone)]
enum ScheduleStep {
    /// The clock moves, forward or back.
    Move(i64),
    /// A process decides on the state that it knows, and dies before it creates the tasks if true.
    Decide(usize, bool),
    /// A process reads the records and creates the tasks that are missing.
    Recover(usize),
    /// A process ends the oldest run.
    End(usize),
}

fn step() -> impl Strategy<Value = ScheduleStep> {
    prop_oneof![
        4 => (0i64..200).prop_map(ScheduleStep::Move),
        1 => (-500i64..1500).prop_map(ScheduleStep::Move),
        6 => (0usize..2, any::<bool>()).prop_map(|(who, dies)| ScheduleStep::Decide(who, dies)),
        2 => (0usize..2).prop_map(ScheduleStep::Recover),
        2 => (0usize..2).prop_map(ScheduleStep::End),
    ]
}

fn policies() -> impl Strategy<Value = (&'static str, &'static str, u32)> {
    let overlap = prop::sample::select(vec!["skip", "queue_one", "queue_all", "replace", "allow"]);
    let catch_up = prop::sample::select(vec!["none", "last", "all"]);
    (overlap, catch_up, prop::sample::select(vec![0u32, 40]))
}

/// A process of the history: what it knows, and the runtime that creates its tasks.
struct RacingProcess {
    record: ScheduleRecord,
    runtime: Runtime,
}

struct RacingHistory {
    fixture: RuntimeFixture,
    clock: SettableClock,
    definition: ScheduleDefinition,
    times: DueTimes,
    processes: Vec<RacingProcess>,
}

impl RacingHistory {
    async fn new((overlap, catch_up, jitter): (&str, &str, u32)) -> Self {
        let definition = ScheduleDefinition::from_canonical(&format!(
            r#"{{"name": "often", "agent": "greeter", "cron_expression": "* * * * *",
                "overlap": "{overlap}", "catch_up": "{catch_up}", "jitter_seconds": {jitter}}}"#
        ))
        .unwrap();
        let fixture = RuntimeFixture::new();
        let mut processes = Vec::new();
        for number in [1, 2] {
            let models = Arc::new(FakeModels::new([], Duration::ZERO));
            let runtime = Runtime::start(fixture.deps(number, models)).await.unwrap();
            processes.push(RacingProcess { record: ScheduleRecord::default(), runtime });
        }
        let clock = SettableClock(AtomicI64::new(START));
        let times = definition.due_times();
        Self { fixture, clock, definition, times, processes }
    }

    async fn decide(&mut self, who: usize, command: &ScheduleCommand) -> Vec<ScheduleChange> {
        let (definition, times) = (&self.definition, &self.times);
        let subject = ScheduleSubject { definition, times, fault: None };
        let record = &mut self.processes[who].record;
        decide_schedule(&*self.fixture.store, &self.clock, record, subject, command).await.unwrap()
    }

    async fn create(&self, who: usize, due: Timestamp, id: TaskId) {
        let schedule = self.definition.name.clone();
        let origin = TaskOrigin::Schedule { id, schedule, due };
        let create = CreateTask { origin, ..create_task("hey") };
        match self.processes[who].runtime.create(create).await {
            Ok(_) | Err(EngineError::Commit(CommitError::Conflict { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn recover(&mut self, who: usize) {
        let record = ScheduleRecord::load(&*self.fixture.store, &self.definition.name).await;
        self.processes[who].record = record.unwrap();
        for run in self.processes[who].record.state.running.clone() {
            if self.fixture.store.task_row(run.task_id).wait().unwrap().is_none() {
                self.create(who, run.due, run.task_id).await;
            }
        }
    }

    async fn perform(&mut self, step: ScheduleStep) {
        match step {
            ScheduleStep::Move(seconds) => {
                self.clock.0.fetch_add(seconds, Ordering::Relaxed);
            }
            ScheduleStep::Decide(who, dies) => {
                for change in self.decide(who, &ScheduleCommand::Tick).await {
                    let ScheduleChange::Tick { due, outcome, .. } = change else { continue };
                    if let Some(task_id) = outcome.task_id().filter(|_| !dies) {
                        self.create(who, due, task_id).await;
                    }
                }
            }
            ScheduleStep::Recover(who) => self.recover(who).await,
            ScheduleStep::End(who) => {
                self.recover(who).await;
                if let Some(run) = self.processes[who].record.state.running.first() {
                    let (task_id, completed, cancelled) = (run.task_id, true, false);
                    let end = ScheduleCommand::End { task_id, completed, cancelled };
                    self.decide(who, &end).await;
                }
            }
        }
    }

    /// Compares the records with the due times of the calendar, and the tasks with the records.
    fn check(&self) {
        let stream = StreamId::Schedule(self.definition.name.clone());
        let events = self.fixture.store.events(&stream, StreamSequence(0)).wait().unwrap();
        let mut decided: BTreeMap<Timestamp, u32> = BTreeMap::new();
        let mut waiting: BTreeSet<Timestamp> = BTreeSet::new();
        let mut started = BTreeSet::new();
        let mut begin = None;
        for recorded in events {
            let Event::ScheduleChanged { change } = recorded.event else { panic!() };
            match change {
                ScheduleChange::Register { .. } => begin = Some(recorded.at),
                ScheduleChange::Tick { due, outcome, .. } => {
                    // A due time that waited has a second record, for its start.
                    if !waiting.remove(&due) {
                        *decided.entry(due).or_default() += 1;
                    }
                    match outcome {
                        TickOutcome::Queued => assert!(waiting.insert(due)),
                        TickOutcome::Started { task_id, .. } => assert!(started.insert(task_id)),
                        TickOutcome::Skipped { .. } | TickOutcome::Missed { .. } => {}
                        TickOutcome::FailedToStart { .. } => panic!("{due} failed"),
                    }
                }
                ScheduleChange::Pass { first, last, count, is_more, .. } => {
                    assert!(!is_more);
                    let all: Vec<_> =
                        std::iter::once(first).chain(self.times.due_between(first, last)).collect();
                    assert_eq!(all.len() as u64, count);
                    for due in all {
                        *decided.entry(due).or_default() += 1;
                    }
                }
                ScheduleChange::End { .. } | ScheduleChange::Snapshot { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let state = &self.processes[0].record.state;
        let expected = DueRange::between(&self.times, begin.unwrap(), state.decided_until);
        assert_eq!(decided.len() as u64, expected.map_or(0, |range| range.count));
        assert!(decided.values().all(|count| *count == 1), "{decided:?}");
        let queued: BTreeSet<_> = state.queued.iter().map(|tick| tick.due).collect();
        assert_eq!(waiting, queued);
        let tasks: BTreeSet<_> = self.fixture.all_tasks().iter().map(|row| row.id).collect();
        assert_eq!(tasks, started, "each record of a start has its task");
    }
}

/// Fewer cases, because each has two runtimes.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 4).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn each_due_time_has_one_record_and_at_most_one_task(
        policies in policies(),
        steps in prop::collection::vec(step(), 1..30),
    ) {
        block_on_paused(async move {
            let mut history = RacingHistory::new(policies).await;
            history.decide(0, &ScheduleCommand::Register).await;
            for step in steps {
                history.perform(step).await;
            }
            for who in [1, 0] {
                history.perform(ScheduleStep::Decide(who, false)).await;
                history.recover(who).await;
            }
            history.check();
        });
    }
}

#[test]
fn long_stream_is_read_from_its_newest_snapshot() {
    block_on_paused(async {
        let mut history = RacingHistory::new(("allow", "none", 0)).await;
        history.decide(0, &ScheduleCommand::Register).await;
        for _ in 0..350 {
            history.clock.0.fetch_add(60, Ordering::Relaxed);
            history.decide(0, &ScheduleCommand::Tick).await;
        }
        let store = CrashingStore::new(Arc::clone(&history.fixture.store), None);
        let loaded = ScheduleRecord::load(&store, &history.definition.name).await.unwrap();
        assert_eq!(loaded, history.processes[0].record);
        assert_eq!(loaded.state.running.len(), 350);
        assert_eq!(store.whole_reads(), 0);
    });
}

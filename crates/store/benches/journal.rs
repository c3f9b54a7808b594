//! Durable commits per second against the bare disk, and the cost of reading one task's trace among
//! many others.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_model::event::{Event, ExecutionChange, StreamId, StreamSequence};
use polity_model::trace::TraceLog;
use polity_store::{CommitDurability, SqliteStore, Store, StoreAccess};
use polity_testkit::bench::{BareDisk, figure};
use polity_testkit::task_fixtures::{
    answered, changed, claimed, commit, created, ended_well, execution_id, execution_started,
    instance_id, task_id,
};

fn main() {
    let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    // On the project's disk, not on a memory disk.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    commits(folder.path(), if quick { 1 } else { 8 });
    traces(folder.path(), if quick { 2_000 } else { 100_000 });
}

/// Commit rates, measured in turns so that a load peak of the machine affects all of them.
fn commits(folder: &Path, rounds: u32) {
    const SLICE: Duration = Duration::from_millis(500);
    let path = folder.join("commits.db");
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Full)).unwrap());
    let mut bare = BareDisk::new(&folder.join("bare"), 4096);
    let mut tasks = CommitLoad { store: &store, next: 0 };
    let mut sums = [0.0; 4];
    for _ in 0..rounds {
        sums[0] += bare.rate(SLICE);
        sums[1] += tasks.rate(1, SLICE);
        sums[2] += tasks.rate(64, SLICE);
        sums[3] += tasks.rate(256, SLICE);
    }
    let [bare, one, many, most] = sums.map(|sum| sum / f64::from(rounds));
    for (what, rate, least) in [
        ("durable commits, one at a time", one, 0.7),
        ("durable commits, 64 tasks at once", many, 5.0),
        ("durable commits, 256 tasks at once", most, 8.0),
    ] {
        let ratio = rate / bare;
        figure(
            what,
            &format!("{rate:.0}/s, {ratio:.2} times the bare disk ({bare:.0}/s)"),
            &format!("≥ {least} times 4 kB appends with a sync each"),
            ratio >= least,
        );
    }
}

struct CommitLoad<'a> {
    store: &'a Arc<dyn Store>,
    next: u64,
}

impl CommitLoad<'_> {
    /// Each task commits messages one by one, waiting until each is durable.
    fn rate(&mut self, at_once: u64, slice: Duration) -> f64 {
        let first = self.next;
        self.next += at_once;
        for number in first..first + at_once {
            start(&**self.store, number);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let began = Instant::now();
        let counts = runtime.block_on(async {
            let mut workers = Vec::new();
            for number in first..first + at_once {
                let store = Arc::clone(self.store);
                workers.push(tokio::spawn(async move {
                    let mut count = 0u32;
                    while began.elapsed() < slice {
                        let next = commit(
                            task_id(number),
                            6 + u64::from(count),
                            Some(1),
                            vec![answered(&"x".repeat(300))],
                        );
                        store.commit(next).await.unwrap();
                        count += 1;
                    }
                    count
                }));
            }
            let mut counts = 0;
            for worker in workers {
                counts += worker.await.unwrap();
            }
            counts
        });
        f64::from(counts) / began.elapsed().as_secs_f64()
    }
}

fn start(store: &dyn Store, number: u64) {
    let execution = execution_id(number);
    let events = vec![
        created("a task of the bench"),
        claimed(instance_id(1), 1),
        Event::TaskStarted,
        execution_started(execution),
        changed(execution, ExecutionChange::RUN),
        Event::ModelCalled { iteration: 1, checkpoint: None },
    ];
    store.commit(commit(task_id(number), 0, Some(1), events)).wait().unwrap();
}

/// Reading a trace costs as much as its task, whatever the size of the database.
fn traces(folder: &Path, others: u64) {
    let path = folder.join("traces.db");
    let store =
        SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Relaxed)).unwrap();
    let among = |from: u64, to: u64| {
        let tickets: Vec<_> = (from..to)
            .map(|number| {
                let execution = execution_id(number);
                let mut events = vec![
                    created("one of many"),
                    claimed(instance_id(1), 1),
                    Event::TaskStarted,
                    execution_started(execution),
                    changed(execution, ExecutionChange::RUN),
                    Event::ModelCalled { iteration: 1, checkpoint: None },
                ];
                events.extend(ended_well(execution, "done"));
                store.commit(commit(task_id(number), 0, Some(1), events))
            })
            .collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        trace_time(&store, from)
    };
    let few = among(0, 10);
    let many = among(10, others);
    let ratio = many.as_secs_f64() / few.as_secs_f64();
    figure(
        "reading one task's trace",
        &format!(
            "{:.0} µs among 10 tasks, {:.0} µs among {others} ({ratio:.2} times)",
            few.as_secs_f64() * 1e6,
            many.as_secs_f64() * 1e6
        ),
        "does not grow with the database (≤ 2 times)",
        ratio <= 2.0,
    );
}

fn trace_time(store: &dyn Store, number: u64) -> Duration {
    let id = task_id(number);
    let mut times: Vec<Duration> = (0..201)
        .map(|_| {
            let began = Instant::now();
            let events = store.events(&StreamId::Task(id), StreamSequence(0)).wait().unwrap();
            let trace = TraceLog::from_events(id, &events).unwrap();
            assert_eq!(trace.steps.len(), 4);
            began.elapsed()
        })
        .collect();
    times.sort();
    times[100]
}

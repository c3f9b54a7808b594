//! The cost of many schedules: reading their definitions and streams, and the next due time.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench reads the environment")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use jiff::Timestamp;
use polity_definition::ScheduleDefinition;
use polity_engine::clock::SystemClock;
use polity_engine::runtime::{ScheduleRecord, ScheduleSubject, decide_schedule};
use polity_engine::schedule::{ScheduleCommand, next_wake};
use polity_store::{MemoryStore, Store};
use polity_testkit::bench::{cpu, figure};

/// The most CPU seconds from canonical definitions to an ordered queue.
const LOAD_SECONDS_MAX: f64 = 2.0;

/// The most CPU microseconds for one next due time.
const NEXT_MICROSECONDS_MAX: f64 = 10.0;

/// Expressions and zones in turn, so that no case dominates.
const TIMES: [(&str, &str); 5] = [
    ("*/5 * * * *", "UTC"),
    ("0 9 * * 1-5", "Europe/Berlin"),
    ("30 2 * * *", "America/New_York"),
    ("@hourly", "Asia/Kolkata"),
    ("15 10 1 * *", "Australia/Sydney"),
];

fn main() {
    let is_quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    let count = if is_quick { 1_000 } else { 100_000 };
    let texts: Vec<String> = (0..count)
        .map(|number| {
            let (cron, zone) = TIMES[number % TIMES.len()];
            format!(
                r#"{{"name": "s{number}", "agent": "greeter", "cron_expression": "{cron}",
                    "time_zone": "{zone}"}}"#
            )
        })
        .collect();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // The streams exist already, as at the second start of a server.
    runtime.block_on(async {
        for text in &texts {
            let definition = ScheduleDefinition::from_canonical(text).unwrap();
            let times = definition.due_times();
            let subject = ScheduleSubject { definition: &definition, times: &times, fault: None };
            let mut record = ScheduleRecord::default();
            let register = ScheduleCommand::Register;
            decide_schedule(&*store, &SystemClock, &mut record, subject, &register).await.unwrap();
        }
    });
    let began = cpu();
    let queue = runtime.block_on(async {
        let mut queue = BTreeSet::new();
        for text in &texts {
            let definition = ScheduleDefinition::from_canonical(text).unwrap();
            let times = definition.due_times();
            let record = ScheduleRecord::load(&*store, &definition.name).await.unwrap();
            let wake = next_wake(&record.state, &definition, &times).unwrap();
            queue.insert((wake, definition.name.clone()));
        }
        queue
    });
    let seconds = cpu().saturating_sub(began).as_secs_f64();
    assert_eq!(queue.len(), count);
    figure(
        &format!("{count} schedules read, with their streams, into a queue"),
        &format!("{seconds:.2} CPU-seconds"),
        &format!("≤ {LOAD_SECONDS_MAX} CPU-seconds"),
        seconds <= LOAD_SECONDS_MAX,
    );
    let times: Vec<_> = texts
        .iter()
        .take(1_000)
        .map(|text| ScheduleDefinition::from_canonical(text).unwrap().due_times())
        .collect();
    let after = Timestamp::from_second(1_767_261_600).unwrap();
    let rounds: u32 = if is_quick { 1 } else { 20 };
    let began = cpu();
    for _ in 0..rounds {
        for times in &times {
            black_box(times.next_due(black_box(after)));
        }
    }
    let took = cpu().saturating_sub(began).as_secs_f64();
    let number = f64::from(rounds) * 1_000.0;
    let microseconds = took * 1e6 / number;
    figure(
        "the next due time of a schedule",
        &format!("{microseconds:.1} CPU-microseconds"),
        &format!("≤ {NEXT_MICROSECONDS_MAX}"),
        microseconds <= NEXT_MICROSECONDS_MAX,
    );
}

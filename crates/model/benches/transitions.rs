//! The time and allocations of one transition of a running task.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(unsafe_code, reason = "counting allocations needs an allocator of our own")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use polity_model::event::RaisedLimits;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskTransition;
use polity_model::task::{TaskExecution, TaskOrder};
use polity_model::usage::Usage;
use serde_json::{Map, Value, json};

struct AllocationCounter;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;

fn task() -> TaskExecution {
    TaskExecution::new(Arc::new(TaskOrder {
        id: TaskId::from_random_bytes([1; 16]),
        description: "Write a report about the weather in Oslo".into(),
        assigned_agent: "writer".parse().unwrap(),
        parameters: Map::from_iter([("topic".to_owned(), Value::from("rain"))]),
        class: Some("debug".into()),
        retention_days: Some(3),
        parent_task_id: None,
        parent_node: None,
        map_item: None,
        budget: None,
        forked_from: None,
        retry_of: None,
        doubted_run: None,
        scheduled: None,
        raised: RaisedLimits::default(),
        working_directory: None,
        has_private: false,
        request: None,
        created_at: Timestamp::UNIX_EPOCH,
    }))
}

fn main() {
    let rounds: u32 =
        if std::env::var_os("POLITY_BENCH_QUICK").is_some() { 100_000 } else { 20_000_000 };
    let mut run = task();
    run.advance(TaskTransition::Start, Timestamp::UNIX_EPOCH).unwrap();
    let used = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
    let at = black_box(Timestamp::UNIX_EPOCH);

    let allocations_before = ALLOCATIONS.load(Ordering::Relaxed);
    let began = Instant::now();
    for _ in 0..rounds {
        // Two transitions and one charge, as in a turn with a review.
        let run = black_box(&mut run);
        run.advance(black_box(TaskTransition::Ask), at).unwrap();
        run.advance(black_box(TaskTransition::Resume), at).unwrap();
        run.add_usage(used).unwrap();
    }
    let ns = began.elapsed().as_secs_f64() * 1e9 / f64::from(rounds) / 2.0;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations_before;

    let refused_before = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(black_box(&mut run).advance(TaskTransition::Start, at).is_err());
    let allocations = allocations + ALLOCATIONS.load(Ordering::Relaxed) - refused_before;

    let copied_ns = copy_and_validate(&run, rounds / 1000 + 1);
    println!(
        "{}",
        json!({
            "what": "`TaskExecution` transition",
            "measured": format!(
                "{ns:.1} ns, {allocations} allocations in {} transitions; {:.0} times faster than \
                 dumping, changing and reading back the snapshot ({:.1} µs)",
                u64::from(rounds) * 2, copied_ns / ns, copied_ns / 1e3
            ),
            "target": "≤ 20 ns, no allocation",
            "kept": ns <= 20.0 && allocations == 0,
        })
    );
}

/// The alternative, for comparison: dumps the snapshot, changes it and reads it back with
/// validation.
fn copy_and_validate(run: &TaskExecution, rounds: u32) -> f64 {
    let mut text = serde_json::to_string(&run.snapshot()).unwrap();
    let began = Instant::now();
    for round in 0..rounds {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        value["status"] = json!(if round % 2 == 0 { "running" } else { "awaiting_human" });
        let _: TaskId = value["id"].as_str().unwrap().parse().unwrap();
        let _: Timestamp = value["created_at"].as_str().unwrap().parse().unwrap();
        text = black_box(value.to_string());
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}

//! Benchmark of one agent firing on a chart.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use polity_statechart::{Chart, ChartInstance, FireContext};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// The target, in millions of transitions per CPU-second.
const LEAST: f64 = 100.0;

/// The rate of `XState` 5.33 with the same ring of states and a guard, in transitions per
/// CPU-second. Measured in November 2026 on one core.
const XSTATE: f64 = 162e3;

fn main() {
    let fast_guard = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    let fires = if fast_guard { 100_000 } else { 20_000_000 };
    let rounds = if fast_guard { 1 } else { 5 };
    let chart = Arc::new(Chart::from_text(include_str!("ring.yaml")).unwrap());
    let next = chart.trigger("next").unwrap();
    let context = FireContext::new(&chart);
    let time = || {
        let mut agent = ChartInstance::new(Arc::clone(&chart));
        let began = cpu();
        for _ in 0..fires {
            black_box(agent.fire(black_box(next), &context));
        }
        let took = cpu().saturating_sub(began);
        assert_eq!(agent.history().len(), 50, "the history is full");
        took
    };
    let best = (0..rounds).map(|_| time()).min().unwrap();
    let rate = f64::from(fires) / best.as_secs_f64() / 1e6;
    let ratio = rate * 1e6 / XSTATE;
    let figure = json!({
        "what": "one agent fires, with a guard and its history",
        "measured": format!("{rate:.0} M transitions per CPU-second, {ratio:.0} times XState"),
        "target": format!("≥ {LEAST:.0} M"),
        "kept": rate >= LEAST,
    });
    println!("{figure}");
}

fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

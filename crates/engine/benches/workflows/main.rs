//! The cost of durable workflows: checkpointed steps against the bare disk and LangGraph, a
//! long conversation on the disk, a map of many items, and many tasks that wait for a person.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench starts what it measures")]

mod fixture;
mod growth;
mod langgraph;
mod map;
mod steps;
mod waiting;

use std::path::Path;

fn main() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|role| role == waiting::IDLE) {
        return waiting::idle(Path::new(&args.next().unwrap()));
    }
    let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    steps::measure(quick);
    growth::measure();
    map::measure(quick);
    waiting::measure(if quick { 500 } else { 10_000 });
}

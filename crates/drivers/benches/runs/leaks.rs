//! Leaks after many runs: descriptors, processes, memory.

use std::fs;

use futures_util::{StreamExt, stream};
use polity_testkit::bench::figure;

use crate::fixture::{RunFixture, agent};
use crate::measure::{megabytes, own_memory};

const AT_ONCE: usize = 8;
const PLACES: u32 = 64;

/// The maximum memory growth; the allocator keeps some freed memory.
const GROWTH_MAX: u64 = 16_000_000;

pub(crate) async fn measure(quick: bool) {
    let runs: u64 = if quick { 40 } else { 20_000 };
    let fixture = RunFixture::new();
    let agent = agent("/bin/true", &[]);
    let some = |from: u64, count: u64| {
        let numbers = stream::iter(from..from + count);
        numbers
            .map(|number| fixture.run(&agent, number, PLACES))
            .buffer_unordered(AT_ONCE)
            .for_each(|outcome| async move { assert!(outcome.report.exit.is_some()) })
    };
    // Warms up caches first.
    some(0, AT_ONCE as u64).await;
    let (open, memory) = (descriptors(), own_memory());
    some(AT_ONCE as u64, runs).await;
    let (open, children) = (descriptors().saturating_sub(open), children());
    let growth = own_memory().saturating_sub(memory);
    figure(
        &format!("{runs} runs, left behind"),
        &format!("{open} descriptors, {children} processes, {:.0} MB", megabytes(growth)),
        &format!("none, none, ≤ {:.0} MB", megabytes(GROWTH_MAX)),
        open == 0 && children == 0 && growth <= GROWTH_MAX,
    );
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The number of children of this process, including unreaped ones.
fn children() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let of = |thread: std::io::Result<fs::DirEntry>| {
        let children = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        Some(children.split_whitespace().count())
    };
    threads.filter_map(of).sum()
}

//! A thousand sleeping agents at once.

use std::fs;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use polity_testkit::bench::figure;

use crate::fixture::{RunFixture, agent};
use crate::measure::{megabytes, memory, own_memory};

const OVERHEAD_MAX: Duration = Duration::from_secs(2);
const OWN_BYTES_MAX: u64 = 60_000_000;
const SHIM_BYTES_MAX: u64 = 1_000_000;

const SLEEP: Duration = Duration::from_secs(1);

pub(crate) async fn measure(quick: bool) {
    let count: u32 = if quick { 20 } else { 1000 };
    let fixture = RunFixture::new();
    let agent = agent("sleep", &["1"]);
    let begun = Instant::now();
    let runs = join_all((0..count).map(|number| fixture.run(&agent, number.into(), count)));
    let look = async {
        // Shortly before the first exit, all should be running.
        tokio::time::sleep(SLEEP * 9 / 10).await;
        (own_memory(), shims())
    };
    let (outcomes, (own, shims)) = tokio::join!(runs, look);
    let overhead = begun.elapsed().saturating_sub(SLEEP);
    assert!(outcomes.iter().all(|outcome| outcome.report.exit.is_some()));
    let what = format!("{count} × sleep 1 at once");
    figure(
        &format!("{what}, beyond the second"),
        &format!("{:.2} s", overhead.as_secs_f64()),
        &format!("≤ {} s", OVERHEAD_MAX.as_secs()),
        overhead <= OVERHEAD_MAX,
    );
    figure(
        &format!("{what}, memory of Polity"),
        &format!("{:.0} MB", megabytes(own)),
        &format!("≤ {:.0} MB", megabytes(OWN_BYTES_MAX)),
        own <= OWN_BYTES_MAX,
    );
    let largest = shims.iter().copied().max().unwrap_or(0);
    figure(
        &format!("{what}, own memory of the largest shim ({} seen)", shims.len()),
        &format!("{:.2} MB", megabytes(largest)),
        &format!("≤ {:.0} MB", megabytes(SHIM_BYTES_MAX)),
        largest <= SHIM_BYTES_MAX,
    );
}

/// The private memory of each shim.
fn shims() -> Vec<u64> {
    let me = std::process::id();
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let children = threads.filter_map(|thread| {
        let thread = thread.ok()?.file_name();
        fs::read_to_string(format!("/proc/{me}/task/{}/children", thread.to_str()?)).ok()
    });
    let children: String = children.collect();
    let own = |pid: &str| {
        let path = format!("/proc/{pid}/smaps_rollup");
        memory(&path, &["Private_Clean", "Private_Dirty"]).filter(|bytes| *bytes > 0)
    };
    children.split_whitespace().filter_map(own).collect()
}

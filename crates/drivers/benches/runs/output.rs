//! An agent with large output.

use std::time::{Duration, Instant};

use polity_testkit::bench::figure;

use crate::fixture::{RunFixture, agent};
use crate::measure::{megabytes, own_memory};

const RATE_LEAST: f64 = 300.0;
const GROWTH_MAX: u64 = 64_000_000;

const LINE: &str = "2026-01-01T00:00:00Z INFO compiled crates/drivers/src/lib.rs in 0.52 s, 3 left";

pub(crate) async fn measure(quick: bool) {
    let bytes: u64 = if quick { 10_000_000 } else { 1_000_000_000 };
    let fixture = RunFixture::new();
    let agent = agent("sh", &["-c", &format!("yes '{LINE}' | head -c {bytes}")]);
    let before = own_memory();
    let begun = Instant::now();
    let run = fixture.run(&agent, 0, 1);
    tokio::pin!(run);
    let mut peak = before;
    let outcome = loop {
        tokio::select! {
            outcome = &mut run => break outcome,
            () = tokio::time::sleep(Duration::from_millis(5)) => peak = peak.max(own_memory()),
        }
    };
    let rate = megabytes(bytes) / begun.elapsed().as_secs_f64();
    assert_eq!(outcome.report.output.stdout_bytes, bytes);
    let what = format!("a program that writes {:.0} MB", megabytes(bytes));
    figure(
        &format!("{what}, masked and kept"),
        &format!("{rate:.0} MB/s"),
        &format!("≥ {RATE_LEAST:.0} MB/s"),
        rate >= RATE_LEAST,
    );
    let growth = peak.saturating_sub(before);
    figure(
        &format!("{what}, more memory meanwhile"),
        &format!("{:.0} MB", megabytes(growth)),
        &format!("≤ {:.0} MB", megabytes(GROWTH_MAX)),
        growth <= GROWTH_MAX,
    );
}

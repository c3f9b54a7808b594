//! The memory of the server under load.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::served::memory_kb;

/// The time after which a server has its caches.
const WARM_UP_PERCENT: u32 = 40;

/// The growth that is no leak, in kilobytes: journals grow, and so do the maps of the database.
const GROWTH_KB_MAX: u64 = 48 * 1024;

/// The number of samples of which the lowest counts; between two of them buffers come and go.
const SAMPLES: u32 = 5;

/// Watches a server for a time. Fails if its memory grows after the warm-up.
pub(super) fn watch(pid: u32, time: Duration) -> Result<()> {
    let warm_up = time * WARM_UP_PERCENT / 100;
    let pause = time.saturating_sub(warm_up) / (2 * SAMPLES);
    thread::sleep(warm_up);
    let before = lowest(pid, pause)?;
    let after = lowest(pid, pause)?;
    eprintln!("── soak: memory {} MB, then {} MB", before / 1024, after / 1024);
    ensure!(
        after <= before + GROWTH_KB_MAX,
        "the memory of the server has grown from {before} KB to {after} KB"
    );
    Ok(())
}

fn lowest(pid: u32, pause: Duration) -> Result<u64> {
    let mut lowest = u64::MAX;
    for _ in 0..SAMPLES {
        thread::sleep(pause);
        lowest = lowest.min(memory_kb(pid)?);
    }
    Ok(lowest)
}

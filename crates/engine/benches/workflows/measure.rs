//! What is counted: processor time, the rate of the bare disk, memory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

/// Prints a figure for the table.
pub(crate) fn figure(what: &str, measured: &str, target: &str, kept: bool) {
    println!("{}", json!({"what": what, "measured": measured, "target": target, "kept": kept}));
}

/// The processor time that this process has used, in all of its threads.
pub(crate) fn cpu() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().unwrap()
}

/// Small appends with a sync after each.
pub(crate) struct Bare(File);

impl Bare {
    pub(crate) fn new(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    /// How many a second.
    pub(crate) fn rate(&mut self, slice: Duration) -> f64 {
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < slice {
            self.0.write_all(&[7; 256]).unwrap();
            self.0.sync_data().unwrap();
            count += 1;
        }
        f64::from(count) / began.elapsed().as_secs_f64()
    }
}

//! Shared parts of the benches: figures for the table, CPU time, the sync rate of the disk.
#![allow(clippy::print_stdout, reason = "the table is made of what benches print")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// Prints a figure for the table.
pub fn figure(what: &str, measured: &str, target: &str, kept: bool) {
    println!("{}", json!({"what": what, "measured": measured, "target": target, "kept": kept}));
}

/// The CPU time used by all threads of this process.
pub fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// Appends with a sync each: the upper bound of the disk.
#[derive(Debug)]
pub struct BareDisk {
    file: File,
    block: Vec<u8>,
}

impl BareDisk {
    /// Appends of this many bytes.
    pub fn new(path: &Path, bytes: usize) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { file, block: vec![7; bytes] }
    }

    /// The number of synced appends per second.
    pub fn rate(&mut self, slice: Duration) -> f64 {
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < slice {
            self.file.write_all(&self.block).unwrap();
            self.file.sync_data().unwrap();
            count += 1;
        }
        f64::from(count) / began.elapsed().as_secs_f64()
    }
}

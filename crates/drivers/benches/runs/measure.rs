//! Measures processor time and memory.

use std::fs;
use std::time::Duration;

/// The processor time of this process and its reaped children.
pub(crate) fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    // User and system time of process and children are fields 14 to 17.
    let ticks = after_name.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// The sum of the named lines of a `/proc` file, in bytes.
pub(crate) fn memory(path: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let kilobytes = text.lines().filter_map(|line| {
        let (name, amount) = line.split_once(':')?;
        let amount = names.contains(&name).then(|| amount.trim().trim_end_matches("kB").trim())?;
        amount.parse::<u64>().ok()
    });
    Some(kilobytes.sum::<u64>() * 1024)
}

pub(crate) fn own_memory() -> u64 {
    memory("/proc/self/status", &["VmRSS"]).unwrap()
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

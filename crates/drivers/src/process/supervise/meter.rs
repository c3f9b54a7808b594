//! What the program and everything below it uses, and whether that is too much.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use polity_model::run::ResourceUsage;
use rustix::process::Pid;

use super::tree::{self, Stat};
use crate::process::record::Limit;
use crate::process::supervision::TreeLimits;

/// How soon usage is first looked at. Each pause is twice as long as the one before, so that short
/// runs are seen too and long ones cost little.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The longest pause where there are limits to keep.
const PAUSE_MAX_LIMITED: Duration = Duration::from_millis(50);

const BYTES_PER_MB: u64 = 1 << 20;

/// Looks at what is used.
pub(super) struct Meter {
    begun: Instant,
    limits: TreeLimits,
    pause: Duration,
    pub(super) due: Instant,
    peak_bytes: u64,
}

/// What was seen at one time.
struct Seen {
    processes: Vec<Pid>,
    cpu: Duration,
    memory_bytes: u64,
    disk: Disk,
}

#[derive(Default)]
struct Disk {
    read_bytes: u64,
    written_bytes: u64,
}

impl Meter {
    /// Looks at a run that has taken so long already.
    pub(super) fn new(limits: TreeLimits, elapsed: Duration) -> Self {
        let now = Instant::now();
        let begun = now.checked_sub(elapsed).unwrap_or(now);
        Self { begun, limits, pause: FIRST_PAUSE, due: now + FIRST_PAUSE, peak_bytes: 0 }
    }

    /// How long the run has taken.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Looks at everyone who is alive; says what is used, and which limit does not hold.
    pub(super) fn look(&mut self) -> io::Result<(ResourceUsage, Option<Limit>)> {
        let longest = if self.limits.is_any() { PAUSE_MAX_LIMITED } else { PAUSE_MAX };
        self.pause = (self.pause * 2).min(longest);
        self.due = Instant::now() + self.pause;
        let enough = self.limits.processes.map_or(usize::MAX, |most| most as usize);
        let seen = Seen::now(tree::descendants_until(enough)?);
        self.peak_bytes = self.peak_bytes.max(seen.memory_bytes);
        let exceeded = self.exceeded(&seen);
        Ok((self.usage(&seen), exceeded))
    }

    /// What was used in all, once no one is left.
    pub(super) fn total(&self) -> ResourceUsage {
        self.usage(&Seen::now(Vec::new()))
    }

    fn exceeded(&self, seen: &Seen) -> Option<Limit> {
        let TreeLimits { memory_bytes, cpu_seconds, processes } = self.limits;
        if processes.is_some_and(|most| seen.processes.len() > most as usize) {
            return Some(Limit::Processes);
        }
        if cpu_seconds.is_some_and(|most| seen.cpu >= Duration::from_secs(most)) {
            return Some(Limit::Cpu);
        }
        // Memory that processes share is counted for each of them. Only if that is too much, it is
        // worth the time to count it once.
        let too_much = |most: u64| seen.memory_bytes > most && shared_once(&seen.processes) > most;
        memory_bytes.is_some_and(too_much).then_some(Limit::Memory)
    }

    fn usage(&self, seen: &Seen) -> ResourceUsage {
        let elapsed = self.elapsed().as_secs_f64();
        let share = if elapsed > 0.0 { seen.cpu.as_secs_f64() / elapsed } else { 0.0 };
        ResourceUsage {
            cpu_percent: (share * 1000.0).round() / 10.0,
            cpu_time_ms: u64::try_from(seen.cpu.as_millis()).unwrap_or(u64::MAX),
            memory_mb: seen.memory_bytes.div_ceil(BYTES_PER_MB),
            peak_memory_mb: self.peak_bytes.div_ceil(BYTES_PER_MB),
            disk_read_mb: seen.disk.read_bytes / BYTES_PER_MB,
            disk_write_mb: seen.disk.written_bytes / BYTES_PER_MB,
        }
    }
}

impl Seen {
    /// What these use, and those used that are gone. The system adds what a process has used to
    /// its parent when it is reaped, and so in the end to the shim.
    fn now(processes: Vec<Pid>) -> Self {
        let me = rustix::process::getpid();
        let mut ticks = Stat::of(me).map_or(0, |stat| stat.children_ticks);
        let mut pages = 0;
        let mut disk = Disk::of(me);
        for stat in processes.iter().filter_map(|pid| Stat::of(*pid)) {
            ticks += stat.cpu_ticks;
            pages += stat.memory_pages;
        }
        for one in processes.iter().map(|pid| Disk::of(*pid)) {
            disk.read_bytes += one.read_bytes;
            disk.written_bytes += one.written_bytes;
        }
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        Self {
            processes,
            cpu: Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_second),
            memory_bytes: pages * rustix::param::page_size() as u64,
            disk,
        }
    }
}

impl Disk {
    /// What this process and the children it waited for have read and written. A process of
    /// someone else does not tell.
    fn of(pid: Pid) -> Self {
        let text = fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero()));
        let text = text.unwrap_or_default();
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
        };
        Self { read_bytes: number("read_bytes:"), written_bytes: number("write_bytes:") }
    }
}

/// The memory of these processes, in which what they share is counted once.
fn shared_once(processes: &[Pid]) -> u64 {
    let of = |pid: &Pid| {
        let text =
            fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    processes.iter().filter_map(of).sum()
}

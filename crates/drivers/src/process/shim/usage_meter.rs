//! Measures the resource usage of a process tree and checks its limits.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use polity_model::run::ResourceUsage;
use rustix::process::Pid;

use super::process_tree;
use crate::process::proc_stat::ProcStat;
use crate::process::run_record::ResourceLimit;
use crate::process::shim_options::ProcessTreeLimits;

/// The first pause between samples. Each pause is twice the previous one, so that short runs are
/// sampled and long ones cost little.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The maximum pause if there are limits.
const PAUSE_MAX_LIMITED: Duration = Duration::from_millis(50);

const BYTES_PER_MB: u64 = 1 << 20;

pub(super) struct UsageMeter {
    started_at: Instant,
    limits: ProcessTreeLimits,
    pause: Duration,
    pub(super) due: Instant,
    peak_bytes: u64,
}

struct UsageSample {
    processes: Vec<Pid>,
    cpu: Duration,
    memory_bytes: u64,
    disk: DiskUsage,
}

#[derive(Default)]
struct DiskUsage {
    read_bytes: u64,
    written_bytes: u64,
}

impl UsageMeter {
    /// A meter for a run that started `elapsed` ago.
    pub(super) fn new(limits: ProcessTreeLimits, elapsed: Duration) -> Self {
        let now = Instant::now();
        let started_at = now.checked_sub(elapsed).unwrap_or(now);
        Self { started_at, limits, pause: FIRST_PAUSE, due: now + FIRST_PAUSE, peak_bytes: 0 }
    }

    /// The duration of the run.
    pub(super) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Takes a sample. Returns the usage, and the exceeded limit if any.
    pub(super) fn sample(&mut self) -> io::Result<(ResourceUsage, Option<ResourceLimit>)> {
        let longest = if self.limits.is_any() { PAUSE_MAX_LIMITED } else { PAUSE_MAX };
        self.pause = (self.pause * 2).min(longest);
        self.due = Instant::now() + self.pause;
        let enough = self.limits.processes.map_or(usize::MAX, |most| most as usize);
        let sample = UsageSample::take(process_tree::descendants_until(enough)?);
        self.peak_bytes = self.peak_bytes.max(sample.memory_bytes);
        let exceeded = self.exceeded(&sample);
        Ok((self.usage(&sample), exceeded))
    }

    /// The total usage, when the tree has ended.
    pub(super) fn total(&self) -> ResourceUsage {
        self.usage(&UsageSample::take(Vec::new()))
    }

    fn exceeded(&self, sample: &UsageSample) -> Option<ResourceLimit> {
        let ProcessTreeLimits { memory_bytes, cpu_seconds, processes } = self.limits;
        if processes.is_some_and(|most| sample.processes.len() > most as usize) {
            return Some(ResourceLimit::Processes);
        }
        if cpu_seconds.is_some_and(|most| sample.cpu >= Duration::from_secs(most)) {
            return Some(ResourceLimit::Cpu);
        }
        // Resident memory counts shared pages repeatedly. The exact value is slow to compute.
        let too_much =
            |most: u64| sample.memory_bytes > most && proportional_memory(&sample.processes) > most;
        memory_bytes.is_some_and(too_much).then_some(ResourceLimit::Memory)
    }

    fn usage(&self, sample: &UsageSample) -> ResourceUsage {
        let elapsed = self.elapsed().as_secs_f64();
        let share = if elapsed > 0.0 { sample.cpu.as_secs_f64() / elapsed } else { 0.0 };
        ResourceUsage {
            cpu_percent: (share * 1000.0).round() / 10.0,
            cpu_time_ms: u64::try_from(sample.cpu.as_millis()).unwrap_or(u64::MAX),
            memory_mb: sample.memory_bytes.div_ceil(BYTES_PER_MB),
            peak_memory_mb: self.peak_bytes.div_ceil(BYTES_PER_MB),
            disk_read_mb: sample.disk.read_bytes / BYTES_PER_MB,
            disk_write_mb: sample.disk.written_bytes / BYTES_PER_MB,
        }
    }
}

impl UsageSample {
    /// The usage of these processes and of reaped ones. The kernel adds a reaped process's usage to
    /// its parent, and so in the end to the shim.
    fn take(processes: Vec<Pid>) -> Self {
        let me = rustix::process::getpid();
        let mut ticks = ProcStat::of(me).map_or(0, |stat| stat.children_ticks);
        let mut pages = 0;
        let mut disk = DiskUsage::of(me);
        for stat in processes.iter().filter_map(|pid| ProcStat::of(*pid)) {
            ticks += stat.cpu_ticks;
            pages += stat.memory_pages;
        }
        for one in processes.iter().map(|pid| DiskUsage::of(*pid)) {
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

impl DiskUsage {
    /// The disk usage of a process and its reaped children; zero if it belongs to another user.
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

/// The memory of these processes, with shared pages counted once.
fn proportional_memory(processes: &[Pid]) -> u64 {
    let of = |pid: &Pid| {
        let text =
            fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    processes.iter().filter_map(of).sum()
}

//! Benchmarks of whole runs: turns, checkpoints and memory.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use polity_simulator::folder::version::RunVersion;
use polity_simulator::folder::{RunStatus, SimulationRecord};
use polity_simulator::run::{RunControl, RunSetup, SimulationRun};
use polity_simulator::scenario::{Scenario, ScenarioFile};
use polity_statechart::Chart;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Eight states, a guard that draws for each transition, a timeout after five ticks.
const W1: &str = include_str!("../ticks/w1.yaml");
/// The chart of the example, with actions on agents and on the world.
const SOCIAL: &str = include_str!("../../../../examples/11-society/charts/social.yaml");
const SOCIETY: &str = include_str!("../../../../examples/11-society/scenarios/society.yaml");

fn main() {
    let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    society(if quick { 100 } else { 1000 });
    small_checkpoint(if quick { 3 } else { 20 });
    large(if quick { 20_000 } else { 1_000_000 });
}

/// The society of the example, with a checkpoint of every turn.
fn society(turns: u64) {
    let file: ScenarioFile = serde_saphyr::from_str(SOCIETY).unwrap();
    let fixture = BenchFixture::new(SOCIAL, &ScenarioFile { turns: Some(turns), ..file });
    let mut run = fixture.begin();
    let began = Instant::now();
    run.run(|_| RunControl::Continue).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a few turns")]
    let rate = turns as f64 / seconds;
    report(
        &format!("{turns} turns of 25 agents, a durable checkpoint of every turn"),
        &format!("{seconds:.1} s, {rate:.0} turns/s"),
        "≥ 100 turns/s",
        rate >= 100.0,
    );
}

/// One turn of 500 agents with its checkpoint, on disk.
fn small_checkpoint(rounds: u32) {
    let fixture = BenchFixture::new(W1, &scenario(500, u64::from(rounds), 1));
    let mut run = fixture.begin();
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let began = Instant::now();
        run.run(|_| RunControl::Stop).unwrap();
        best = best.min(began.elapsed().as_secs_f64() * 1000.0);
    }
    report(
        "a turn of 500 agents and its checkpoint, on disk",
        &format!("{best:.1} ms"),
        "< 50 ms",
        best < 50.0,
    );
}

/// A large population for a hundred turns, and its checkpoint.
fn large(agents: u64) {
    let fixture = BenchFixture::new(W1, &scenario(agents, 101, 1000));
    let mut run = fixture.begin();
    let (began, mut after_turns) = (Instant::now(), (0.0, 0));
    run.run(|progress| {
        if progress.turn < 100 {
            return RunControl::Continue;
        }
        after_turns = (began.elapsed().as_secs_f64(), peak_bytes());
        RunControl::Stop
    })
    .unwrap();
    let (seconds, before) = after_turns;
    let written = began.elapsed().as_secs_f64() - seconds;
    let grown = (peak_bytes() - before) / (1 << 20);
    report(
        &format!("100 turns of ten ticks, {agents} agents, history kept"),
        &format!("{seconds:.1} s, {} MB at most", before / (1 << 20)),
        "< 60 s",
        seconds < 60.0,
    );
    report(
        &format!("checkpoint and digest of {agents} agents with full histories"),
        &format!("{written:.1} s, {grown} MB more memory"),
        "< 20 s, < 64 MB",
        written < 20.0 && grown < 64,
    );
}

fn scenario(agents: u64, turns: u64, checkpoint_every: u64) -> ScenarioFile {
    let scenario = json!({
        "name": "bench", "chart": "w1", "turns": turns, "max_agents": agents,
        "checkpoint_every": checkpoint_every,
        "population": [{"name": "agent", "count": agents}],
        "world": {"rates": [{"trigger": "tick", "rate": 1}]},
    });
    serde_json::from_value(scenario).unwrap()
}

struct BenchFixture {
    folder: TempDir,
    scenario: Arc<Scenario>,
}

impl BenchFixture {
    fn new(chart: &str, file: &ScenarioFile) -> Self {
        let chart = Arc::new(Chart::from_text(chart).unwrap());
        let scenario = Arc::new(Scenario::new(file, chart).unwrap());
        // The working folder is on a disk, unlike some temporary folders.
        Self { folder: tempfile::tempdir_in(Path::new(".")).unwrap(), scenario }
    }

    fn begin(&self) -> SimulationRun {
        let record = SimulationRecord {
            run_id: "bench".to_owned(),
            scenario: self.scenario.name.clone(),
            created_at: Timestamp::UNIX_EPOCH,
            forked_from: None,
            strict: false,
            turns: self.scenario.turns,
            status: RunStatus::Running,
            summary: None,
            version: Some(RunVersion::current()),
            request: None,
        };
        let beginning = RunSetup {
            scenario: Arc::clone(&self.scenario),
            scenario_text: "{}",
            chart_text: "{}",
            threads: None,
        };
        SimulationRun::start(&self.folder.path().join("run"), record, &beginning).unwrap()
    }
}

/// Returns the peak memory of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

fn report(what: &str, measured: &str, target: &str, kept: bool) {
    let figure: Value = json!({"what": what, "measured": measured, "target": target, "kept": kept});
    println!("{figure}");
}

//! A workflow of ten nodes that do nothing, with a durable checkpoint for each.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_engine::commands::CreateTask;
use polity_engine::pinned::PinnedWorkflow;
use polity_engine::runtime::Runtime;
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitDurability, Store};
use polity_testkit::bench::{BareDisk, cpu, figure};

use crate::fixture::{block_on, block_on_alone, folder, open, runtime, workflow};
use crate::langgraph::LangGraphPeer;

pub(crate) const NODES: u32 = 10;

/// The maximum processor time of a step with 32 concurrent tasks.
const STEP_CPU_MAX: Duration = Duration::from_micros(120);

/// The result of a measurement.
#[derive(Clone, Copy, Default)]
struct StepRate {
    steps: f64,
    seconds: f64,
    cpu: f64,
}

impl StepRate {
    fn per_second(self) -> f64 {
        self.steps / self.seconds
    }

    fn cpu_per_step(self) -> Duration {
        Duration::from_secs_f64(self.cpu / self.steps)
    }

    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.seconds += other.seconds;
        self.cpu += other.cpu;
    }
}

pub(crate) fn measure(quick: bool) {
    const AT_ONCE: [u32; 3] = [1, 32, 256];
    let slice = Duration::from_millis(if quick { 200 } else { 600 });
    let folder = folder();
    let mut bare = BareDisk::new(&folder.path().join("bare"), 256);
    let mut peer = LangGraphPeer::start(folder.path());
    let stores = AT_ONCE
        .map(|count| open(&folder.path().join(format!("{count}.db")), CommitDurability::Full));
    let chain = chain();
    let (mut disk, mut theirs) = (Vec::new(), Vec::new());
    let mut ours = [StepRate::default(); 3];
    // In turns, so that a load peak of the machine affects all of them.
    for _ in 0..if quick { 1 } else { 6 } {
        disk.push(bare.rate(slice));
        theirs.extend(peer.as_mut().map(LangGraphPeer::rate));
        for ((at_once, store), sum) in AT_ONCE.into_iter().zip(&stores).zip(&mut ours) {
            let work = run(store, &chain, at_once, slice);
            sum.add(if at_once == 1 { block_on_alone(work) } else { block_on(work) });
        }
    }
    let disk = mean(&disk);
    let theirs = (!theirs.is_empty()).then(|| mean(&theirs));
    let one = ours[0].per_second();
    let ratio = one / disk;
    figure(
        "a workflow of 10 no-op nodes with a durable checkpoint each, one at a time",
        &format!("{one:.0} steps/s, {ratio:.2} of the bare disk ({disk:.0} syncs/s)"),
        "≥ 0.6 of 256 B appends with a sync each",
        ratio >= 0.6,
    );
    for (index, least) in [(0, 5.0), (1, 30.0), (2, 50.0)] {
        let Some(theirs) = theirs else { break };
        let (at_once, rate) = (AT_ONCE[index], ours[index].per_second());
        let ratio = rate / theirs;
        figure(
            &format!("the same, {at_once} at once, against LangGraph with SqliteSaver"),
            &format!("{rate:.0} steps/s, {ratio:.0} times LangGraph's {theirs:.0}"),
            &format!("≥ {least:.0} times"),
            ratio >= least,
        );
    }
    let cpu = ours[1].cpu_per_step();
    figure(
        "processor time of such a step, 32 at once",
        &format!("{:.0} µs", cpu.as_secs_f64() * 1e6),
        "≤ 120 µs",
        cpu <= STEP_CPU_MAX,
    );
}

fn mean(values: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let count = values.len() as f64;
    values.iter().sum::<f64>() / count
}

fn chain() -> PinnedWorkflow {
    let mut text = String::from("name: chain\nentry_point: n0\nnodes:\n");
    for node in 0..NODES {
        writeln!(text, "  n{node}: {{type: condition, expression: '\"go\"'}}").unwrap();
    }
    text.push_str("edges:\n");
    for node in 1..NODES {
        writeln!(text, "  - {{from: n{}, to: n{node}}}", node - 1).unwrap();
    }
    workflow("chain", &text)
}

/// Runs workflows one after the other on so many lanes, for as long as the slice lasts.
async fn run(
    store: &Arc<dyn Store>,
    chain: &PinnedWorkflow,
    at_once: u32,
    slice: Duration,
) -> StepRate {
    let runtime = Arc::new(runtime(store, at_once));
    let (began, cpu_before) = (Instant::now(), cpu());
    let lanes: Vec<_> = (0..at_once)
        .map(|_| tokio::spawn(lane(Arc::clone(&runtime), chain.clone(), began, slice)))
        .collect();
    let mut runs = 0;
    for lane in lanes {
        runs += lane.await.unwrap();
    }
    StepRate {
        steps: f64::from(runs * NODES),
        seconds: began.elapsed().as_secs_f64(),
        cpu: cpu().saturating_sub(cpu_before).as_secs_f64(),
    }
}

async fn lane(
    runtime: Arc<Runtime>,
    chain: PinnedWorkflow,
    began: Instant,
    slice: Duration,
) -> u32 {
    let mut runs = 0;
    while began.elapsed() < slice {
        let mut handle = runtime.create(CreateTask::new(chain.clone(), "go")).await.unwrap();
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
        runs += 1;
    }
    runs
}

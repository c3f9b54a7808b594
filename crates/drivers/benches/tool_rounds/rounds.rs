//! One tool round: the model calls a tool, the tool answers, both durably.
//!
//! The cost of a task without rounds is subtracted from that of a task with thirty.

use std::time::{Duration, Instant};

use polity_engine::pinned::PinnedAgent;
use polity_testkit::bench::{cpu, figure};

use crate::harness::{BenchRuntime, agent, block_on, folder};
use crate::measure::{median, sync_count};
use crate::servers::ModelProcess;

/// The number of rounds per task.
pub(crate) const ROUNDS: u32 = 30;

/// The largest processor time of a round.
const CPU_MAX: Duration = Duration::from_micros(1300);

/// The largest number of syncs per round: two commits with one sync each, plus rare checkpoints of
/// the log.
const SYNCS_MAX: f64 = 2.1;

#[derive(Debug, Clone, Copy)]
struct RoundCost {
    cpu: Duration,
    wall: Duration,
    syncs: u64,
}

/// Measures rounds and returns the processor time of one.
pub(crate) fn measure(quick: bool) -> Duration {
    let tasks = if quick { 2 } else { 20 };
    // Flushes the writes of other processes, so that they do not slow down our syncs.
    rustix::fs::sync();
    let (model, folder) = (ModelProcess::start(), folder());
    let (acting, answering) = block_on(async {
        let (runtime, tools) = BenchRuntime::with_drivers(folder.path(), 2);
        let (acts, answers) = (agent(&model.url, ROUNDS), agent(&model.url, 0));
        let (mut acting, mut answering) = (Vec::new(), Vec::new());
        measure_task(&runtime, &acts, "warm up").await;
        // Interleaved, so that load on the machine affects both.
        for number in 0..tasks {
            acting.push(measure_task(&runtime, &acts, &format!("task {number}")).await);
            answering.push(measure_task(&runtime, &answers, &format!("task {number}")).await);
        }
        drop(runtime);
        tools.shutdown().await;
        (acting, answering)
    });
    let cpu = median_per_round(&acting, &answering, |cost| cost.cpu);
    let wall = median_per_round(&acting, &answering, |cost| cost.wall);
    let total = |costs: &[RoundCost]| costs.iter().map(|cost| cost.syncs).sum::<u64>();
    let (all, without) = (total(&acting), total(&answering));
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let (syncs, alone) =
        ((all - without) as f64 / f64::from(tasks * ROUNDS), without as f64 / f64::from(tasks));
    figure(
        "a tool round: model over HTTP, MCP tool over stdio, durable",
        &format!(
            "{:.2} ms of our CPU, {syncs:.2} disk syncs ({:.2} ms by the clock; a task's own \
             {alone:.1} syncs aside)",
            cpu.as_secs_f64() * 1e3,
            wall.as_secs_f64() * 1e3
        ),
        "≤ 1.3 ms of CPU, ≤ 2 syncs (and the log worked in now and then: ≤ 2.1)",
        cpu <= CPU_MAX && syncs <= SYNCS_MAX,
    );
    cpu
}

fn median_per_round(
    acting: &[RoundCost],
    answering: &[RoundCost],
    of: impl Fn(&RoundCost) -> Duration,
) -> Duration {
    let middle = |costs: &[RoundCost]| median(&mut costs.iter().map(&of).collect::<Vec<_>>());
    middle(acting).saturating_sub(middle(answering)) / ROUNDS
}

async fn measure_task(runtime: &BenchRuntime, agent: &PinnedAgent, description: &str) -> RoundCost {
    let (began, cpu_before, syncs_before) = (Instant::now(), cpu(), sync_count());
    runtime.run(agent, description).await;
    RoundCost {
        cpu: cpu().saturating_sub(cpu_before),
        wall: began.elapsed(),
        syncs: sync_count() - syncs_before,
    }
}

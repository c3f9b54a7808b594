//! Many agents at once: lost calls, and memory per agent.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use polity_drivers::mcp::McpTools;
use polity_engine::driver::{CallSite, ToolDriver, ToolRequest};
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::TaskHandle;
use polity_model::event::{Event, StreamId, StreamSequence, ToolChange};
use polity_model::machine::task::TaskStatus;
use polity_store::Store;
use polity_testkit::bench::{cpu, figure};
use serde_json::Map;

use crate::harness::{BenchRuntime, agent, block_on, folder, pausing_agent};
use crate::measure::{MemoryUse, sync_count};
use crate::servers::ModelProcess;

const AGENTS: u32 = 100;

/// The largest memory of an active agent, in bytes.
const AGENT_BYTES_MAX: usize = 200_000;

/// The pause of all models while memory is measured: every agent waits before the first continues.
const PAUSE: Duration = Duration::from_secs(2);

/// The result of a load run.
struct LoadResult {
    completed: usize,
    answered: usize,
    /// The calls that the tool reports.
    tool_report: String,
    peak: MemoryUse,
    took: Duration,
    cpu: Duration,
    syncs: u64,
}

impl LoadResult {
    fn is_complete(&self, rounds: u32) -> bool {
        let all = AGENTS * rounds;
        self.completed == AGENTS as usize
            && self.answered == all as usize
            && self.tool_report == format!("{all} calls, {all} distinct")
    }
}

pub(crate) fn measure(quick: bool) {
    let rounds = if quick { 2 } else { 10 };
    let model = ModelProcess::start();
    let resting = block_on(work(&model, &pausing_agent(&model.url, rounds, PAUSE)));
    let busy = block_on(work(&model, &agent(&model.url, rounds)));
    let all = AGENTS * rounds;
    let agent_bytes = [resting.peak.live, resting.peak.resident].map(|all| all / AGENTS as usize);
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let syncs = busy.syncs as f64 / f64::from(all);
    figure(
        &format!("{AGENTS} agents at once, {rounds} tool rounds each"),
        &format!(
            "{} completed, {} calls answered, the tool saw {}; {} kB an agent ({} kB resident), \
             its messages included; {:.0} rounds/s with {:.2} ms of our CPU and {syncs:.2} syncs each",
            busy.completed,
            busy.answered,
            busy.tool_report,
            agent_bytes[0] / 1000,
            agent_bytes[1] / 1000,
            f64::from(all) / busy.took.as_secs_f64(),
            busy.cpu.as_secs_f64() * 1e3 / f64::from(all),
        ),
        "nothing lost, < 200 kB an agent",
        resting.is_complete(rounds)
            && busy.is_complete(rounds)
            && agent_bytes.iter().all(|bytes| *bytes < AGENT_BYTES_MAX),
    );
}

async fn work(model: &ModelProcess, load: &PinnedAgent) -> LoadResult {
    let folder = folder();
    let (runtime, tools) = BenchRuntime::with_drivers(folder.path(), AGENTS);
    // Shared state is created before the memory of one agent is measured.
    runtime.run(&agent(&model.url, 0), "warm up").await;
    let (before, cpu_before, syncs_before) = (MemoryUse::now(), cpu(), sync_count());
    let began = Instant::now();
    let (peak, (completed, handles)) = MemoryUse::peak(run(&runtime, load)).await;
    let (took, cpu, syncs) =
        (began.elapsed(), cpu().saturating_sub(cpu_before), sync_count() - syncs_before);
    let answered = handles.iter().map(|handle| count_answers(&*runtime.store, handle)).sum();
    let tool_report = fetch_tool_report(&tools).await;
    drop(runtime);
    tools.shutdown().await;
    LoadResult { completed, answered, tool_report, peak: peak.beyond(before), took, cpu, syncs }
}

/// Runs all agents and counts the completed tasks.
async fn run(runtime: &BenchRuntime, load: &PinnedAgent) -> (usize, Vec<TaskHandle>) {
    let descriptions: Vec<_> = (0..AGENTS).map(|number| format!("agent {number}")).collect();
    let creating = descriptions.iter().map(|description| runtime.create(load, description));
    let mut handles = join_all(creating).await;
    let ends = join_all(handles.iter_mut().map(TaskHandle::wait)).await;
    let completed = ends.iter().filter(|end| matches!(end, Ok(TaskStatus::Completed))).count();
    (completed, handles)
}

/// The number of a task's successful tool calls in the journal.
fn count_answers(store: &dyn Store, task: &TaskHandle) -> usize {
    let events = store.events(&StreamId::Task(task.id), StreamSequence::default()).wait().unwrap();
    let is_good = |event: &Event| {
        matches!(
            event,
            Event::ToolChanged { change: ToolChange::Answer { is_error: false, .. }, .. }
        )
    };
    events.iter().filter(|recorded| is_good(&recorded.event)).count()
}

/// Asks the tool for its counts.
async fn fetch_tool_report(tools: &McpTools) -> String {
    let (tool, arguments) = (&"notes/total".parse().unwrap(), &Map::new());
    let (limit, call_site, index) = (Duration::from_mins(1), CallSite::OUTSIDE, 0);
    tools
        .call(ToolRequest { tool, arguments, limit, limited_by: None, call_site, index })
        .await
        .unwrap()
        .content
}

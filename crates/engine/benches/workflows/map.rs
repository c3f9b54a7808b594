//! A map of many items that do nothing: processor time, memory and disk per item.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polity_engine::commands::CreateTask;
use polity_engine::driver::{
    BoxFuture, CallSite, ModelDriver, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest,
    Toolbox, ToolsUnavailable,
};
use polity_engine::pinned::PinnedWorkflow;
use polity_model::machine::task::TaskStatus;
use polity_model::tool::ToolPattern;
use polity_store::CommitDurability;
use polity_testkit::bench::{cpu, figure};
use serde_json::json;

use crate::fixture::{block_on, folder, open, runtime_with, workflow};
use crate::growth::EchoConversation;

const ITEMS: u32 = 10_000;

/// The maximum processor time of an item.
const ITEM_CPU_MAX: Duration = Duration::from_micros(150);

/// The cost of one map.
struct MapCost {
    cpu: Duration,
    bytes: f64,
    memory: f64,
}

pub(crate) fn measure(quick: bool) {
    let items = if quick { ITEMS / 10 } else { ITEMS };
    for (what, step) in [
        ("conditions", "{type: condition, expression: item_index}"),
        ("tool calls", "{type: tool, tool: echo/say, arguments: {n: '{{ item_index }}'}}"),
    ] {
        let flow = map(step);
        let half = run(&flow, items / 2);
        let full = run(&flow, items);
        let per_item = full.cpu / items;
        figure(
            &format!("a map of {items} no-op items ({what})"),
            &format!("{:.0} µs of CPU per item", per_item.as_secs_f64() * 1e6),
            "≤ 150 µs",
            per_item <= ITEM_CPU_MAX,
        );
        let (growth, per_item) = (full.bytes / half.bytes, full.bytes / f64::from(items));
        figure(
            "the same on the disk",
            &format!("{per_item:.0} bytes per item; twice the items take {growth:.2} times"),
            "linear",
            growth <= 2.2,
        );
        let more = (full.memory - half.memory) / f64::from(items / 2);
        figure(
            "the same in memory",
            &format!("{more:.0} bytes more per item"),
            "≤ 4,000 bytes",
            more <= 4000.0,
        );
    }
}

fn map(step: &str) -> PinnedWorkflow {
    let nodes = format!("{{each: {{type: map, over: '{{{{ input }}}}', node: {step}}}}}");
    workflow("map", &format!("name: map\nentry_point: each\nnodes: {nodes}\n"))
}

/// Runs a map of so many items.
fn run(flow: &PinnedWorkflow, items: u32) -> MapCost {
    let folder = folder();
    let path = folder.path().join("polity.db");
    let (cpu_spent, memory) = block_on(run_on(&path, flow, items));
    // The database is closed, and its log with it.
    #[expect(clippy::cast_precision_loss, reason = "far below what a float holds")]
    let bytes = std::fs::metadata(&path).unwrap().len() as f64;
    MapCost { cpu: cpu_spent, bytes, memory }
}

async fn run_on(path: &Path, flow: &PinnedWorkflow, items: u32) -> (Duration, f64) {
    let store = open(path, CommitDurability::Relaxed);
    let models: Arc<dyn ModelDriver> = Arc::new(EchoConversation { rounds: 0 });
    let runtime = runtime_with(&store, 1, models, Arc::new(NoOpTools));
    let list = json!((0..items).collect::<Vec<_>>()).to_string();
    // Linux forgets the peak of earlier measurements.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = cpu();
    let mut handle = runtime.create(CreateTask::new(flow.clone(), list)).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    (cpu().saturating_sub(before), peak_memory())
}

/// The most memory that this process has used since it was reset, in bytes.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: Option<f64> =
        peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.unwrap_or_default() * 1024.0
}

/// The tools of [`EchoConversation`], which answer at once with one word.
struct NoOpTools;

impl ToolDriver for NoOpTools {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async move { EchoConversation { rounds: 0 }.toolbox(patterns, call_site).await })
    }

    fn call<'a>(
        &'a self,
        _request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        Box::pin(async { Ok(ToolReply { content: "done".to_owned(), ..ToolReply::default() }) })
    }
}

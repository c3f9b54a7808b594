//! A long conversation: the overhead of a late turn equals that of an early one, excluding the
//! payload.
//!
//! Model and tool are in-process fakes that ignore their input, so only the engine and the journal
//! are measured.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polity_definition::TokenPrice;
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, CallSite, ModelDriver, ModelFailure,
    ModelReply, ModelRequest, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec,
    Toolbox, ToolsUnavailable,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::tool::ToolPattern;
use polity_model::usage::Usage;
use polity_testkit::bench::{cpu, figure};
use serde_json::json;

use crate::harness::{BenchRuntime, agent, block_on, folder};
use crate::measure::median;

/// The number of turns in the measured window.
const AROUND: usize = 20;

/// The largest ratio of a late turn's cost to an early one's.
const RATIO_MAX: f64 = 1.2;

pub(crate) fn measure(quick: bool) {
    let (early, late, tasks) = if quick { (10, 100, 1) } else { (10, 1000, 8) };
    let folder = folder();
    let turns = late + AROUND;
    let models = Arc::new(RepeatingModel::new(turns));
    block_on(async {
        let shared_tools = Arc::clone(&models) as Arc<dyn ModelDriver>;
        let runtime =
            BenchRuntime::new(folder.path(), shared_tools, Arc::new(CountingTool::new()), 1);
        // The endpoint is never called.
        let agent = agent("http://127.0.0.1:1", 0);
        for number in 0..tasks {
            runtime.run(&agent, &format!("conversation {number}")).await;
        }
    });
    let calls = models.calls.lock().unwrap();
    let around = |turn: usize| {
        let of_task = |calls: &[Duration]| {
            let window = &calls[turn - AROUND / 2..=turn + AROUND / 2];
            window.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect::<Vec<_>>()
        };
        median(&mut calls.chunks(turns + 1).flat_map(of_task).collect::<Vec<_>>())
    };
    let (early_cpu, late_cpu) = (around(early), around(late));
    let ratio = late_cpu.as_secs_f64() / early_cpu.as_secs_f64();
    figure(
        &format!("turn {late} of a conversation against turn {early}, what is sent aside"),
        &format!(
            "{:.0} µs of our CPU at turn {early}, {:.0} µs at turn {late} ({ratio:.2} times)",
            early_cpu.as_secs_f64() * 1e6,
            late_cpu.as_secs_f64() * 1e6
        ),
        "the same (≤ 1.2 times)",
        ratio <= RATIO_MAX,
    );
}

/// A model that calls a tool a fixed number of times and then ends. It records the processor time
/// of each call.
struct RepeatingModel {
    turns: usize,
    calls: Mutex<Vec<Duration>>,
}

impl RepeatingModel {
    fn new(turns: usize) -> Self {
        Self { turns, calls: Mutex::default() }
    }
}

impl ModelDriver for RepeatingModel {
    fn ready(&self, _pinned: &PinnedAgent) -> Result<(), NotReady> {
        Ok(())
    }

    fn price(&self, _pinned: &PinnedAgent) -> Option<TokenPrice> {
        Some(TokenPrice::FREE)
    }

    fn call<'a>(
        &'a self,
        _request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(cpu());
        let is_last = calls.len().is_multiple_of(self.turns + 1);
        let arguments = json!({"who": "no one", "n": calls.len()});
        let asked = AskedTool {
            server: "notes".to_owned(),
            tool: "note".to_owned(),
            arguments: AskedArguments::Object(arguments.as_object().unwrap().clone()),
            signature: None,
        };
        let content = if is_last { "done" } else { "Let me note that." }.to_owned();
        let tool_calls = if is_last { Vec::new() } else { vec![asked] };
        let usage = Usage { input_tokens: 3, output_tokens: 1, ..Usage::default() };
        Box::pin(async move {
            Ok(ModelReply {
                content,
                tool_calls,
                usage,
                ending: AnswerEnding::Complete,
                stop_reason: None,
                mark: None,
            })
        })
    }
}

/// A tool that answers at once.
pub(crate) struct CountingTool {
    toolbox: Arc<Toolbox>,
    calls: AtomicU32,
}

impl CountingTool {
    pub(crate) fn new() -> Self {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let schema = schema.as_object().unwrap().clone();
        let (name, text, minute) =
            ("notes/note".parse().unwrap(), String::new(), Duration::from_mins(1));
        let tool = ToolSpec::new(name, text, schema, None, false, minute, Vec::new());
        let toolbox = Arc::new(Toolbox::new(vec![Arc::new(tool)], Vec::new()));
        Self { toolbox, calls: AtomicU32::new(0) }
    }
}

impl ToolDriver for CountingTool {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        _patterns: &'a [ToolPattern],
        _call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async { Ok(Arc::clone(&self.toolbox)) })
    }

    fn call<'a>(
        &'a self,
        _request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let content = format!("noted {}", self.calls.fetch_add(1, Ordering::Relaxed));
        Box::pin(async { Ok(ToolReply { content, ..ToolReply::default() }) })
    }
}

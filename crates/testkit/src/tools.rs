//! A fake tool driver, and a record of its side effects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polity_engine::driver::{
    BoxFuture, CallSite, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec,
    Toolbox, ToolsUnavailable,
};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::tool::{ToolName, ToolPattern};
use serde_json::{Map, Value, json};

/// The side effects of tools. It outlives every simulated process.
#[derive(Debug, Default)]
pub struct ToolEffects {
    asked: AtomicU64,
    effects: Mutex<BTreeMap<u64, u32>>,
}

impl ToolEffects {
    /// A number for the next requested effect.
    pub fn next(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst)
    }

    /// The number of executions of each effect.
    pub fn effects(&self) -> BTreeMap<u64, u32> {
        self.effects.lock().unwrap().clone()
    }
}

/// The scripted behaviour of one tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeToolAct {
    /// Has its effect and answers.
    Answer,
    /// Answers with an error.
    Error,
    /// Loses the connection before the call.
    NotReached,
    /// Loses the connection after the effect.
    Lost,
    /// Has its effect and never answers.
    Hang,
}

/// Tools with scripted acts in order; after the last act they answer.
///
/// `files/write` and `files/delete` have side effects; `files/read` and `time/now` are repeatable.
pub struct FakeTools {
    world: Arc<ToolEffects>,
    acts: Mutex<VecDeque<FakeToolAct>>,
    delay: Duration,
    at_once: AtomicU64,
    max_concurrent: AtomicU64,
}

impl FakeTools {
    /// Tools with these acts and side effects, each after a delay.
    pub fn new(
        world: &Arc<ToolEffects>,
        acts: impl IntoIterator<Item = FakeToolAct>,
        delay: Duration,
    ) -> Self {
        Self {
            world: Arc::clone(world),
            acts: Mutex::new(acts.into_iter().collect()),
            delay,
            at_once: AtomicU64::new(0),
            max_concurrent: AtomicU64::new(0),
        }
    }

    /// The largest number of concurrent calls.
    pub fn max_concurrent(&self) -> u64 {
        self.max_concurrent.load(Ordering::SeqCst)
    }

    fn perform(&self, tool: &ToolName, arguments: &Map<String, Value>) {
        if is_repeatable(tool) {
            return;
        }
        let number = arguments.get("n").and_then(Value::as_u64).unwrap();
        *self.world.effects.lock().unwrap().entry(number).or_default() += 1;
    }
}

impl Default for FakeTools {
    fn default() -> Self {
        Self::new(&Arc::default(), [], Duration::from_millis(5))
    }
}

fn is_repeatable(tool: &ToolName) -> bool {
    ["files/read", "time/now"].contains(&tool.as_str())
}

impl ToolDriver for FakeTools {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        _call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let offered = ["files/read", "files/write", "files/delete", "time/now"]
            .into_iter()
            .map(|name| name.parse::<ToolName>().unwrap())
            .filter(|name| patterns.iter().any(|pattern| pattern.covers(name)))
            .map(|name| {
                let (schema, timeout) = (schema.as_object().unwrap(), Duration::from_secs(5));
                let repeatable = is_repeatable(&name);
                let (schema, text) = (schema.clone(), String::new());
                Arc::new(ToolSpec::new(name, text, schema, None, repeatable, timeout, Vec::new()))
            })
            .collect();
        Box::pin(async { Ok(Arc::new(Toolbox::new(offered, Vec::new()))) })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let ToolRequest { tool, arguments, limit, .. } = request;
        let lost = |message: &str, maybe_done, timed_out| {
            let category = ErrorCategory::Transient;
            let failure = AttemptFailure { category, message: message.to_owned() };
            ToolFailure { failure, maybe_done, timed_out }
        };
        Box::pin(async move {
            let act = self.acts.lock().unwrap().pop_front().unwrap_or(FakeToolAct::Answer);
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.max_concurrent.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(self.delay).await;
            if act != FakeToolAct::NotReached {
                self.perform(tool, arguments);
            }
            tokio::time::sleep(self.delay).await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            let content = format!("{tool} {}", arguments["n"]);
            match act {
                FakeToolAct::Answer => Ok(ToolReply { content, ..ToolReply::default() }),
                FakeToolAct::Error => {
                    Ok(ToolReply { content, is_error: true, ..ToolReply::default() })
                }
                FakeToolAct::NotReached => Err(lost("the connection was lost", false, false)),
                FakeToolAct::Lost => Err(lost("the connection was lost", true, false)),
                FakeToolAct::Hang => {
                    tokio::time::sleep(limit).await;
                    Err(lost("the tool took too long", true, true))
                }
            }
        })
    }
}

//! Fakes of a runtime's dependencies: scripted models, a clock that follows Tokio's time, seeded
//! randomness and leases that tests end.

use std::collections::{BTreeMap, VecDeque};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{
    AgentDefinition, Home, HomeFile, HomeSettings, Limits, ScriptDefinition, TokenPrice,
};
use polity_engine::clock::{Clock, whole_microseconds};
use polity_engine::commands::CreateTask;
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, ConversationHistory, ModelDriver,
    ModelFailure, ModelReply, ModelRequest, NotReady, TextSink,
};
use polity_engine::entropy::EntropySource;
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::{CancelOutcome, ControlDeps, EngineError, RuntimeDeps, cancel};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::{InstanceId, TaskId, ToolCallId};
use polity_model::message::Message;
use polity_model::usage::Usage;
use polity_store::{
    DedicatedThread, Lease, LeaseError, Leases, MemoryLeases, MemorySlotPools, Store, StoreFuture,
};
use serde_json::Map;

use crate::tools::{FakeTools, ToolEffects};

/// Follows Tokio's time, so that a paused test waits for nothing.
pub struct TokioClock {
    began: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that begins now, at a fixed date.
    pub fn new() -> Self {
        Self { began: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.began.elapsed()).unwrap();
        whole_microseconds(Timestamp::from_second(1_767_225_600).unwrap() + since)
    }
}

/// Seeds that count up.
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// Equal numbers give equal seeds.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed << 32))
    }
}

impl EntropySource for SeededEntropy {
    fn seed(&self) -> [u8; 16] {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        // Spread, so that consecutive seeds differ in their first bytes.
        (u128::from(count) + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            .to_be_bytes()
    }
}

/// The leases and slots of a home. A lease outlives its runtime until a test ends it.
#[derive(Default)]
pub struct TestLeases {
    leases: MemoryLeases,
    slots: MemorySlotPools,
    held: Mutex<BTreeMap<InstanceId, Arc<dyn Lease>>>,
}

impl TestLeases {
    /// The lease of an instance, acquired if it is not held.
    pub fn start(&self, instance: InstanceId) -> Arc<dyn Lease> {
        let mut held = self.held.lock().unwrap();
        let acquire = || self.leases.acquire(instance).wait().unwrap().into();
        Arc::clone(held.entry(instance).or_insert_with(acquire))
    }

    /// Ends the lease of an instance, as its death does.
    pub fn end(&self, instance: InstanceId) {
        self.leases.expire(instance);
        self.held.lock().unwrap().remove(&instance);
    }
}

impl Leases for TestLeases {
    fn acquire(&self, instance: InstanceId) -> StoreFuture<'_, Box<dyn Lease>, LeaseError> {
        self.leases.acquire(instance)
    }

    fn is_alive(&self, instance: InstanceId) -> StoreFuture<'_, bool, LeaseError> {
        self.leases.is_alive(instance)
    }

    fn live_instances(&self) -> StoreFuture<'_, Vec<InstanceId>, LeaseError> {
        self.leases.live_instances()
    }

    fn remove_ended(&self) -> StoreFuture<'_, (), LeaseError> {
        self.leases.remove_ended()
    }
}

/// The reaction of a fake model to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeModelTurn {
    /// Answers with a text.
    Answer(&'static str),
    /// Requests tools, each with a unique number.
    RequestTools(&'static [&'static str]),
    /// Reports that the conversation exceeds its context.
    ContextFull,
    /// Fails transiently.
    TransientFailure,
    /// Fails permanently.
    PermanentFailure,
    /// Delivers something every minute for this long, then answers "done".
    DeliverFor(Duration),
    /// Never answers.
    Hang,
    /// Panics.
    Panic,
}

/// Models that play these turns in order; after the last one, they answer "done".
pub struct FakeModels {
    turns: Mutex<VecDeque<FakeModelTurn>>,
    /// The duration of each call.
    delay: Duration,
    calls: AtomicU64,
    at_once: AtomicU64,
    max_concurrent: AtomicU64,
    world: Arc<ToolEffects>,
}

impl FakeModels {
    /// Models with these turns, each after a delay.
    pub fn new(turns: impl IntoIterator<Item = FakeModelTurn>, delay: Duration) -> Self {
        Self {
            turns: Mutex::new(turns.into_iter().collect()),
            delay,
            calls: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            max_concurrent: AtomicU64::new(0),
            world: Arc::default(),
        }
    }

    /// Takes the numbers of its tool requests from these effects.
    pub fn on(mut self, world: &Arc<ToolEffects>) -> Self {
        self.world = Arc::clone(world);
        self
    }

    fn request(&self, tool: &str) -> AskedTool {
        let (server, tool) = tool.split_once('/').unwrap_or(("", tool));
        let arguments = match server {
            "agent" => Map::from_iter([("task_description".to_owned(), "a part".into())]),
            _ => Map::from_iter([("n".to_owned(), self.world.next().into())]),
        };
        AskedTool {
            server: server.to_owned(),
            tool: tool.to_owned(),
            arguments: AskedArguments::Object(arguments),
            signature: None,
        }
    }

    /// The number of calls.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The largest number of concurrent calls.
    pub fn max_concurrent(&self) -> u64 {
        self.max_concurrent.load(Ordering::SeqCst)
    }
}

/// Counts a call as over when it is answered or abandoned.
struct RunningCallGuard<'a>(&'a AtomicU64);

impl Drop for RunningCallGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ModelDriver for FakeModels {
    fn ready(&self, _pinned: &PinnedAgent) -> Result<(), NotReady> {
        Ok(())
    }

    fn price(&self, _pinned: &PinnedAgent) -> Option<TokenPrice> {
        Some(TokenPrice::FREE)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            check_history(request.history);
            self.calls.fetch_add(1, Ordering::SeqCst);
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.max_concurrent.fetch_max(now, Ordering::SeqCst);
            let _running = RunningCallGuard(&self.at_once);
            let turn =
                self.turns.lock().unwrap().pop_front().unwrap_or(FakeModelTurn::Answer("done"));
            tokio::time::sleep(self.delay).await;
            match turn {
                FakeModelTurn::Answer(content) => Ok(reply(content, Vec::new())),
                FakeModelTurn::RequestTools(tools) => {
                    Ok(reply("", tools.iter().map(|tool| self.request(tool)).collect()))
                }
                FakeModelTurn::ContextFull => {
                    let failure = failure(ErrorCategory::Permanent);
                    Err(ModelFailure { context_full: true, ..failure })
                }
                FakeModelTurn::TransientFailure => Err(failure(ErrorCategory::Transient)),
                FakeModelTurn::PermanentFailure => Err(failure(ErrorCategory::Permanent)),
                FakeModelTurn::DeliverFor(duration) => {
                    deliver(request.progress, duration).await;
                    Ok(reply("done", Vec::new()))
                }
                FakeModelTurn::Hang => std::future::pending().await,
                FakeModelTurn::Panic => panic!("scripted failure"),
            }
        })
    }
}

/// Delivers something every minute.
async fn deliver(progress: &dyn TextSink, duration: Duration) {
    const MINUTE: Duration = Duration::from_mins(1);
    for _ in 0..duration.as_secs() / MINUTE.as_secs() {
        tokio::time::sleep(MINUTE).await;
        progress.progress();
    }
}

/// Checks the rule of real models: each tool call is followed by its answers, in order, and no
/// answer has no call.
fn check_history(history: ConversationHistory<'_>) {
    let mut open: VecDeque<ToolCallId> = VecDeque::new();
    for message in history.iter() {
        match message {
            Message::Tool { tool_call_id, .. } => {
                assert_eq!(open.pop_front(), Some(*tool_call_id), "an answer out of place");
            }
            Message::User { .. } | Message::Assistant { .. } | Message::System { .. } => {
                assert!(open.is_empty(), "a tool call without its answer");
                open.extend(message.tool_calls().iter().map(|call| call.id));
            }
        }
    }
    assert!(open.is_empty(), "a tool call without its answer");
}

fn reply(content: &str, tool_calls: Vec<AskedTool>) -> ModelReply {
    let usage = Usage { input_tokens: 3, output_tokens: 1, ..Usage::default() };
    ModelReply {
        content: content.to_owned(),
        tool_calls,
        usage,
        ending: AnswerEnding::Complete,
        stop_reason: None,
        mark: None,
    }
}

fn failure(category: ErrorCategory) -> ModelFailure {
    let failure = AttemptFailure { category, message: format!("scripted failure: {category}") };
    ModelFailure::new(failure)
}

/// A minimal agent with a script.
pub fn pinned() -> PinnedAgent {
    let agent = r#"{"kind": "llm", "name": "greeter", "role": "greets", "system_prompt": "Greet.",
        "tools": ["files/*", "time/now"], "approval": ["files/delete"],
        "llm_config": {"provider": "scripted", "script": "greeter"}}"#;
    let script = r#"{"default": {"reply": "Hello."}}"#;
    let name = "greeter".parse().unwrap();
    PinnedAgent::alone(
        Arc::new(AgentDefinition::from_canonical(agent).unwrap()),
        Some(Arc::new(ScriptDefinition::from_canonical(&name, script).unwrap())),
    )
}

/// An agent with the sub-agents `helper` and `deputy`; `deputy` has the sub-agent `helper`. Each has
/// the tools of [`pinned`].
pub fn boss() -> PinnedAgent {
    let home = Home::parse(vec![
        file("polity.yaml", "{}"),
        file("agents/boss.yaml", &agent("boss", "helper, deputy")),
        file("agents/deputy.yaml", &agent("deputy", "helper")),
        file("agents/helper.yaml", &agent("helper", "")),
        file("scripts/greeter.yaml", "default: {reply: Hello.}"),
        file(
            "config/mcp_servers.yaml",
            "servers: [{name: files, transport: sse, config: {url: 'http://localhost/files'}}, \
             {name: time, transport: sse, config: {url: 'http://localhost/time'}}]",
        ),
    ]);
    assert!(home.problems.is_empty(), "{:?}", home.problems);
    let boss = Arc::clone(&home.agents["boss"]);
    PinnedAgent::of(&home, boss).unwrap()
}

fn agent(name: &str, sub_agents: &str) -> String {
    format!(
        "{{kind: llm, name: {name}, role: {name}, system_prompt: I am {name}., \
         tools: [files/*, time/now], approval: [files/delete], sub_agents: [{sub_agents}], \
         llm_config: {{provider: scripted, script: greeter}}}}"
    )
}

fn file(path: &str, text: &str) -> HomeFile {
    HomeFile { path: path.to_owned(), text: Ok(text.to_owned()) }
}

/// A task for that agent.
pub fn create_task(description: &str) -> CreateTask {
    CreateTask::new(pinned(), description)
}

/// The dependencies of a runtime: these models on this store, two tasks at once.
pub fn runtime_deps(
    store: Arc<dyn Store>,
    models: Arc<dyn ModelDriver>,
    leases: &Arc<TestLeases>,
    instance: InstanceId,
    seed: u64,
) -> RuntimeDeps {
    RuntimeDeps {
        store,
        models,
        programs: Arc::new(crate::programs::FakeCliAgents::default()),
        remotes: Arc::new(crate::remotes::FakeRemotes::new([])),
        tools: Arc::new(FakeTools::default()),
        slots: Arc::new(leases.slots.clone()),
        clock: Arc::new(TokioClock::new()),
        entropy: Arc::new(SeededEntropy::new(seed)),
        leases: Arc::clone(leases) as Arc<dyn Leases>,
        lease: leases.start(instance),
        dedicated_thread: DedicatedThread::claim(),
        trace_contexts: None,
        limits: Limits {
            concurrent_tasks: NonZeroU32::new(2).unwrap(),
            input_bytes: NonZeroU64::new(1000).unwrap(),
            ..HomeSettings::default().limits
        },
    }
}

/// Cancels a task that no runtime here runs, and that has no work on other servers.
pub async fn cancel_from_outside(
    store: &Arc<dyn Store>,
    leases: &dyn Leases,
    clock: &dyn Clock,
    id: TaskId,
) -> Result<CancelOutcome, EngineError> {
    let remotes = crate::remotes::FakeRemotes::new([]);
    cancel(&ControlDeps { store, leases, clock, remotes: &remotes }, id).await
}

//! Scripted models, and a fixture for agents that delegate to one another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use polity_definition::{Limits, TokenPrice};
use polity_engine::commands::{AnswerReview, CreateTask};
use polity_engine::driver::{
    AskedArguments, AskedTool, BoxFuture, ModelDriver, ModelFailure, ModelReply, ModelRequest,
    NotReady,
};
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::{Runtime, RuntimeDeps, TaskHandle, find_orphans, load_task};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::TaskId;
use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use polity_model::task::Task;
use polity_model::usage::{Cost, Usage};
use polity_store::{MemoryStore, Store, TaskFilter, TaskRow};
use polity_testkit::runtime::{TestLeases, boss, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use serde_json::{Value, json};

/// One reply of a scripted model.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    /// Calls of tools, each with its arguments.
    Ask(Vec<(&'static str, Value)>),
    Fail,
    Hang,
}

pub(crate) fn part(tool: &'static str, what: &str) -> (&'static str, Value) {
    (tool, json!({"task_description": what}))
}

pub(crate) type ReplyScript = BTreeMap<&'static str, Vec<ScriptedReply>>;

/// Models with a script per agent, which record their prompts.
pub(crate) struct TestModels {
    lines: ReplyScript,
    /// The newest prompt of each conversation.
    shown: Mutex<BTreeMap<String, Vec<String>>>,
    at_once: Mutex<(u32, u32)>,
    /// The usage of each call, in units of ten tokens.
    weight: u64,
}

impl TestModels {
    pub(crate) fn new(
        lines: impl IntoIterator<Item = (&'static str, Vec<ScriptedReply>)>,
    ) -> Arc<Self> {
        Self::weighing(1, lines)
    }

    /// Models whose calls use `weight` times ten tokens.
    pub(crate) fn weighing(
        weight: u64,
        lines: impl IntoIterator<Item = (&'static str, Vec<ScriptedReply>)>,
    ) -> Arc<Self> {
        let (shown, at_once) = (Mutex::default(), Mutex::default());
        Arc::new(Self { lines: lines.into_iter().collect(), shown, at_once, weight })
    }

    pub(crate) fn shown(&self) -> BTreeMap<String, Vec<String>> {
        self.shown.lock().unwrap().clone()
    }

    pub(crate) fn max_concurrent(&self) -> u32 {
        self.at_once.lock().unwrap().1
    }
}

impl ModelDriver for TestModels {
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
        let said: Vec<String> =
            request.history.iter().map(|message| message.content().to_owned()).collect();
        self.shown.lock().unwrap().insert(request.call_site.session.to_owned(), said);
        let agent = request.pinned.agent.name.as_str();
        let turn = request.call_site.turn as usize - 1;
        let line = self.lines[agent].get(turn).cloned().unwrap_or(ScriptedReply::Text("done"));
        Box::pin(async move {
            {
                let mut at_once = self.at_once.lock().unwrap();
                at_once.0 += 1;
                at_once.1 = at_once.1.max(at_once.0);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.at_once.lock().unwrap().0 -= 1;
            let usage = Usage {
                input_tokens: 9 * self.weight,
                output_tokens: self.weight,
                cost: Cost::of_tokens(10 * self.weight, 100.0),
            };
            let reply = |content: &str, tool_calls| {
                let content = content.to_owned();
                Ok(ModelReply { content, tool_calls, usage, is_cut: false, mark: None })
            };
            match line {
                ScriptedReply::Text(text) => reply(text, Vec::new()),
                ScriptedReply::Ask(calls) => reply("", calls.into_iter().map(asked).collect()),
                ScriptedReply::Fail => {
                    let (category, message) = (ErrorCategory::Permanent, "no such model".into());
                    Err(ModelFailure::new(AttemptFailure { category, message }))
                }
                ScriptedReply::Hang => std::future::pending().await,
            }
        })
    }
}

fn asked((tool, arguments): (&'static str, Value)) -> AskedTool {
    let (server, tool) = tool.split_once('/').unwrap();
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let (server, tool) = (server.to_owned(), tool.to_owned());
    AskedTool { server, tool, arguments: AskedArguments::Object(arguments), signature: None }
}

pub(crate) struct RuntimeFixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) leases: Arc<TestLeases>,
}

impl RuntimeFixture {
    pub(crate) fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), leases: Arc::default() }
    }

    pub(crate) fn process(&self, number: u64, models: &Arc<TestModels>) -> Runtime {
        self.limited(number, models, |limits| limits)
    }

    pub(crate) fn deps_of_process(&self, number: u64, models: &Arc<TestModels>) -> RuntimeDeps {
        let (store, models) = (Arc::clone(&self.store), Arc::clone(models) as Arc<dyn ModelDriver>);
        runtime_deps(store, models, &self.leases, instance_id(number), number)
    }

    pub(crate) fn limited(
        &self,
        number: u64,
        models: &Arc<TestModels>,
        limit: fn(Limits) -> Limits,
    ) -> Runtime {
        let deps = self.deps_of_process(number, models);
        let limits = limit(deps.limits);
        polity_store::block_on(Runtime::start(RuntimeDeps { limits, ..deps })).unwrap()
    }

    pub(crate) fn kill(&self, number: u64, runtime: Runtime) {
        drop(runtime);
        self.leases.end(instance_id(number));
    }

    pub(crate) fn task(&self, id: TaskId) -> Task {
        self.store.task(&self.store.task_row(id).wait().unwrap().unwrap()).wait().unwrap()
    }

    pub(crate) fn all_tasks(&self) -> Vec<TaskRow> {
        self.store.task_rows(&TaskFilter::default()).wait().unwrap()
    }

    pub(crate) async fn orphan_ids(&self) -> Vec<TaskId> {
        let orphans = find_orphans(&*self.store, &*self.leases, Timestamp::UNIX_EPOCH).await;
        orphans.unwrap().into_iter().map(|row| row.id).collect()
    }

    pub(crate) fn sub_tasks(&self, of: TaskId) -> Vec<TaskRow> {
        let filter = TaskFilter { parent: Some(of), ..TaskFilter::default() };
        let mut rows = self.store.task_rows(&filter).wait().unwrap();
        rows.reverse();
        rows
    }

    pub(crate) fn said(&self, id: TaskId) -> Vec<String> {
        let messages = self.store.messages(id).wait().unwrap();
        messages.iter().map(|message| message.content().to_owned()).collect()
    }

    pub(crate) async fn until(&self, what: &str, look: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if look(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("timed out waiting until {what}");
    }

    pub(crate) async fn answer(&self, runtime: &Runtime, id: TaskId, verdict: ReviewVerdict) {
        let state = load_task(&*self.store, id).await.unwrap().state;
        let checkpoint_id = state.review().unwrap().checkpoint_id;
        let answer = AnswerReview {
            checkpoint_id,
            verdict,
            message: None,
            by: "ada".to_owned(),
            state_updates: StateUpdates::default(),
        };
        runtime.answer(id, answer).await.unwrap();
    }
}

pub(crate) async fn give(runtime: &Runtime, what: &str) -> TaskHandle {
    runtime.create(CreateTask::new(boss(), what)).await.unwrap()
}

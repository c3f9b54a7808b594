//! A harness for workflows: agents that echo their input, fake tools and answered reviews.

use std::sync::atomic::{AtomicBool, Ordering};

use polity_definition::{Home, HomeFile};
use polity_engine::driver::{
    CallSite, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec, Toolbox, ToolsUnavailable,
};
use polity_engine::pinned::PinnedWorkflow;
use polity_model::state::State;
use polity_model::tool::{ToolName, ToolPattern};

use crate::participants::asked;
use crate::prelude::*;
use crate::workflow_programs::WorkflowPrograms;

/// The agents. `asker` calls a tool that needs approval.
const AGENTS: [&str; 6] = ["ann", "bob", "cid", "dot", "eve", "asker"];

/// The behaviour of an agent.
#[derive(Debug, Clone)]
pub(crate) enum AgentBehaviour {
    /// Answers with its name and, in brackets, its input.
    Echo,
    /// Answers with this text.
    Say(String),
    /// Fails permanently.
    Fail,
    /// Never answers.
    Hang,
}

/// Models with a behaviour per agent.
#[derive(Default)]
pub(crate) struct WorkflowModels {
    parts: Mutex<BTreeMap<String, AgentBehaviour>>,
    delays: Mutex<BTreeMap<String, u64>>,
    /// The called agents, in order.
    called: Mutex<Vec<String>>,
}

impl WorkflowModels {
    pub(crate) fn called(&self) -> Vec<String> {
        self.called.lock().unwrap().clone()
    }
}

impl ModelDriver for WorkflowModels {
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
        let agent = request.pinned.agent.name.to_string();
        let part = self.parts.lock().unwrap().get(&agent).cloned().unwrap_or(AgentBehaviour::Echo);
        let delay = self.delays.lock().unwrap().get(&agent).copied().unwrap_or(20);
        self.called.lock().unwrap().push(agent.clone());
        let first = request.history.iter().next();
        let given = first.map(|first| first.content().to_owned()).unwrap_or_default();
        let asks = agent == "asker" && request.call_site.turn == 1;
        Box::pin(async move {
            sleep(delay).await;
            let usage = Usage { input_tokens: 8, output_tokens: 2, ..Usage::default() };
            let reply = |content: String, tool_calls| {
                Ok(ModelReply {
                    content,
                    tool_calls,
                    usage,
                    ending: AnswerEnding::Complete,
                    stop_reason: None,
                    mark: None,
                })
            };
            if asks {
                return reply(String::new(), vec![asked(("kit/delete", json!({"text": given})))]);
            }
            match part {
                AgentBehaviour::Echo => reply(format!("{agent}({given})"), Vec::new()),
                AgentBehaviour::Say(text) => reply(text, Vec::new()),
                AgentBehaviour::Fail => Err(ModelFailure::new(permanent("no such model"))),
                AgentBehaviour::Hang => std::future::pending().await,
            }
        })
    }
}

/// The tools of the server `kit`. Each takes a `text` and an optional duration `ms`.
///
/// `echo` returns its text and is repeatable. `note` and `delete` record it and are not repeatable.
/// `error` and `shaky` fail; `echo` is the fallback of `shaky`.
#[derive(Default)]
pub(crate) struct WorkflowTools {
    /// The recorded texts.
    notes: Mutex<Vec<String>>,
    /// The number of calls that fail before one reaches a tool.
    lost: Mutex<u32>,
    calls: Mutex<u32>,
    dropped: Mutex<u32>,
    is_down: AtomicBool,
}

impl WorkflowTools {
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }

    /// Records a text.
    pub(crate) fn note(&self, text: String) {
        self.notes.lock().unwrap().push(text);
    }

    pub(crate) fn calls(&self) -> u32 {
        *self.calls.lock().unwrap()
    }

    /// The number of calls dropped before they ended.
    pub(crate) fn dropped(&self) -> u32 {
        *self.dropped.lock().unwrap()
    }

    pub(crate) fn lose(&self, calls: u32) {
        *self.lost.lock().unwrap() = calls;
    }

    pub(crate) fn is_down(&self, down: bool) {
        self.is_down.store(down, Ordering::SeqCst);
    }
}

/// Counts a call that is dropped before its end.
struct DroppedCallCounter<'a>(&'a WorkflowTools, bool);

impl Drop for DroppedCallCounter<'_> {
    fn drop(&mut self) {
        if !self.1 {
            *self.0.dropped.lock().unwrap() += 1;
        }
    }
}

impl ToolDriver for WorkflowTools {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        patterns: &'a [ToolPattern],
        _call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        let schema = json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "ms": {"type": "integer"}},
            "required": ["text"],
        });
        let schema = schema.as_object().unwrap();
        let tool = |name: &str| {
            let fallback = if name == "shaky" { vec!["kit/echo".parse().unwrap()] } else { vec![] };
            let repeatable = name == "echo";
            let name = format!("kit/{name}").parse::<ToolName>().unwrap();
            let (text, limit) = (String::new(), Duration::from_secs(5));
            Arc::new(ToolSpec::new(name, text, schema.clone(), None, repeatable, limit, fallback))
        };
        let all = ["echo", "note", "delete", "error", "shaky"].map(tool);
        let (offered, reserve) = all
            .into_iter()
            .partition(|tool| patterns.iter().any(|pattern| pattern.covers(&tool.name)));
        let is_down = self.is_down.load(Ordering::SeqCst);
        Box::pin(async move {
            if is_down {
                return Err(ToolsUnavailable { failure: transient("kit is down") });
            }
            Ok(Arc::new(Toolbox::new(offered, reserve)))
        })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let ToolRequest { tool, arguments, limit, .. } = request;
        *self.calls.lock().unwrap() += 1;
        let text = arguments["text"].as_str().unwrap().to_owned();
        let takes = arguments.get("ms").and_then(Value::as_u64).unwrap_or(20);
        let left = self.lost.lock().unwrap().checked_sub(1);
        let is_lost = left.is_some();
        *self.lost.lock().unwrap() = left.unwrap_or(0);
        let takes = Duration::from_millis(takes);
        Box::pin(async move {
            if is_lost {
                let failure = transient("the connection was lost");
                return Err(ToolFailure { failure, maybe_done: false, timed_out: false });
            }
            let mut call = DroppedCallCounter(self, false);
            if matches!(tool.tool(), "note" | "delete") {
                self.note(text.clone());
            }
            tokio::time::sleep(takes.min(limit)).await;
            call.1 = true;
            if takes > limit {
                let failure = transient("it took too long");
                return Err(ToolFailure { failure, maybe_done: true, timed_out: true });
            }
            let is_error = matches!(tool.tool(), "error" | "shaky");
            let content = if is_error { format!("no: {text}") } else { text };
            Ok(ToolReply { content, is_error, ..ToolReply::default() })
        })
    }
}

/// A home with one workflow of these nodes and edges, entered at the first node.
pub(crate) fn workflow(nodes: &str) -> WorkflowHarness {
    let (entry_point, _) = nodes.trim().split_once(':').unwrap();
    let workflow = format!("name: test\nentry_point: {entry_point}\nnodes:\n{nodes}");
    WorkflowHarness::new(&[&workflow])
}

/// A home with workflows, and the fakes that run them.
pub(crate) struct WorkflowHarness {
    pub(crate) base: RuntimeFixture,
    pub(crate) models: Arc<WorkflowModels>,
    pub(crate) tools: Arc<WorkflowTools>,
    pub(crate) programs: Arc<WorkflowPrograms>,
    home: Home,
    first: String,
    limits: fn(Limits) -> Limits,
}

impl WorkflowHarness {
    /// A home with these workflows, of which the first is run.
    pub(crate) fn new(workflows: &[&str]) -> Self {
        let mut files = vec![file("polity.yaml", "{}")];
        for name in AGENTS {
            files.push(file(&format!("agents/{name}.yaml"), &agent(name)));
        }
        files.push(file("scripts/part.yaml", "default: {reply: Hello.}"));
        files.push(file("steps/note.sh", "echo note"));
        let servers = "servers: [{name: kit, transport: sse, config: {url: 'http://localhost/'}}]";
        files.push(file("config/mcp_servers.yaml", servers));
        let mut names = Vec::new();
        for workflow in workflows {
            let name = workflow.trim().lines().next().unwrap().trim_start_matches("name: ");
            files.push(file(&format!("workflows/{name}.yaml"), workflow));
            names.push(name.to_owned());
        }
        let home = Home::parse(files);
        assert!(home.problems.is_empty(), "{:?}", home.problems);
        let tools = Arc::default();
        Self {
            base: RuntimeFixture::new(),
            models: Arc::default(),
            programs: Arc::new(WorkflowPrograms::new(&tools)),
            tools,
            home,
            first: names.swap_remove(0),
            limits: |limits| limits,
        }
    }

    pub(crate) fn limited(mut self, limits: fn(Limits) -> Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) fn play(&self, agent: &str, part: AgentBehaviour) {
        self.models.parts.lock().unwrap().insert(agent.to_owned(), part);
    }

    /// Sets the duration of an agent's calls.
    pub(crate) fn takes(&self, agent: &str, ms: u64) {
        self.models.delays.lock().unwrap().insert(agent.to_owned(), ms);
    }

    pub(crate) fn all_take(&self, delays: &[(&str, u64)]) {
        for (agent, ms) in delays {
            self.takes(agent, *ms);
        }
    }

    pub(crate) fn runtime(&self, number: u64) -> Runtime {
        self.runtime_on(Arc::clone(&self.base.store), number)
    }

    /// A process with its own view of the journal.
    pub(crate) fn runtime_on(&self, store: Arc<dyn Store>, number: u64) -> Runtime {
        let deps = self.base.deps_on(store, number, self.models.clone());
        let limits = (self.limits)(Limits {
            concurrent_tasks: NonZeroU32::new(8).unwrap(),
            input_bytes: NonZeroU64::new(1_000_000).unwrap(),
            ..deps.limits
        });
        let (tools, programs) = (self.tools.clone(), self.programs.clone());
        start(RuntimeDeps { tools, programs, limits, ..deps })
    }

    pub(crate) fn order(&self, input: &str) -> CreateTask {
        let workflow = Arc::clone(&self.home.workflows[self.first.as_str()]);
        let flow = PinnedWorkflow::of(&self.home, workflow).unwrap().unwrap();
        CreateTask::new(flow, input)
    }

    /// Runs the first workflow until it ends or pauses.
    pub(crate) async fn run(&self, input: &str) -> Task {
        self.start(input).await.1
    }

    /// Runs the first workflow until it ends or pauses, and returns the process too.
    pub(crate) async fn start(&self, input: &str) -> (Runtime, Task) {
        let runtime = self.runtime(1);
        let task = self.run_on(&runtime, self.order(input)).await;
        (runtime, task)
    }

    pub(crate) async fn run_on(&self, runtime: &Runtime, order: CreateTask) -> Task {
        self.wait(&mut runtime.create(order).await.unwrap()).await
    }

    pub(crate) async fn wait(&self, handle: &mut TaskHandle) -> Task {
        let timeout = Duration::from_hours(24);
        let waited = tokio::time::timeout(timeout, handle.wait()).await;
        let left = waited.unwrap_or_else(|_| panic!("never left: {:#?}", self.nodes(handle.id)));
        left.unwrap();
        self.base.task(handle.id)
    }

    /// Answers the open review and resumes the task.
    pub(crate) async fn answer(
        &self,
        runtime: &Runtime,
        id: TaskId,
        verdict: ReviewVerdict,
    ) -> Task {
        self.base.answer(runtime, id, verdict).await;
        self.go_on(runtime, id).await
    }

    /// Adopts the task.
    pub(crate) async fn go_on(&self, runtime: &Runtime, id: TaskId) -> Task {
        self.wait(&mut runtime.adopt(id).await.unwrap()).await
    }

    /// Answers the open review with a message and updates.
    pub(crate) async fn say(
        &self,
        runtime: &Runtime,
        id: TaskId,
        verdict: ReviewVerdict,
        message: Option<&str>,
        updates: Value,
    ) -> Result<(), EngineError> {
        let checkpoint_id = self.base.load(id).await.review().unwrap().checkpoint_id;
        let state_updates = StateUpdates::new(updates.as_object().unwrap().clone()).unwrap();
        let message = message.map(str::to_owned);
        let answer = answer_review(checkpoint_id, verdict);
        runtime.answer(id, AnswerReview { message, state_updates, ..answer }).await
    }

    pub(crate) async fn question(&self, id: TaskId) -> String {
        let state = self.base.load(id).await;
        state.review().map(|review| review.question.clone()).unwrap_or_default()
    }

    pub(crate) async fn state(&self, id: TaskId) -> State {
        self.base.load(id).await.state()
    }

    /// The texts of the messages, in order.
    pub(crate) async fn message_texts(&self, id: TaskId) -> Vec<String> {
        let state = self.state(id).await;
        state.messages.messages().iter().map(|message| message.content().to_owned()).collect()
    }

    /// The changes of the nodes, in order, as `node: change`.
    pub(crate) fn nodes(&self, id: TaskId) -> Vec<String> {
        let events = self.base.events(id);
        let changes = events.iter().filter_map(|event| {
            let Event::NodeChanged { node, change } = event else { return None };
            Some(match change {
                NodeChange::Start { .. } => format!("{node}: start"),
                NodeChange::Finish { .. } => format!("{node}: finish"),
                NodeChange::StartItem { item, .. } => format!("{node}: start {item}"),
                NodeChange::FinishItems { first, outputs } => {
                    format!("{node}: finish {} from {first}", outputs.len())
                }
                NodeChange::FailItem { item, code, .. } => format!("{node}: {item} {code}"),
                NodeChange::Fail { code, .. } => format!("{node}: {code}"),
                NodeChange::Drop => format!("{node}: drop"),
            })
        });
        changes.collect()
    }

    /// The checkpoints' numbers and nodes, in order.
    pub(crate) fn checkpoints(&self, id: TaskId) -> Vec<(u32, String)> {
        let checkpoints = self.base.events(id).into_iter().filter_map(|event| match event {
            Event::CheckpointTaken { sequence, node, .. } => Some((sequence, node)),
            _ => None,
        });
        checkpoints.collect()
    }

    /// The numbers of the checkpoints, in order.
    pub(crate) fn checkpoint_numbers(&self, id: TaskId) -> Vec<u32> {
        self.base.events(id).iter().filter_map(Event::checkpoint).collect()
    }

    /// The number of starts of a node.
    pub(crate) fn starts(&self, id: TaskId, node: &str) -> usize {
        let start = format!("{node}: start");
        self.nodes(id).into_iter().filter(|change| *change == start).count()
    }
}

/// The result of a task, or its error code and error.
pub(crate) fn end(task: &Task) -> String {
    match (&task.error_code, &task.error) {
        (Some(code), Some(error)) => format!("{code}: {error}"),
        _ => task.result.clone().unwrap_or_else(|| task.status.to_string()),
    }
}

/// A state without its times and ids, to compare two runs.
pub(crate) fn comparable(state: &State) -> Value {
    let messages = state.messages.messages().iter().map(|message| match message {
        Message::User { content, .. } => json!(["user", content]),
        Message::Assistant { content, .. } => json!(["assistant", content]),
        Message::System { content, .. } => json!(["system", content]),
        Message::Tool { content, .. } => json!(["tool", content]),
    });
    json!({
        "messages": messages.collect::<Vec<_>>(),
        "routing_key": state.routing_key,
        "next_action": state.next_action,
        "current_agent": state.current_agent.as_str(),
        "metadata": state.metadata,
    })
}

fn agent(name: &str) -> String {
    format!(
        "{{kind: llm, name: {name}, role: {name}, system_prompt: I am {name}., tools: [kit/*], \
         approval: [kit/delete], max_retries: 0, \
         llm_config: {{provider: scripted, script: part}}}}"
    )
}

fn file(path: &str, text: &str) -> HomeFile {
    HomeFile { path: path.to_owned(), text: Ok(text.to_owned()) }
}

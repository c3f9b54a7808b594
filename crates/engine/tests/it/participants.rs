//! Scripted models for agents that delegate to one another.

use polity_model::usage::Cost;

use crate::prelude::*;

/// One reply of a scripted model.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    /// Calls of tools, each with its arguments.
    Ask(Vec<(&'static str, Value)>),
    Fail,
    /// Fails transiently, however often it is asked.
    Outage,
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
    pub(crate) fn new<const N: usize>(lines: [(&'static str, Vec<ScriptedReply>); N]) -> Arc<Self> {
        Self::weighing(1, lines.into())
    }

    /// Models whose calls use `weight` times ten tokens.
    pub(crate) fn weighing(weight: u64, lines: ReplyScript) -> Arc<Self> {
        Arc::new(Self { lines, shown: Mutex::default(), at_once: Mutex::default(), weight })
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
        let texts: Vec<String> =
            request.history.iter().map(|message| message.content().to_owned()).collect();
        self.shown.lock().unwrap().insert(request.call_site.session.to_owned(), texts);
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
                ..Usage::default()
            };
            let reply = |content: &str, tool_calls| {
                let content = content.to_owned();
                Ok(ModelReply {
                    content,
                    tool_calls,
                    usage,
                    ending: AnswerEnding::Complete,
                    stop_reason: None,
                    mark: None,
                })
            };
            match line {
                ScriptedReply::Text(text) => reply(text, Vec::new()),
                ScriptedReply::Ask(calls) => reply("", calls.into_iter().map(asked).collect()),
                ScriptedReply::Fail => Err(ModelFailure::new(permanent("no such model"))),
                ScriptedReply::Outage => Err(ModelFailure::new(transient("overloaded"))),
                ScriptedReply::Hang => std::future::pending().await,
            }
        })
    }
}

/// A call of a tool with these arguments, an object.
pub(crate) fn asked((tool, arguments): (&str, Value)) -> AskedTool {
    let (server, tool) = tool.split_once('/').unwrap();
    let arguments = AskedArguments::Object(serde_json::from_value(arguments).unwrap());
    AskedTool { server: server.to_owned(), tool: tool.to_owned(), arguments, signature: None }
}

impl RuntimeFixture {
    pub(crate) fn process(&self, number: u64, models: &Arc<TestModels>) -> Runtime {
        self.limited(number, models, |limits| limits)
    }

    pub(crate) fn limited(
        &self,
        number: u64,
        models: &Arc<TestModels>,
        limit: fn(Limits) -> Limits,
    ) -> Runtime {
        let deps = self.deps(number, models.clone());
        start(RuntimeDeps { limits: limit(deps.limits), ..deps })
    }
}

/// A boss that asks this many helpers at once.
pub(crate) fn helpers(count: u32) -> [(&'static str, Vec<ScriptedReply>); 2] {
    let parts = (0..count).map(|number| part("agent/helper", &number.to_string())).collect();
    [("boss", vec![ScriptedReply::Ask(parts)]), ("helper", vec![])]
}

/// A task of the boss.
pub(crate) fn for_boss(what: &str) -> CreateTask {
    CreateTask::new(boss(), what)
}

pub(crate) async fn create_boss_task(runtime: &Runtime, what: &str) -> TaskHandle {
    runtime.create(for_boss(what)).await.unwrap()
}

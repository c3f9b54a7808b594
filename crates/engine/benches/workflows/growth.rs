//! The disk usage of a long conversation.

use std::sync::Arc;
use std::time::Duration;

use polity_definition::{AgentDefinition, TokenPrice};
use polity_engine::commands::CreateTask;
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, CallSite, ModelDriver, ModelFailure,
    ModelReply, ModelRequest, NotReady, ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec,
    Toolbox, ToolsUnavailable,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::machine::task::TaskStatus;
use polity_model::tool::ToolPattern;
use polity_model::usage::Usage;
use polity_store::CommitDurability;
use polity_testkit::bench::figure;
use serde_json::{Map, json};

use crate::fixture::{block_on, folder, open, runtime_with};

/// The number of messages of the conversation after the first.
const TURNS: u32 = 400;

const MESSAGE_BYTES: usize = 1000;

pub(crate) fn measure() {
    let [half, full] = [TURNS / 2, TURNS].map(size);
    let (raw, half_raw) = (raw(TURNS), raw(TURNS / 2));
    let ratio = full / raw;
    let growth = (full / half) / (raw / half_raw);
    figure(
        &format!("a conversation of {TURNS} turns of 1 kB on the disk"),
        &format!(
            "{:.0} kB, {ratio:.2} times the text; twice the turns take {:.2} times the space",
            full / 1e3,
            full / half
        ),
        "≤ 3 times, linear (LangGraph: 841 times, 17 with deltas)",
        ratio <= 3.0 && growth <= 1.1,
    );
}

fn raw(turns: u32) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below what a float holds")]
    let bytes = MESSAGE_BYTES as f64;
    f64::from(turns) * bytes
}

/// The size of the database after so many messages, in bytes.
fn size(turns: u32) -> f64 {
    let folder = folder();
    let path = folder.path().join("polity.db");
    block_on(async {
        let store = open(&path, CommitDurability::Relaxed);
        let echo = Arc::new(EchoConversation { rounds: turns / 2 });
        let (models, tools) =
            (Arc::clone(&echo) as Arc<dyn ModelDriver>, echo as Arc<dyn ToolDriver>);
        let runtime = runtime_with(&store, 1, models, tools);
        let mut handle = runtime.create(CreateTask::new(agent(turns), "Talk.")).await.unwrap();
        assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
    });
    // The database is closed, and its log with it.
    #[expect(clippy::cast_precision_loss, reason = "far below what a float holds")]
    let bytes = std::fs::metadata(&path).unwrap().len() as f64;
    bytes
}

fn agent(turns: u32) -> PinnedAgent {
    let agent = json!({
        "kind": "llm", "name": "talker", "role": "talks", "system_prompt": "Talk.",
        "tools": ["echo/say"], "max_iterations": turns + 1,
        "llm_config": {"provider": "scripted", "script": "talker"},
    });
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    PinnedAgent::alone(Arc::new(agent), None)
}

/// A model and a tool that send texts of equal size for a number of rounds.
pub(crate) struct EchoConversation {
    pub(crate) rounds: u32,
}

fn text(number: usize) -> String {
    format!("{number:08} ").repeat(MESSAGE_BYTES / 9 + 1)[..MESSAGE_BYTES].to_owned()
}

impl ModelDriver for EchoConversation {
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
            let messages = request.history.iter().count();
            let is_over = messages > self.rounds as usize * 2;
            let ask = AskedTool {
                server: "echo".to_owned(),
                tool: "say".to_owned(),
                arguments: AskedArguments::Object(Map::from_iter([(
                    "n".to_owned(),
                    messages.into(),
                )])),
                signature: None,
            };
            Ok(ModelReply {
                content: text(messages),
                tool_calls: if is_over { Vec::new() } else { vec![ask] },
                usage: Usage::default(),
                ending: AnswerEnding::Complete,
                stop_reason: None,
                mark: None,
            })
        })
    }
}

impl ToolDriver for EchoConversation {
    fn ready(&self, _patterns: &[ToolPattern]) -> Result<(), NotReady> {
        Ok(())
    }

    fn toolbox<'a>(
        &'a self,
        _patterns: &'a [ToolPattern],
        _call_site: CallSite<'a>,
    ) -> BoxFuture<'a, Result<Arc<Toolbox>, ToolsUnavailable>> {
        Box::pin(async {
            let name = "echo/say".parse().unwrap();
            let second = Duration::from_secs(1);
            let tool =
                ToolSpec::new(name, String::new(), Map::new(), None, true, second, Vec::new());
            Ok(Arc::new(Toolbox::new(vec![Arc::new(tool)], Vec::new())))
        })
    }

    fn call<'a>(
        &'a self,
        request: ToolRequest<'a>,
    ) -> BoxFuture<'a, Result<ToolReply, ToolFailure>> {
        let number = request.arguments["n"].as_u64().unwrap_or_default();
        let content = text(usize::try_from(number).unwrap_or_default());
        Box::pin(async move { Ok(ToolReply { content, ..ToolReply::default() }) })
    }
}

//! Agents, messages and calls for the model tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use polity_definition::AgentDefinition;
use polity_drivers::EnvSource;
use polity_drivers::llm::LanguageModels;
use polity_engine::driver::{
    CallSite, ConversationHistory, ModelDriver, ModelFailure, ModelReply, ModelRequest, TextSink,
    ToolSpec, Toolbox,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, ToolCall};
use polity_testkit::model_server::{ModelServer, WireFormat};
use serde_json::{Map, Value, json};

/// The key in every test's environment.
pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// An environment with all key variables and no others.
pub(crate) fn environment() -> EnvSource {
    EnvSource::new(|name| name.ends_with("_API_KEY").then(|| KEY.to_owned()))
}

pub(crate) fn provider(wire: WireFormat) -> &'static str {
    match wire {
        WireFormat::OpenAi | WireFormat::OpenAiResponses => "openai",
        WireFormat::Anthropic => "anthropic",
        WireFormat::Gemini => "gemini",
    }
}

/// An agent of a provider at a URL.
pub(crate) fn agent(provider: &str, url: &str) -> PinnedAgent {
    let agent = json!({"kind": "llm", "name": "greeter", "role": "greets",
        "system_prompt": "Greet everyone.", "temperature": 0.5,
        "llm_config": {"provider": provider, "model": "m-1", "endpoint": url,
            "price": {"input_per_million_usd": 1, "output_per_million_usd": 2}}});
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    PinnedAgent::alone(Arc::new(agent), None)
}

pub(crate) fn toolbox(names: &[&str]) -> Toolbox {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = |name: &&str| {
        let (description, schema) = (format!("does {name}"), schema.as_object().unwrap().clone());
        let (name, second) = (name.parse().unwrap(), Duration::from_secs(1));
        Arc::new(ToolSpec::new(name, description, schema, None, false, second, Vec::new()))
    };
    Toolbox::new(names.iter().map(tool).collect(), Vec::new())
}

/// Collects the text deltas of an answer, and counts the signs of life.
#[derive(Default)]
pub(crate) struct ProgressPieces(pub(crate) Mutex<Vec<String>>, pub(crate) AtomicUsize);

impl TextSink for ProgressPieces {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push(piece.to_owned());
    }

    fn progress(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// A model driver with the constant parts of its calls.
pub(crate) struct ModelHarness {
    pub(crate) models: LanguageModels,
    pub(crate) pinned: PinnedAgent,
    pub(crate) toolbox: Toolbox,
    pub(crate) pieces: ProgressPieces,
}

impl ModelHarness {
    /// Creates a harness for a fake server in one format.
    pub(crate) fn new(wire: WireFormat, server: &ModelServer) -> Self {
        Self::at(provider(wire), &server.url())
    }

    /// Creates a harness for a provider at a URL.
    pub(crate) fn at(provider: &str, url: &str) -> Self {
        Self {
            models: LanguageModels::new(environment()),
            pinned: agent(provider, url),
            toolbox: toolbox(&["files/read", "files/write.all"]),
            pieces: ProgressPieces::default(),
        }
    }

    pub(crate) async fn call(&self, messages: &[Message]) -> Result<ModelReply, ModelFailure> {
        let request = ModelRequest {
            pinned: &self.pinned,
            history: ConversationHistory::whole(messages),
            toolbox: &self.toolbox,
            marks: &[],
            call_site: CallSite::OUTSIDE,
            progress: &self.pieces,
        };
        self.models.call(request).await
    }

    pub(crate) async fn hello(&self) -> Result<ModelReply, ModelFailure> {
        self.call(&[user("Hello.")]).await
    }

    /// Sends a greeting and expects a failure that does not contain the key.
    pub(crate) async fn failure(&self) -> ModelFailure {
        let failure = self.hello().await.unwrap_err();
        assert!(!format!("{failure:?}").contains(KEY), "{failure:?}");
        failure
    }
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub(crate) fn user(content: &str) -> Message {
    Message::User { content: content.to_owned(), timestamp: NOW }
}

pub(crate) fn system(content: &str) -> Message {
    Message::System { content: content.to_owned(), timestamp: NOW }
}

pub(crate) fn assistant(content: &str, tool_calls: &[ToolCall]) -> Message {
    let tool_calls = tool_calls.to_vec();
    Message::Assistant { content: content.to_owned(), tool_calls, timestamp: NOW }
}

pub(crate) fn answer(call: &ToolCall, content: &str) -> Message {
    Message::Tool {
        tool_call_id: call.id,
        content: content.to_owned(),
        is_error: content.starts_with("error"),
        timestamp: NOW,
    }
}

pub(crate) fn call(number: u8, name: &str, arguments: &Value) -> ToolCall {
    let (server, tool) = name.split_once('/').unwrap_or(("", name));
    ToolCall {
        id: ToolCallId::from_random_bytes([number; 16]),
        server: server.to_owned(),
        tool: tool.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_else(Map::new),
        signature: None,
    }
}

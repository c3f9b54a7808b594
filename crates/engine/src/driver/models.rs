//! Calling a model.

use std::time::Duration;

use polity_definition::TokenPrice;
use polity_model::failure::AttemptFailure;
use polity_model::ids::ToolCallId;
use polity_model::message::ToolCall;
use polity_model::usage::Usage;
use serde_json::{Map, Value};

use super::{BoxFuture, CallSite, History, Toolbox};
use crate::pinned::PinnedAgent;

/// One call to a model. It borrows the conversation: nothing of it is copied.
#[derive(Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Who is speaking, with which model.
    pub pinned: &'a PinnedAgent,
    /// What has been said so far, oldest first. Every tool call in it has its answer.
    pub history: History<'a>,
    /// The tools that the model may ask for.
    pub toolbox: &'a Toolbox,
    /// The marks that earlier calls of this task came back with, oldest first.
    pub marks: &'a [u32],
    /// Where in the run this is asked.
    pub call_site: CallSite<'a>,
    /// Who hears of the answer while it grows.
    pub progress: &'a dyn Progress,
}

/// Hears of an answer while it grows. What it is told is not fact: only the finished answer is.
pub trait Progress: Send + Sync {
    /// A piece of the text.
    fn text(&self, piece: &str);
}

/// For answers that no one watches.
#[derive(Debug, Clone, Copy)]
pub struct Unheard;

impl Progress for Unheard {
    fn text(&self, _piece: &str) {}
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// The text.
    pub content: String,
    /// The tools it asks for; ids are given by the engine.
    pub tool_calls: Vec<AskedTool>,
    /// What the call used.
    pub usage: Usage,
    /// Whether the model stopped because it may not say more, and not because it was done.
    pub is_cut: bool,
    /// Something the driver wants to be told again in later calls of this task.
    pub mark: Option<u32>,
}

/// A tool that a model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedTool {
    /// The MCP server. Empty where the model named none that could be made out.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// What to call it with.
    pub arguments: AskedArguments,
    /// What the model wants to be told again together with this call.
    pub signature: Option<String>,
}

/// The arguments that a model gave.
#[derive(Debug, Clone, PartialEq)]
pub enum AskedArguments {
    /// An object, as they must be.
    Object(Map<String, Value>),
    /// Something else.
    Unreadable {
        /// What came.
        text: String,
        /// Why it is no object.
        reason: String,
    },
}

impl AskedTool {
    /// The call, with its id. Arguments that were no object are left out: what was wrong with them
    /// is in the answer to the call.
    pub(crate) fn with_id(&self, id: ToolCallId) -> ToolCall {
        ToolCall {
            id,
            server: self.server.clone(),
            tool: self.tool.clone(),
            arguments: match &self.arguments {
                AskedArguments::Object(arguments) => arguments.clone(),
                AskedArguments::Unreadable { .. } => Map::new(),
            },
            signature: self.signature.clone(),
        }
    }
}

/// A call that brought no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFailure {
    /// Why.
    pub failure: AttemptFailure,
    /// Whether the conversation is longer than the model can read. A shorter one may succeed.
    pub context_full: bool,
    /// How long the server asks to wait before the next try.
    pub retry_after: Option<Duration>,
    /// Something the driver wants to be told again in later calls of this task.
    pub mark: Option<u32>,
}

impl ModelFailure {
    /// A failure with nothing else to say.
    pub fn new(failure: AttemptFailure) -> Self {
        Self { failure, context_full: false, retry_after: None, mark: None }
    }
}

/// An agent's model cannot be called at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotReady {
    /// What is missing.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// Calls models.
pub trait Models: Send + Sync {
    /// Whether the agent's model could be called, as far as can be told without calling it. It is
    /// asked before a task is created, so that what is missing is said at once.
    fn ready(&self, pinned: &PinnedAgent) -> Result<(), NotReady>;

    /// What the agent's model costs, where that is known. A budget in money needs it.
    fn price(&self, pinned: &PinnedAgent) -> Option<TokenPrice>;

    /// Makes one call. Dropping the future abandons the call.
    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>>;
}

//! What the engine asks of those who do the work. The implementations are in the `drivers` crate;
//! a driver performs one effect and holds neither a loop nor a history.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use polity_model::failure::Failure;
use polity_model::message::{Message, ToolCall};
use polity_model::usage::Usage;

use crate::closure::Closure;

/// A future that borrows what it works on.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One call to a model. It borrows the conversation: nothing of it is copied.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Who is speaking, with which model.
    pub closure: &'a Closure,
    /// What has been said so far, oldest first.
    pub messages: &'a [Message],
    /// The marks that earlier calls of this task came back with, oldest first.
    pub marks: &'a [u32],
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
    /// Something the driver wants to be told again in later calls of this task.
    pub mark: Option<u32>,
}

/// A tool that a model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedTool {
    /// The MCP server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// What to call it with.
    pub arguments: serde_json::Map<String, serde_json::Value>,
}

impl AskedTool {
    /// The call, with its id.
    pub(crate) fn with_id(&self, id: polity_model::ids::ToolCallId) -> ToolCall {
        ToolCall {
            id,
            server: self.server.clone(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
        }
    }
}

/// A call that brought no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFailure {
    /// Why.
    pub failure: Failure,
    /// How long the server asks to wait before the next try.
    pub retry_after: Option<Duration>,
    /// Something the driver wants to be told again in later calls of this task.
    pub mark: Option<u32>,
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
    fn ready(&self, closure: &Closure) -> Result<(), NotReady>;

    /// Makes one call. Dropping the future abandons the call.
    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>>;
}

//! Model calls.

use std::time::Duration;

use polity_definition::TokenPrice;
use polity_model::failure::{AttemptFailure, WithheldReason};
use polity_model::ids::ToolCallId;
use polity_model::message::ToolCall;
use polity_model::usage::Usage;
use serde_json::{Map, Value};

use super::{BoxFuture, CallSite, ConversationHistory, Toolbox};
use crate::pinned::PinnedAgent;

/// A model call. It borrows the conversation.
#[derive(Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The agent and its model.
    pub pinned: &'a PinnedAgent,
    /// The conversation, oldest first. Every tool call in it has its reply.
    pub history: ConversationHistory<'a>,
    /// The tools that the model may ask for.
    pub toolbox: &'a Toolbox,
    /// The marks that earlier calls of this task came back with, oldest first.
    pub marks: &'a [u32],
    /// The call site.
    pub call_site: CallSite<'a>,
    /// The receiver of partial text.
    pub progress: &'a dyn TextSink,
}

/// Receives partial text, which is not a fact: only the finished answer is.
pub trait TextSink: Send + Sync {
    /// A piece of the text.
    fn text(&self, piece: &str);

    /// Progress without text, such as a change of state. Work that shows progress is not idle.
    fn progress(&self) {}
}

/// Ignores partial text.
#[derive(Debug, Clone, Copy)]
pub struct NullTextSink;

impl TextSink for NullTextSink {
    fn text(&self, _piece: &str) {}
}

/// The answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// The text.
    pub content: String,
    /// The tools it asks for. The engine assigns their ids.
    pub tool_calls: Vec<AskedTool>,
    /// The usage of the call.
    pub usage: Usage,
    /// The end of the answer.
    pub ending: AnswerEnding,
    /// The provider's own word for the end, such as `length`.
    pub stop_reason: Option<String>,
    /// A value that the driver gets again in later calls of this task.
    pub mark: Option<u32>,
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerEnding {
    /// The answer is whole.
    #[default]
    Complete,
    /// The model reached its output limit.
    Truncated,
    /// The provider stopped before the end, but not at a limit: it paused a long turn, for example.
    Paused,
    /// The rest of the answer was withheld.
    Withheld(WithheldReason),
}

impl AnswerEnding {
    /// True if the answer lacks its end, and the model could continue it.
    pub fn is_cut(self) -> bool {
        match self {
            Self::Truncated | Self::Paused => true,
            Self::Complete | Self::Withheld(_) => false,
        }
    }

    /// Why the rest of the answer was withheld, if it was.
    pub fn withheld(self) -> Option<WithheldReason> {
        match self {
            Self::Withheld(reason) => Some(reason),
            Self::Complete | Self::Truncated | Self::Paused => None,
        }
    }

    /// The ending that a recording of these fields describes.
    pub fn from_fields(is_cut: bool, is_paused: bool, withheld: Option<WithheldReason>) -> Self {
        match withheld {
            Some(reason) => Self::Withheld(reason),
            None if is_paused => Self::Paused,
            None if is_cut => Self::Truncated,
            None => Self::Complete,
        }
    }
}

/// A tool that a model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedTool {
    /// The MCP server. Empty if the model named none that is known.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: AskedArguments,
    /// A signature that the model gets again with this call.
    pub signature: Option<String>,
}

/// The arguments that a model gave.
#[derive(Debug, Clone, PartialEq)]
pub enum AskedArguments {
    /// An object, as they must be.
    Object(Map<String, Value>),
    /// Something else.
    Unreadable {
        /// The text of the model.
        text: String,
        /// The parse error.
        reason: String,
    },
}

impl AskedTool {
    /// The call with its id. Unreadable arguments are omitted; the reply to the call explains them.
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

/// A failed model call.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFailure {
    /// The cause.
    pub failure: AttemptFailure,
    /// True if the conversation exceeds the model's context, so that a shorter one may succeed. If
    /// the failure is transient, this is a suspicion: the same conversation is tried again first.
    pub context_full: bool,
    /// The wait that the server asks for.
    pub retry_after: Option<Duration>,
    /// True if a retry is known to fail the same way, whatever the category: a replayed failure.
    pub is_final: bool,
    /// A value that the driver gets again in later calls of this task.
    pub mark: Option<u32>,
    /// The usage up to the failure; zero if the model did not read the request.
    pub usage: Usage,
}

impl ModelFailure {
    /// A failure without details, of a call that used nothing.
    pub fn new(failure: AttemptFailure) -> Self {
        Self {
            failure,
            context_full: false,
            retry_after: None,
            is_final: false,
            mark: None,
            usage: Usage::default(),
        }
    }
}

/// A driver that is not ready for an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotReady {
    /// The missing requirement.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

/// The driver of language models.
pub trait ModelDriver: Send + Sync {
    /// Checks that the agent's model could be called, without calling it. Called before a task is
    /// created.
    fn ready(&self, pinned: &PinnedAgent) -> Result<(), NotReady>;

    /// The price of the agent's model, if known. A budget in money needs it.
    fn price(&self, pinned: &PinnedAgent) -> Option<TokenPrice>;

    /// Makes one call. Dropping the future abandons the call.
    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>>;
}

//! The traits of drivers, which perform effects. The `drivers` crate implements them. A driver
//! performs one effect and keeps neither a loop nor a history.

mod call_site;
mod history;
mod model;
mod program;
mod remote;
mod tool;
mod trace_context;

use std::future::Future;
use std::pin::Pin;

pub use call_site::CallSite;
pub use history::ConversationHistory;
pub use model::{
    AnswerEnding, AskedArguments, AskedTool, ModelDriver, ModelFailure, ModelReply, ModelRequest,
    NotReady, NullTextSink, TextSink,
};
pub use program::{
    LostRun, ProgramDriver, ProgramPreparation, ProgramRunner, RunCleanup, RunDedup, RunEnd,
    RunIdentity, RunOutcome, RunOverrides, RunProgress, RunRequest,
};
pub use remote::{
    MessageDelivery, RemoteDriver, RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork,
};
pub use tool::{
    ToolDriver, ToolFailure, ToolReply, ToolRequest, ToolSpec, Toolbox, ToolsUnavailable,
};
pub(crate) use trace_context::traced;
pub use trace_context::{TraceContexts, TracedStep, TracedStepKind, current_traceparent};

/// A boxed future that may borrow.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

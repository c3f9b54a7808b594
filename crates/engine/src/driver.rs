//! What the engine asks of those who do the work. The implementations are in the `drivers` crate;
//! a driver performs one effect and holds neither a loop nor a history.

mod call_site;
mod history;
mod models;
mod programs;
mod remotes;
mod tools;

use std::future::Future;
use std::pin::Pin;

pub use call_site::CallSite;
pub use history::History;
pub use models::{
    AskedArguments, AskedTool, ModelFailure, ModelReply, ModelRequest, Models, NotReady, Progress,
    Unheard,
};
pub use programs::{
    LostRun, ProgramPreparation, ProgramRunner, Programs, RunCleanup, RunDedup, RunEnd,
    RunIdentity, RunOutcome, RunOverrides, RunProgress, RunRequest,
};
pub use remotes::{RemoteEnd, RemoteMessage, RemoteOutcome, RemoteWork, Remotes, Sent};
pub use tools::{Tool, ToolFailure, ToolReply, ToolRequest, Toolbox, Tools, ToolsUnavailable};

/// A future that borrows what it works on.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

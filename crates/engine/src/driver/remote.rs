//! Work of remote agents.

use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_model::failure::AttemptFailure;
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use serde_json::{Map, Value};

use super::{BoxFuture, CallSite, NotReady, TextSink};

/// A message to a remote agent.
#[derive(Clone, Copy)]
pub struct RemoteMessage<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// The call site. Its turn is the number of the message in the conversation.
    pub call_site: CallSite<'a>,
    /// The id of the message, which stays the same when an undelivered message is sent again.
    pub id: &'a str,
    /// The text.
    pub text: &'a str,
    /// Named values that came with the task.
    pub parameters: &'a Map<String, Value>,
    /// The server's task whose question the message answers.
    pub task: Option<&'a RemoteTask>,
}

/// A task on a server.
#[derive(Clone, Copy)]
pub struct RemoteWork<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// The call site of the message that created it.
    pub call_site: CallSite<'a>,
    /// The task on the server.
    pub task: &'a RemoteTask,
}

/// The outcome of sending a message.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageDelivery {
    /// The server created a task, which is still running.
    Accepted(RemoteTask),
    /// The exchange is over.
    Over(RemoteOutcome),
}

/// The outcome of a remote task.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteOutcome {
    /// The end.
    pub end: RemoteEnd,
    /// The report.
    pub report: RemoteReport,
    /// The usage that the server reports.
    pub usage: Usage,
}

/// The end of a remote task.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteEnd {
    /// The agent answered.
    Answered(String),
    /// The agent asks something before it goes on.
    Asks(String),
    /// It failed or was not reached. The message says what to do. A transient failure proves that
    /// the server did not accept the message.
    Failed {
        /// Why.
        failure: AttemptFailure,
        /// The wait that the server asks for.
        retry_after: Option<Duration>,
    },
    /// The message was sent, but its acceptance is unknown, for this reason.
    InDoubt(String),
}

/// The driver of remote agents.
pub trait RemoteDriver: Send + Sync {
    /// Checks that the agent could be called, without calling it. Called before a task is created.
    fn ready(&self, agent: &AgentDefinition) -> Result<(), NotReady>;

    /// Sends one message once, and waits for the server's response.
    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, MessageDelivery>;

    /// Follows a task until it ends or asks a question. It has no effect on the server, so it can be
    /// repeated.
    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn TextSink,
    ) -> BoxFuture<'a, RemoteOutcome>;

    /// Asks the server to cancel a task. The error says why that failed.
    fn cancel<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>>;
}

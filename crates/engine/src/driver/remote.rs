//! Work of remote agents.

use std::time::Duration;

use polity_definition::AgentDefinition;
use polity_model::failure::AttemptFailure;
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use serde_json::{Map, Value};

use super::{BoxFuture, CallSite, NotReady, TextProgress};

/// A message to a remote agent.
#[derive(Clone, Copy)]
pub struct RemoteMessage<'a> {
    /// The agent.
    pub agent: &'a AgentDefinition,
    /// Where in the run it is sent. The turns are the messages of the conversation.
    pub call_site: CallSite<'a>,
    /// Names the message. It is the same when the message is sent again because it did not arrive.
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
    /// Where in the run the message was sent that it came of.
    pub call_site: CallSite<'a>,
    /// The task there.
    pub task: &'a RemoteTask,
}

/// The outcome of sending a message.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageDelivery {
    /// The server has made a task of it, which goes on.
    Accepted(RemoteTask),
    /// Nothing more is to come.
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
    /// It failed, or was never given the work. The message says what to do. A transient failure
    /// proves that the message was not taken.
    Failed {
        /// Why.
        failure: AttemptFailure,
        /// The wait that the server asks for.
        retry_after: Option<Duration>,
    },
    /// The message was sent, and no one knows whether it was taken. Says why.
    InDoubt(String),
}

/// The driver of remote agents.
pub trait RemoteDriver: Send + Sync {
    /// Checks that the agent could be called, without calling it. Called before a task is created.
    fn ready(&self, agent: &AgentDefinition) -> Result<(), NotReady>;

    /// Sends one message, once, and waits until the server says what it makes of it.
    fn send<'a>(&'a self, message: RemoteMessage<'a>) -> BoxFuture<'a, MessageDelivery>;

    /// Follows a task until it ends, or asks something. Nothing is sent that has an effect there, so
    /// it can be done again.
    fn follow<'a>(
        &'a self,
        work: RemoteWork<'a>,
        progress: &'a dyn TextProgress,
    ) -> BoxFuture<'a, RemoteOutcome>;

    /// Asks the server to end a task; says why it could not be asked, or would not.
    fn cancel<'a>(
        &'a self,
        agent: &'a AgentDefinition,
        task: &'a RemoteTask,
    ) -> BoxFuture<'a, Result<(), String>>;
}

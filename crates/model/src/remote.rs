//! Tasks on other servers: what the journal keeps of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A task on another server, by the names that the server gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteTask {
    /// The task's id there.
    pub task_id: String,
    /// The conversation that it belongs to, where the server has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

impl fmt::Display for RemoteTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.task_id)
    }
}

/// What one message to an agent on another server came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteReport {
    /// Where the message went, without secrets; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// What was spoken, such as `JSON-RPC 1.0`; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// The task there, if the server made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<RemoteTask>,
    /// The state of that task when it was last seen, in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Whether the task there has come to its end, or is not there any more.
    #[serde(default)]
    pub is_over: bool,
}

impl RemoteReport {
    /// The report, with how long it took.
    pub(crate) fn after(&self, seconds: f64) -> String {
        let Self { url, protocol, task, state, is_over: _ } = self;
        let state = state.as_deref().unwrap_or("no answer");
        let place = if url.is_empty() { String::new() } else { format!(" at {url} ({protocol})") };
        let task = task.as_ref().map(|task| format!(", {task}")).unwrap_or_default();
        format!("{state} after {seconds:.1} s{place}{task}")
    }
}

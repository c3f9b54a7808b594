//! Tasks on other servers, as the journal records them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A task on another server, by that server's ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteTask {
    /// The task's id there.
    pub task_id: String,
    /// The A2A context that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

impl fmt::Display for RemoteTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.task_id)
    }
}

/// The outcome of one message to a remote agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteReport {
    /// The address, without secrets; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The protocol, such as `JSON-RPC 1.0`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// The task there, if the server made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<RemoteTask>,
    /// The last known state of that task, in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// True if the remote task has ended or no longer exists.
    #[serde(default)]
    pub is_over: bool,
}

impl RemoteReport {
    /// The report with its duration, in words.
    pub(crate) fn after(&self, seconds: f64) -> String {
        let Self { url, protocol, task, state, is_over: _ } = self;
        let state = state.as_deref().unwrap_or("no answer");
        let place = if url.is_empty() { String::new() } else { format!(" at {url} ({protocol})") };
        let task = task.as_ref().map(|task| format!(", {task}")).unwrap_or_default();
        format!("{state} after {seconds:.1} s{place}{task}")
    }
}

//! A sub-agent's session: its own task, shown as a conversation.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, TaskId, ToolCallId};
use crate::machine::task::TaskStatus;
use crate::message::Message;
use crate::name::Name;
use crate::value::labelled_enum;

/// A sub-agent's conversation, isolated from that of its parent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubAgentSession {
    /// The session, which is the id of the sub-agent's task too.
    pub session_id: SessionId,
    /// The task of the delegating agent.
    pub parent_task_id: TaskId,
    /// The sub-agent.
    pub agent_name: Name,
    /// The work it was given.
    pub task_description: String,
    /// Its messages.
    pub message_history: Vec<Message>,
    /// The summary for the parent, once there is one.
    pub summary: Option<String>,
    /// The current status.
    pub status: SessionStatus,
    /// The time it was opened.
    pub created_at: Timestamp,
}

labelled_enum! {
    /// The status of a session, coarser than that of its task.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum SessionStatus {
        /// The sub-agent is at work, or waits for its turn or for a person.
        Running = "running",
        /// Its parent has a summary.
        Completed = "completed",
        /// There will be no summary.
        Failed = "failed",
    }
}

impl From<TaskStatus> for SessionStatus {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman => Self::Running,
            TaskStatus::Completed => Self::Completed,
            TaskStatus::Failed | TaskStatus::Cancelled => Self::Failed,
        }
    }
}

/// Distinguishes the ids of inherited calls from other derived ids.
const INHERITED_CALL_LABEL: &[u8] = b"polity inherited call";

/// The argument with the work of a sub-agent.
pub const TASK_DESCRIPTION_ARGUMENT: &str = "task_description";

/// The sub-agent task of a tool call. Both have one id, so a call repeated after a crash finds its
/// task.
pub fn task_of_call(call: ToolCallId) -> TaskId {
    TaskId::from_bytes(*call.as_bytes())
}

/// The sub-agent task of a call that a task has inherited from the task that it continues. Both tasks
/// have the call, and each has a sub-agent task of its own.
pub fn task_of_inherited_call(task: TaskId, call: ToolCallId) -> TaskId {
    let name = [INHERITED_CALL_LABEL, task.as_bytes(), call.as_bytes()].concat();
    TaskId::derived_from(&name)
}

/// The session of a sub-agent's task.
pub fn session_of_task(task: TaskId) -> SessionId {
    SessionId::from_bytes(*task.as_bytes())
}

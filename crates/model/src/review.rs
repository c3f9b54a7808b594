//! Reviews: what a task asks of a person, and what the person answers.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{CheckpointId, TaskId, ToolCallId};

/// What a person is to decide about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum ReviewSubject {
    /// Whether a tool may be called. The agent's `approval` asks for it.
    Approval {
        /// The call.
        call_id: ToolCallId,
    },
    /// What to do about a call that was being made when the process ended.
    Doubt {
        /// The call.
        call_id: ToolCallId,
    },
}

impl ReviewSubject {
    /// The call that it is about.
    pub fn call_id(&self) -> ToolCallId {
        match self {
            Self::Approval { call_id } | Self::Doubt { call_id } => *call_id,
        }
    }
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Verdict {
    /// It may go on as it is.
    Approve,
    /// It may not.
    Reject,
    /// It may go on with other arguments.
    Modify {
        /// All the arguments that the call is made with.
        arguments: Map<String, Value>,
    },
    /// The call in doubt is made again.
    Retry,
    /// The call in doubt is not made again; this is its result.
    SkipWith {
        /// The result.
        result: String,
    },
}

impl Verdict {
    /// The action as the seed's words have it: approve, reject or modify.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Approve | Self::Retry | Self::SkipWith { .. } => "approve",
            Self::Reject => "reject",
            Self::Modify { .. } => "modify",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approve => "approved",
            Self::Reject => "rejected",
            Self::Modify { .. } => "approved with other arguments",
            Self::Retry => "to be made again",
            Self::SkipWith { .. } => "skipped with a result",
        })
    }
}

/// A decision that a task waits for, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Review {
    /// The task that waits.
    pub task_id: TaskId,
    /// The checkpoint at which it waits.
    pub checkpoint_id: CheckpointId,
    /// The node of the workflow; of a task for one agent, the agent's name.
    pub position: String,
    /// What is asked, for people.
    pub question: String,
    /// When it began to wait.
    pub created_at: Timestamp,
    /// When the default answer is taken, if there is one.
    pub deadline: Option<Timestamp>,
    /// What it is about.
    #[serde(flatten)]
    pub subject: ReviewSubject,
    /// The tool, as `server/tool`.
    pub tool: String,
    /// What the tool would be called with.
    pub arguments: Map<String, Value>,
}

/// What a person answered, as the checkpoint that it answered shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HumanFeedback {
    /// approve, reject or modify.
    pub action: String,
    /// What the person said.
    pub message: Option<String>,
    /// What the person changed.
    pub state_updates: Map<String, Value>,
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

//! Reviews: what a task asks of a person, and what the person answers.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{CheckpointId, ExecutionId, TaskId, ToolCallId};
use crate::name::Name;

/// A person's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewAction {
    /// Go on.
    Approve,
    /// Do not go on.
    Reject,
    /// Go on with changes.
    Modify,
}

impl ReviewAction {
    /// The action as files and JSON have it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Modify => "modify",
        }
    }
}

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
    /// What to do about a program that was running when the process ended.
    RunDoubt {
        /// The execution.
        execution_id: ExecutionId,
    },
    /// What an agent on another server asks before it goes on.
    RemoteQuestion {
        /// The execution that ended with the question.
        execution_id: ExecutionId,
    },
    /// What a human node of a workflow asks.
    Node {
        /// The node.
        node: Name,
    },
    /// Whether a node that the workflow lists in `checkpoints` may run.
    Checkpoint {
        /// The node.
        node: Name,
    },
}

impl ReviewSubject {
    /// The call that it is about, if it is about one.
    pub fn call_id(&self) -> Option<ToolCallId> {
        match self {
            Self::Approval { call_id } | Self::Doubt { call_id } => Some(*call_id),
            Self::RunDoubt { .. }
            | Self::RemoteQuestion { .. }
            | Self::Node { .. }
            | Self::Checkpoint { .. } => None,
        }
    }

    /// The node that it is about, if it is about one.
    pub fn node(&self) -> Option<&Name> {
        match self {
            Self::Approval { .. }
            | Self::Doubt { .. }
            | Self::RunDoubt { .. }
            | Self::RemoteQuestion { .. } => None,
            Self::Node { node } | Self::Checkpoint { node } => Some(node),
        }
    }
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// It may go on as it is.
    Approve,
    /// It may not.
    Reject,
    /// It may go on with changes: with other arguments, or another State.
    Modify {
        /// All the arguments that the call is made with, where it is about a call.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        arguments: Map<String, Value>,
    },
    /// The call in doubt is made again, or the program run again.
    Retry,
    /// The call in doubt is not made again, nor the program run; this is its result.
    SkipWith {
        /// The result.
        result: String,
    },
}

impl ReviewVerdict {
    /// The action as the seed's words have it: approve, reject or modify.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Approve | Self::Retry | Self::SkipWith { .. } => "approve",
            Self::Reject => "reject",
            Self::Modify { .. } => "modify",
        }
    }
}

impl fmt::Display for ReviewVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approve => "approved",
            Self::Reject => "rejected",
            Self::Modify { arguments } if arguments.is_empty() => "modified",
            Self::Modify { .. } => "approved with other arguments",
            Self::Retry => "to be made again",
            Self::SkipWith { .. } => "skipped with a result",
        })
    }
}

/// What an answer would lead to, where that is known before it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewPreview {
    /// To these nodes; nothing follows where there is none.
    LeadsTo(Vec<Name>),
    /// To the end of the task, and why.
    FailsTask(String),
    /// To the end of the branch that asks, and why.
    FailsBranch(String),
}

/// An answer that can be given, and what it would lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewAnswer {
    /// What is answered.
    pub action: ReviewAction,
    /// What follows.
    #[serde(flatten)]
    pub outlook: ReviewPreview,
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
    /// The task at the top of those that it is a part of; the same task where it is none.
    pub top_task_id: TaskId,
    /// The way from the agent or workflow at the top to who asks, such as `newsroom/draft/writer`.
    pub place: String,
    /// What is asked, for people.
    pub question: String,
    /// When it began to wait.
    pub created_at: Timestamp,
    /// When the default answer is taken, if there is one.
    pub deadline: Option<Timestamp>,
    /// Whether the deadline has passed, so that no answer counts any more.
    pub expired: bool,
    /// The answers that can be given whose consequences are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ReviewAnswer>,
    /// What it is about.
    #[serde(flatten)]
    pub subject: ReviewSubject,
    /// What the deadline brings, if there is one: the answer, or the end of the task.
    pub default_action: Option<ReviewAction>,
    /// The tool, as `server/tool`, where it is about a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the tool would be called with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
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

//! Reviews: questions of a task to a person, and the answers.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{CheckpointId, ExecutionId, TaskId, ToolCallId};
use crate::name::Name;
use crate::value::labelled_enum;

labelled_enum! {
    /// A person's answer.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ReviewAction {
        /// Go on.
        Approve = "approve",
        /// Do not go on.
        Reject = "reject",
        /// Go on with changes.
        Modify = "modify",
    }
}

/// The subject of a review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum ReviewSubject {
    /// Approval of a tool call, required by the agent's `approval`.
    Approval {
        /// The call.
        call_id: ToolCallId,
    },
    /// A tool call with unknown effect: its process ended while it ran.
    Doubt {
        /// The call.
        call_id: ToolCallId,
    },
    /// A CLI agent with unknown effect: the owner process ended while it ran.
    RunDoubt {
        /// The execution.
        execution_id: ExecutionId,
    },
    /// A question of a remote agent.
    RemoteQuestion {
        /// The execution that ended with the question.
        execution_id: ExecutionId,
    },
    /// The question of a human node.
    Node {
        /// The node.
        node: Name,
    },
    /// Approval of a node that the workflow lists in `checkpoints`.
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

/// A reviewer's decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// It may go on as it is.
    Approve,
    /// It may not.
    Reject,
    /// It may go on with changes: with other arguments, or another State.
    Modify {
        /// All arguments of the call, if it is about a call.
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
    /// The action in a word: approve, reject or modify.
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

/// The consequence of an answer, if known in advance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewPreview {
    /// These nodes follow; none if empty.
    LeadsTo(Vec<Name>),
    /// To the end of the task, and why.
    FailsTask(String),
    /// To the end of the branch that asks, and why.
    FailsBranch(String),
}

/// A possible answer with its consequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewAnswer {
    /// The answer.
    pub action: ReviewAction,
    /// The consequence.
    #[serde(flatten)]
    pub preview: ReviewPreview,
}

/// An open review, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The task that waits.
    pub task_id: TaskId,
    /// The checkpoint at which it waits.
    pub checkpoint_id: CheckpointId,
    /// The node of the workflow; of a task for one agent, the agent's name.
    pub position: String,
    /// The root of its task tree; the task itself if it has no parent.
    pub top_task_id: TaskId,
    /// The path from the top agent or workflow to the asking one, such as `newsroom/draft/writer`.
    pub place: String,
    /// The question, for people.
    pub question: String,
    /// The time the review was opened.
    pub created_at: Timestamp,
    /// The time the default answer applies, if there is one.
    pub deadline: Option<Timestamp>,
    /// True if the deadline has passed; answers are then refused.
    pub expired: bool,
    /// The possible answers whose consequences are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ReviewAnswer>,
    /// The subject.
    #[serde(flatten)]
    pub subject: ReviewSubject,
    /// The answer that applies after the deadline; without one the task fails.
    pub default_action: Option<ReviewAction>,
    /// The tool, as `server/tool`, if it is about a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of the tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
}

/// A reviewer's answer, as shown at its checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HumanFeedback {
    /// approve, reject or modify.
    pub action: String,
    /// The comment.
    pub message: Option<String>,
    /// The changes to the State.
    pub state_updates: Map<String, Value>,
    /// The reviewer.
    pub by: String,
    /// The time of the answer.
    pub at: Timestamp,
}

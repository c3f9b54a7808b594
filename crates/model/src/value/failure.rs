//! Failures: the category decides about retries, the code identifies the reason for programs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::labelled_enum;

labelled_enum! {
    /// The kind of error that ended an attempt.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorCategory {
        /// May succeed when tried again: an overloaded server, a lost connection.
        Transient = "transient",
        /// Will not succeed when tried again: a wrong key, a missing program.
        Permanent = "permanent",
        /// The agent itself reported that it failed.
        AgentError = "agent_error",
        /// Polity or the machine it runs on failed.
        SystemError = "system_error",
    }
}

labelled_enum! {
    /// Why a task failed, for programs.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorCode {
        /// The time ran out.
        Timeout = "timeout",
        /// The agent reached its `max_iterations` without an answer.
        LimitIterations = "limit_iterations",
        /// The model repeated the same tool calls too often.
        LimitRepeats = "limit_repeats",
        /// The conversation is longer than the model can read, however much it is shortened.
        LimitContext = "limit_context",
        /// The budget of the task, or of one of its ancestors, is used up.
        Budget = "budget",
        /// The model answered with neither text nor tool calls.
        EmptyAnswer = "empty_answer",
        /// The answer was cut at a limit: the model's output limit, or the size limit of output.
        Truncated = "truncated",
        /// The model refused to answer.
        Refused = "refused",
        /// The provider's content filter withheld the answer or cut it.
        Filtered = "filtered",
        /// The model's answers did not match the agent's `output_schema`, even after corrections.
        InvalidOutput = "invalid_output",
        /// The CLI agent failed permanently, or more often than it is retried.
        AgentFailed = "agent_failed",
        /// More runs of the agent waited than its `queue_limit`, or this one for longer than its
        /// `queue_timeout_seconds`.
        LimitQueue = "limit_queue",
        /// The model could not be reached, or was overloaded, until the retries ran out.
        ModelUnavailable = "model_unavailable",
        /// The model refused the request; the same request would be refused again.
        ModelRejected = "model_rejected",
        /// The agent's tools could not be listed: a server did not start, or has no such tool.
        ToolsUnavailable = "tools_unavailable",
        /// A tool that a node of a workflow calls failed.
        ToolFailed = "tool_failed",
        /// A condition or a template of a workflow could not be evaluated.
        ConditionFailed = "condition_failed",
        /// No edge of a node could be taken.
        NoEdge = "no_edge",
        /// The edges back reached their `max_loops`.
        LimitLoops = "limit_loops",
        /// A map has more items than `limits.map_items` allows.
        LimitItems = "limit_items",
        /// A part of the workflow was ended from outside.
        PartCancelled = "part_cancelled",
        /// A person rejected it.
        Rejected = "rejected",
        /// Something that Polity needs is missing or broken.
        SystemError = "system_error",
    }
}

impl ErrorCode {
    /// The kind of error that usually has this code.
    pub fn category(self) -> ErrorCategory {
        match self {
            Self::Timeout | Self::LimitQueue | Self::ModelUnavailable | Self::ToolsUnavailable => {
                ErrorCategory::Transient
            }
            Self::LimitIterations
            | Self::LimitRepeats
            | Self::EmptyAnswer
            | Self::Truncated
            | Self::Refused
            | Self::Filtered
            | Self::InvalidOutput
            | Self::AgentFailed
            | Self::ToolFailed => ErrorCategory::AgentError,
            Self::LimitContext
            | Self::Budget
            | Self::ModelRejected
            | Self::ConditionFailed
            | Self::NoEdge
            | Self::LimitLoops
            | Self::LimitItems
            | Self::PartCancelled
            | Self::Rejected => ErrorCategory::Permanent,
            Self::SystemError => ErrorCategory::SystemError,
        }
    }
}

labelled_enum! {
    /// Why the rest of an answer was withheld.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum WithheldReason {
        /// The model refused to answer.
        Refused = "refused",
        /// The provider's content filter stopped the answer.
        Filtered = "filtered",
    }
}

impl WithheldReason {
    /// The code of a task that fails for this reason.
    pub fn error_code(self) -> ErrorCode {
        match self {
            Self::Refused => ErrorCode::Refused,
            Self::Filtered => ErrorCode::Filtered,
        }
    }
}

/// One failed attempt of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// The kind of error.
    pub category: ErrorCategory,
    /// The message, for people.
    pub message: String,
}

impl fmt::Display for AttemptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.category)
    }
}

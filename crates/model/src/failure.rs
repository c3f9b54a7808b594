//! Failures: the category decides about retries, the code identifies the reason for programs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of error that ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCategory {
    /// May succeed when tried again: an overloaded server, a lost connection.
    Transient,
    /// Will not succeed when tried again: a wrong key, a missing program.
    Permanent,
    /// The agent itself reported that it failed.
    AgentError,
    /// Polity or the machine it runs on failed.
    SystemError,
}

impl ErrorCategory {
    /// The category's name as files and JSON have it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::AgentError => "agent_error",
            Self::SystemError => "system_error",
        }
    }
}

impl fmt::Display for ErrorCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Why a task failed, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The time ran out.
    Timeout,
    /// The agent reached its `max_iterations` without an answer.
    LimitIterations,
    /// The model repeated the same tool calls too often.
    LimitRepeats,
    /// The conversation is longer than the model can read, however much it is shortened.
    LimitContext,
    /// The budget of the task, or of one of its ancestors, is used up.
    Budget,
    /// The model answered with neither text nor tool calls.
    EmptyAnswer,
    /// The model's answers did not match the agent's `output_schema`, even after corrections.
    InvalidOutput,
    /// The CLI agent failed permanently, or more often than it is retried.
    AgentFailed,
    /// More runs of the agent waited than its `queue_limit`, or this one for longer than its
    /// `queue_timeout_seconds`.
    LimitQueue,
    /// The model could not be reached, or was overloaded, until the retries ran out.
    ModelUnavailable,
    /// The model refused the request; the same request would be refused again.
    ModelRejected,
    /// The agent's tools could not be listed: a server did not start, or has no such tool.
    ToolsUnavailable,
    /// A tool that a node of a workflow calls failed.
    ToolFailed,
    /// A condition or a template of a workflow could not be evaluated.
    ConditionFailed,
    /// No edge of a node could be taken.
    NoEdge,
    /// The edges back reached their `max_loops`.
    LimitLoops,
    /// A part of the workflow was ended from outside.
    PartCancelled,
    /// A person decided against it.
    Rejected,
    /// Something that Polity needs is missing or broken.
    SystemError,
}

impl ErrorCode {
    /// The code as JSON has it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::LimitIterations => "limit_iterations",
            Self::LimitRepeats => "limit_repeats",
            Self::LimitContext => "limit_context",
            Self::Budget => "budget",
            Self::EmptyAnswer => "empty_answer",
            Self::InvalidOutput => "invalid_output",
            Self::AgentFailed => "agent_failed",
            Self::LimitQueue => "limit_queue",
            Self::ModelUnavailable => "model_unavailable",
            Self::ModelRejected => "model_rejected",
            Self::ToolsUnavailable => "tools_unavailable",
            Self::ToolFailed => "tool_failed",
            Self::ConditionFailed => "condition_failed",
            Self::NoEdge => "no_edge",
            Self::LimitLoops => "limit_loops",
            Self::PartCancelled => "part_cancelled",
            Self::Rejected => "rejected",
            Self::SystemError => "system_error",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
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

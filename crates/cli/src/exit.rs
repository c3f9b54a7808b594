//! Exit codes, which are part of the public interface.

use std::process::ExitCode;

use polity_model::failure::ErrorCode;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;

/// The exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Done.
    Done,
    /// The task failed; or an unknown id, a conflict, an I/O error.
    Failed,
    /// Wrong usage, an invalid definition, an unknown or disabled agent.
    Usage,
    /// Waiting for a person.
    AwaitingHuman,
    /// Cancelled.
    Cancelled,
    /// The time ran out.
    TimedOut,
    /// Over a budget or a limit.
    OverLimit,
}

impl ExitStatus {
    /// The numeric code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::AwaitingHuman => 3,
            Self::Cancelled => 4,
            Self::TimedOut => 5,
            Self::OverLimit => 6,
        }
    }

    /// The exit code of a command whose background process ended with this code.
    pub(crate) fn of_child(code: Option<i32>) -> Self {
        let all = [
            Self::Done,
            Self::Usage,
            Self::AwaitingHuman,
            Self::Cancelled,
            Self::TimedOut,
            Self::OverLimit,
        ];
        all.into_iter().find(|exit| code == Some(exit.code().into())).unwrap_or(Self::Failed)
    }

    /// The exit code of a command that ran this task.
    pub(crate) fn of_task(task: &Task) -> Self {
        match (task.status, task.error_code) {
            (TaskStatus::Completed, _) => Self::Done,
            (TaskStatus::AwaitingHuman, _) => Self::AwaitingHuman,
            (TaskStatus::Cancelled, _) => Self::Cancelled,
            (TaskStatus::Failed, Some(code)) => Self::of_failure(code),
            (TaskStatus::Failed | TaskStatus::Pending | TaskStatus::Running, _) => Self::Failed,
        }
    }

    fn of_failure(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Timeout => Self::TimedOut,
            ErrorCode::LimitIterations
            | ErrorCode::LimitQueue
            | ErrorCode::LimitRepeats
            | ErrorCode::LimitContext
            | ErrorCode::LimitLoops
            | ErrorCode::LimitItems
            | ErrorCode::Budget => Self::OverLimit,
            ErrorCode::EmptyAnswer
            | ErrorCode::Truncated
            | ErrorCode::Refused
            | ErrorCode::Filtered
            | ErrorCode::AgentFailed
            | ErrorCode::InvalidOutput
            | ErrorCode::ModelUnavailable
            | ErrorCode::ModelRejected
            | ErrorCode::ToolsUnavailable
            | ErrorCode::ToolFailed
            | ErrorCode::ConditionFailed
            | ErrorCode::NoEdge
            | ErrorCode::PartCancelled
            | ErrorCode::Rejected
            | ErrorCode::SystemError => Self::Failed,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        exit.code().into()
    }
}

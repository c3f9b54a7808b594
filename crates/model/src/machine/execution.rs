//! The life of an execution: one attempt to run one agent for a task, with its retries.
//!
//! ```text
//! idle       start     starting
//! starting   run       running
//! starting   fail      failed
//! running    complete  completed
//! running    fail      failed
//! running    time_out  timeout
//! running    cancel    cancelled
//! failed     retry     starting    only for a transient error with retries left
//! completed  clean_up  cleanup
//! failed     clean_up  cleanup
//! timeout    clean_up  cleanup
//! cancelled  clean_up  cleanup
//! cleanup    finish    idle
//! ```
//!
//! The guard on `retry` needs the error and the count, so it is kept by
//! [`AgentExecution::retry`](crate::execution::AgentExecution::retry).

use serde::{Deserialize, Serialize};

use super::machine;

machine! {
    "execution";

    /// A state of an execution.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ExecutionState {
        /// Not begun, or wholly over.
        Idle = "idle",
        /// Acquiring its resources: a process, a connection.
        Starting = "starting",
        /// At work.
        Running = "running",
        /// The work succeeded.
        Completed = "completed",
        /// The work, or its start, failed.
        Failed = "failed",
        /// The work took longer than it may.
        Timeout = "timeout",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// Cleaning up processes and temporary files, recording usage.
        Cleanup = "cleanup",
    }

    /// An event of an execution.
    pub enum ExecutionTransition {
        /// Begin.
        Start = "start",
        /// The start succeeded.
        Run = "run",
        /// The work succeeded.
        Complete = "complete",
        /// The start or the work failed.
        Fail = "fail",
        /// The time ran out.
        TimeOut = "time_out",
        /// It was cancelled.
        Cancel = "cancel",
        /// Try again after a failure.
        Retry = "retry",
        /// No further attempt: clean up.
        CleanUp = "clean_up",
        /// All is in order.
        Finish = "finish",
    }
}

impl ExecutionState {
    #[inline]
    fn next(self, event: ExecutionTransition) -> Option<Self> {
        use ExecutionTransition as On;
        match event {
            On::Start => self.only_from(Self::Idle, Self::Starting),
            On::Run => self.only_from(Self::Starting, Self::Running),
            On::Complete => self.only_from(Self::Running, Self::Completed),
            On::TimeOut => self.only_from(Self::Running, Self::Timeout),
            On::Cancel => self.only_from(Self::Running, Self::Cancelled),
            On::Retry => self.only_from(Self::Failed, Self::Starting),
            On::Finish => self.only_from(Self::Cleanup, Self::Idle),
            On::Fail => match self {
                Self::Starting | Self::Running => Some(Self::Failed),
                Self::Idle
                | Self::Completed
                | Self::Failed
                | Self::Timeout
                | Self::Cancelled
                | Self::Cleanup => None,
            },
            On::CleanUp => match self {
                Self::Completed | Self::Failed | Self::Timeout | Self::Cancelled => {
                    Some(Self::Cleanup)
                }
                Self::Idle | Self::Starting | Self::Running | Self::Cleanup => None,
            },
        }
    }

    #[inline]
    fn only_from(self, from: Self, to: Self) -> Option<Self> {
        (self == from).then_some(to)
    }
}

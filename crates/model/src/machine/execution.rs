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

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Machine;

/// A state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// Not begun, or wholly over.
    Idle,
    /// Acquiring its resources: a process, a connection.
    Starting,
    /// At work.
    Running,
    /// The work succeeded.
    Completed,
    /// The work, or its start, failed.
    Failed,
    /// The work took longer than it may.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// Cleaning up processes and temporary files, recording usage.
    Cleanup,
}

/// An event of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionTransition {
    /// Begin.
    Start,
    /// The start succeeded.
    Run,
    /// The work succeeded.
    Complete,
    /// The start or the work failed.
    Fail,
    /// The time ran out.
    TimeOut,
    /// It was cancelled.
    Cancel,
    /// Try again after a failure.
    Retry,
    /// No further attempt: clean up.
    CleanUp,
    /// All is in order.
    Finish,
}

impl Machine for ExecutionState {
    type Event = ExecutionTransition;
    const SUBJECT: &'static str = "execution";
    const INITIAL: Self = Self::Idle;
    const STATES: &'static [Self] = &[
        Self::Idle,
        Self::Starting,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::Cleanup,
    ];
    const EVENTS: &'static [ExecutionTransition] = &[
        ExecutionTransition::Start,
        ExecutionTransition::Run,
        ExecutionTransition::Complete,
        ExecutionTransition::Fail,
        ExecutionTransition::TimeOut,
        ExecutionTransition::Cancel,
        ExecutionTransition::Retry,
        ExecutionTransition::CleanUp,
        ExecutionTransition::Finish,
    ];

    #[inline]
    fn after(self, event: ExecutionTransition) -> Option<Self> {
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

    fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Cleanup => "cleanup",
        }
    }

    fn event_label(event: ExecutionTransition) -> &'static str {
        match event {
            ExecutionTransition::Start => "start",
            ExecutionTransition::Run => "run",
            ExecutionTransition::Complete => "complete",
            ExecutionTransition::Fail => "fail",
            ExecutionTransition::TimeOut => "time_out",
            ExecutionTransition::Cancel => "cancel",
            ExecutionTransition::Retry => "retry",
            ExecutionTransition::CleanUp => "clean_up",
            ExecutionTransition::Finish => "finish",
        }
    }
}

impl ExecutionState {
    #[inline]
    fn only_from(self, from: Self, to: Self) -> Option<Self> {
        (self == from).then_some(to)
    }
}

impl fmt::Display for ExecutionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::ExecutionState::{
        Cancelled, Cleanup, Completed, Failed, Idle, Running, Starting, Timeout,
    };
    use super::ExecutionTransition::{
        Cancel, CleanUp, Complete, Fail, Finish, Retry, Run, Start, TimeOut,
    };
    use super::*;
    use crate::machine::testing::{check_reachable, check_table};

    #[test]
    fn the_full_table() {
        check_table(&[
            (Idle, Start, Starting),
            (Starting, Run, Running),
            (Starting, Fail, Failed),
            (Running, Complete, Completed),
            (Running, Fail, Failed),
            (Running, TimeOut, Timeout),
            (Running, Cancel, Cancelled),
            (Failed, Retry, Starting),
            (Completed, CleanUp, Cleanup),
            (Failed, CleanUp, Cleanup),
            (Timeout, CleanUp, Cleanup),
            (Cancelled, CleanUp, Cleanup),
            (Cleanup, Finish, Idle),
        ]);
    }

    #[test]
    fn every_state_is_reachable() {
        check_reachable::<ExecutionState>();
    }

    #[test]
    fn illegal_transitions_list_the_legal_events() {
        let refused = Running.transition(Retry).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "an execution that is running cannot retry; \
             legal here: complete, fail, time_out, cancel"
        );
    }
}

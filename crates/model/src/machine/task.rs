//! The life of a task.
//!
//! ```text
//! pending         start     running
//! pending         fail      failed
//! pending         cancel    cancelled
//! running         ask       awaiting_human
//! running         complete  completed
//! running         fail      failed
//! running         cancel    cancelled
//! awaiting_human  resume    running
//! awaiting_human  fail      failed
//! awaiting_human  cancel    cancelled
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Machine;

/// A status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Accepted, and waiting for its turn.
    Pending,
    /// Being worked on.
    Running,
    /// Waiting for a person's decision. Holds nothing while it waits.
    AwaitingHuman,
    /// Done, with a result.
    Completed,
    /// Ended with an error, perhaps with a partial result.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// An event of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskTransition {
    /// It leaves the queue.
    Start,
    /// It needs a person's decision.
    Ask,
    /// The person has decided.
    Resume,
    /// The work is done.
    Complete,
    /// The work cannot be done.
    Fail,
    /// It was cancelled.
    Cancel,
}

impl TaskStatus {
    /// True if the task has ended: no event is legal any more.
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::AwaitingHuman => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

impl Machine for TaskStatus {
    type Event = TaskTransition;
    const SUBJECT: &'static str = "task";
    const INITIAL: Self = Self::Pending;
    const STATES: &'static [Self] = &[
        Self::Pending,
        Self::Running,
        Self::AwaitingHuman,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];
    const EVENTS: &'static [TaskTransition] = &[
        TaskTransition::Start,
        TaskTransition::Ask,
        TaskTransition::Resume,
        TaskTransition::Complete,
        TaskTransition::Fail,
        TaskTransition::Cancel,
    ];

    #[inline]
    fn after(self, event: TaskTransition) -> Option<Self> {
        use TaskTransition as On;
        match (self, event) {
            (Self::Pending, On::Start) | (Self::AwaitingHuman, On::Resume) => Some(Self::Running),
            (Self::Running, On::Ask) => Some(Self::AwaitingHuman),
            (Self::Running, On::Complete) => Some(Self::Completed),
            (Self::Pending | Self::Running | Self::AwaitingHuman, On::Fail) => Some(Self::Failed),
            (Self::Pending | Self::Running | Self::AwaitingHuman, On::Cancel) => {
                Some(Self::Cancelled)
            }
            (Self::Pending, On::Ask | On::Resume | On::Complete)
            | (Self::Running, On::Start | On::Resume)
            | (Self::AwaitingHuman, On::Start | On::Ask | On::Complete)
            | (
                Self::Completed | Self::Failed | Self::Cancelled,
                On::Start | On::Ask | On::Resume | On::Complete | On::Fail | On::Cancel,
            ) => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::AwaitingHuman => "awaiting_human",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn event_label(event: TaskTransition) -> &'static str {
        match event {
            TaskTransition::Start => "start",
            TaskTransition::Ask => "ask",
            TaskTransition::Resume => "resume",
            TaskTransition::Complete => "complete",
            TaskTransition::Fail => "fail",
            TaskTransition::Cancel => "cancel",
        }
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::TaskStatus::{AwaitingHuman, Cancelled, Completed, Failed, Pending, Running};
    use super::TaskTransition::{Ask, Cancel, Complete, Fail, Resume, Start};
    use super::*;
    use crate::machine::testing::{check_reachable, check_table};

    #[test]
    fn the_full_table() {
        check_table(&[
            (Pending, Start, Running),
            (Pending, Fail, Failed),
            (Pending, Cancel, Cancelled),
            (Running, Ask, AwaitingHuman),
            (Running, Complete, Completed),
            (Running, Fail, Failed),
            (Running, Cancel, Cancelled),
            (AwaitingHuman, Resume, Running),
            (AwaitingHuman, Fail, Failed),
            (AwaitingHuman, Cancel, Cancelled),
        ]);
    }

    #[test]
    fn every_state_is_reachable() {
        check_reachable::<TaskStatus>();
    }

    #[test]
    fn only_final_states_accept_no_event() {
        for &status in TaskStatus::STATES {
            assert_eq!(status.is_final(), status.legal_events().next().is_none(), "{status}");
        }
    }

    #[test]
    fn illegal_transitions_list_the_legal_events() {
        let refused = Pending.transition(Complete).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a task that is pending cannot complete; legal here: start, fail, cancel"
        );
        let refused = Completed.transition(Cancel).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a task that is completed cannot cancel; completed is final"
        );
    }
}

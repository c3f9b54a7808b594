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

use serde::{Deserialize, Serialize};

use super::machine;

machine! {
    "task";

    /// A status of a task.
    #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum TaskStatus {
        /// Accepted, and waiting for its turn.
        Pending = "pending",
        /// Being worked on.
        Running = "running",
        /// Waiting for a person's decision. Holds nothing while it waits.
        AwaitingHuman = "awaiting_human",
        /// Done, with a result.
        Completed = "completed",
        /// Ended with an error, perhaps with a partial result.
        Failed = "failed",
        /// Cancelled.
        Cancelled = "cancelled",
    }

    /// An event of a task.
    pub enum TaskTransition {
        /// It leaves the queue.
        Start = "start",
        /// It needs a person's decision.
        Ask = "ask",
        /// The person has decided.
        Resume = "resume",
        /// The work is done.
        Complete = "complete",
        /// The work cannot be done.
        Fail = "fail",
        /// It was cancelled.
        Cancel = "cancel",
    }
}

impl TaskStatus {
    /// True if the task has ended: no event is legal any more.
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::AwaitingHuman => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    #[inline]
    fn next(self, event: TaskTransition) -> Option<Self> {
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
}

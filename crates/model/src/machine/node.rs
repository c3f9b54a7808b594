//! The life of one node of a workflow.
//!
//! ```text
//! waiting  start   running
//! waiting  ask     asking      a person is asked, by the node or before it runs
//! waiting  finish  done        a condition takes no time
//! waiting  fail    failed      it could not begin
//! waiting  skip    skipped     it can no longer be reached
//! waiting  drop    dropped     another branch was first
//! asking   reply   waiting     a person approved it
//! asking   finish  done        a person has answered what the node asks
//! asking   fail    failed      a person rejected it, or the deadline passed
//! asking   drop    dropped     the task was cancelled
//! running  finish  done
//! running  fail    failed
//! running  drop    dropped     another branch was first, or the workflow ends
//! any but running and asking  repeat  waiting  an edge leads back
//! ```

use super::machine;

machine! {
    "node";

    /// A state of a node.
    pub enum NodeState {
        /// It has not begun.
        Waiting = "waiting",
        /// It is at work.
        Running = "running",
        /// It waits for a person.
        Asking = "asking",
        /// It is done.
        Done = "done",
        /// It failed.
        Failed = "failed",
        /// It was dropped because its result is no longer needed.
        Dropped = "dropped",
        /// It can no longer be reached.
        Skipped = "skipped",
    }

    /// An event of a node.
    pub enum NodeEvent {
        /// It begins.
        Start = "start",
        /// A person is asked.
        Ask = "ask",
        /// A person approved it.
        Reply = "reply",
        /// It is done.
        Finish = "finish",
        /// It failed.
        Fail = "fail",
        /// It is not needed any more.
        Drop = "drop",
        /// It can no longer be reached.
        Skip = "skip",
        /// An edge leads back to it, or to a node before it.
        Repeat = "repeat",
    }
}

impl NodeState {
    #[inline]
    fn next(self, event: NodeEvent) -> Option<Self> {
        use NodeEvent as On;
        match (self, event) {
            (Self::Waiting, On::Start) => Some(Self::Running),
            (Self::Waiting, On::Ask) => Some(Self::Asking),
            (Self::Waiting, On::Skip) => Some(Self::Skipped),
            (Self::Waiting | Self::Running | Self::Asking, On::Drop) => Some(Self::Dropped),
            (Self::Waiting | Self::Running | Self::Asking, On::Finish) => Some(Self::Done),
            (Self::Waiting | Self::Running | Self::Asking, On::Fail) => Some(Self::Failed),
            (Self::Asking, On::Reply)
            | (
                Self::Waiting | Self::Done | Self::Failed | Self::Dropped | Self::Skipped,
                On::Repeat,
            ) => Some(Self::Waiting),
            (Self::Waiting, On::Reply)
            | (Self::Running, On::Start | On::Ask | On::Reply | On::Skip | On::Repeat)
            | (Self::Asking, On::Start | On::Ask | On::Skip | On::Repeat)
            | (
                Self::Done | Self::Failed | Self::Dropped | Self::Skipped,
                On::Start | On::Ask | On::Reply | On::Finish | On::Fail | On::Drop | On::Skip,
            ) => None,
        }
    }
}

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
//! running  finish  done
//! running  fail    failed
//! running  drop    dropped     another branch was first
//! any but running and asking  repeat  waiting    an edge leads back
//! ```

use std::fmt;

use super::Machine;

/// A state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// It has not begun.
    Waiting,
    /// It is at work.
    Running,
    /// It waits for a person.
    Asking,
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// It was dropped because its result is no longer needed.
    Dropped,
    /// It can no longer be reached.
    Skipped,
}

/// An event of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeEvent {
    /// It begins.
    Start,
    /// A person is asked.
    Ask,
    /// A person approved it.
    Reply,
    /// It is done.
    Finish,
    /// It failed.
    Fail,
    /// It is not needed any more.
    Drop,
    /// It can no longer be reached.
    Skip,
    /// An edge leads back to it, or to a node before it.
    Repeat,
}

impl Machine for NodeState {
    type Event = NodeEvent;
    const SUBJECT: &'static str = "node";
    const INITIAL: Self = Self::Waiting;
    const STATES: &'static [Self] = &[
        Self::Waiting,
        Self::Running,
        Self::Asking,
        Self::Done,
        Self::Failed,
        Self::Dropped,
        Self::Skipped,
    ];
    const EVENTS: &'static [NodeEvent] = &[
        NodeEvent::Start,
        NodeEvent::Ask,
        NodeEvent::Reply,
        NodeEvent::Finish,
        NodeEvent::Fail,
        NodeEvent::Drop,
        NodeEvent::Skip,
        NodeEvent::Repeat,
    ];

    #[inline]
    fn after(self, event: NodeEvent) -> Option<Self> {
        use NodeEvent as On;
        match (self, event) {
            (Self::Waiting, On::Start) => Some(Self::Running),
            (Self::Waiting, On::Ask) => Some(Self::Asking),
            (Self::Waiting, On::Skip) => Some(Self::Skipped),
            (Self::Waiting | Self::Running, On::Drop) => Some(Self::Dropped),
            (Self::Waiting | Self::Running | Self::Asking, On::Finish) => Some(Self::Done),
            (Self::Waiting | Self::Running | Self::Asking, On::Fail) => Some(Self::Failed),
            (Self::Asking, On::Reply)
            | (
                Self::Waiting | Self::Done | Self::Failed | Self::Dropped | Self::Skipped,
                On::Repeat,
            ) => Some(Self::Waiting),
            (Self::Waiting, On::Reply)
            | (Self::Running, On::Start | On::Ask | On::Reply | On::Skip | On::Repeat)
            | (Self::Asking, On::Start | On::Ask | On::Drop | On::Skip | On::Repeat)
            | (
                Self::Done | Self::Failed | Self::Dropped | Self::Skipped,
                On::Start | On::Ask | On::Reply | On::Finish | On::Fail | On::Drop | On::Skip,
            ) => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Asking => "asking",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::Skipped => "skipped",
        }
    }

    fn event_label(event: NodeEvent) -> &'static str {
        match event {
            NodeEvent::Start => "start",
            NodeEvent::Ask => "ask",
            NodeEvent::Reply => "reply",
            NodeEvent::Finish => "finish",
            NodeEvent::Fail => "fail",
            NodeEvent::Drop => "drop",
            NodeEvent::Skip => "skip",
            NodeEvent::Repeat => "repeat",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::NodeEvent::{Ask, Drop, Fail, Finish, Repeat, Reply, Skip, Start};
    use super::NodeState::{Asking, Done, Dropped, Failed, Running, Skipped, Waiting};
    use super::*;
    use crate::machine::testing::{check_reachable, check_table};

    #[test]
    fn the_full_table() {
        check_table(&[
            (Waiting, Start, Running),
            (Waiting, Ask, Asking),
            (Waiting, Finish, Done),
            (Waiting, Fail, Failed),
            (Waiting, Drop, Dropped),
            (Waiting, Skip, Skipped),
            (Waiting, Repeat, Waiting),
            (Running, Finish, Done),
            (Running, Fail, Failed),
            (Running, Drop, Dropped),
            (Asking, Reply, Waiting),
            (Asking, Finish, Done),
            (Asking, Fail, Failed),
            (Done, Repeat, Waiting),
            (Failed, Repeat, Waiting),
            (Dropped, Repeat, Waiting),
            (Skipped, Repeat, Waiting),
        ]);
    }

    #[test]
    fn every_state_is_reachable() {
        check_reachable::<NodeState>();
    }
}

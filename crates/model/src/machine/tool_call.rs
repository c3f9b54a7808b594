//! The life of one tool call, from the model's request to its answer.
//!
//! ```text
//! asked     hold    held       it needs a person's approval
//! asked     call    running
//! held      allow   asked      a person has approved it
//! running   call    running    it is safe to repeat, and its process ended
//! running   fail    failed
//! running   wait    waiting    its sub-agent waits for a person
//! running   doubt   in_doubt   it is not safe to repeat, and its process ended
//! waiting   call    running    a person has decided, and the sub-agent goes on
//! failed    call    running    the same tool again, or its fallback
//! in_doubt  allow   asked      a person decided to repeat it
//! any but answered  answer  answered
//! ```

use std::fmt;

use super::Machine;

/// A state of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// The model requested it, and it may be made.
    Asked,
    /// It waits for a person's approval.
    Held,
    /// It is being made.
    Running,
    /// An attempt failed, and another will follow.
    Failed,
    /// The sub-agent that was called waits for a person.
    Waiting,
    /// Its process ended while it ran: its effect is unknown.
    InDoubt,
    /// The model has its answer.
    Answered,
}

/// An event of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallEvent {
    /// It needs a person's approval.
    Hold,
    /// A person approved it.
    Allow,
    /// It is being made.
    Call,
    /// Records a failed attempt.
    Fail,
    /// Its sub-agent waits for a person.
    Wait,
    /// No one knows whether it had its effect.
    Doubt,
    /// It was answered: by the tool, by a person, or with the reason why it was not made.
    Answer,
}

impl Machine for CallState {
    type Event = CallEvent;
    const SUBJECT: &'static str = "tool call";
    const INITIAL: Self = Self::Asked;
    const STATES: &'static [Self] = &[
        Self::Asked,
        Self::Held,
        Self::Running,
        Self::Failed,
        Self::Waiting,
        Self::InDoubt,
        Self::Answered,
    ];
    const EVENTS: &'static [CallEvent] = &[
        CallEvent::Hold,
        CallEvent::Allow,
        CallEvent::Call,
        CallEvent::Fail,
        CallEvent::Wait,
        CallEvent::Doubt,
        CallEvent::Answer,
    ];

    #[inline]
    fn after(self, event: CallEvent) -> Option<Self> {
        use CallEvent as On;
        match (self, event) {
            (Self::Asked, On::Hold) => Some(Self::Held),
            (Self::Held | Self::InDoubt, On::Allow) => Some(Self::Asked),
            (Self::Asked | Self::Running | Self::Failed | Self::Waiting, On::Call) => {
                Some(Self::Running)
            }
            (Self::Running, On::Fail) => Some(Self::Failed),
            (Self::Running, On::Wait) => Some(Self::Waiting),
            (Self::Running, On::Doubt) => Some(Self::InDoubt),
            (
                Self::Asked
                | Self::Held
                | Self::Running
                | Self::Failed
                | Self::Waiting
                | Self::InDoubt,
                On::Answer,
            ) => Some(Self::Answered),
            (Self::Asked, On::Allow | On::Fail | On::Wait | On::Doubt)
            | (Self::Held | Self::InDoubt, On::Hold | On::Call | On::Fail | On::Wait | On::Doubt)
            | (Self::Running, On::Hold | On::Allow)
            | (
                Self::Failed | Self::Waiting,
                On::Hold | On::Allow | On::Fail | On::Wait | On::Doubt,
            )
            | (
                Self::Answered,
                On::Hold | On::Allow | On::Call | On::Fail | On::Wait | On::Doubt | On::Answer,
            ) => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Held => "held",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::InDoubt => "in_doubt",
            Self::Answered => "answered",
        }
    }

    fn event_label(event: CallEvent) -> &'static str {
        match event {
            CallEvent::Hold => "hold",
            CallEvent::Allow => "allow",
            CallEvent::Call => "call",
            CallEvent::Fail => "fail",
            CallEvent::Wait => "wait",
            CallEvent::Doubt => "doubt",
            CallEvent::Answer => "answer",
        }
    }
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::CallEvent::{Allow, Answer, Call, Doubt, Fail, Hold, Wait};
    use super::CallState::{Answered, Asked, Failed, Held, InDoubt, Running, Waiting};
    use super::*;
    use crate::machine::testing::{check_reachable, check_table};

    #[test]
    fn the_full_table() {
        check_table(&[
            (Asked, Hold, Held),
            (Asked, Call, Running),
            (Asked, Answer, Answered),
            (Held, Allow, Asked),
            (Held, Answer, Answered),
            (Running, Call, Running),
            (Running, Fail, Failed),
            (Running, Wait, Waiting),
            (Running, Doubt, InDoubt),
            (Running, Answer, Answered),
            (Failed, Call, Running),
            (Failed, Answer, Answered),
            (Waiting, Call, Running),
            (Waiting, Answer, Answered),
            (InDoubt, Allow, Asked),
            (InDoubt, Answer, Answered),
        ]);
    }

    #[test]
    fn every_state_is_reachable() {
        check_reachable::<CallState>();
    }
}

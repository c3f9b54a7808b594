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

use super::machine;

machine! {
    "tool call";

    /// A state of a tool call.
    pub enum CallState {
        /// The model requested it, and it may be made.
        Asked = "asked",
        /// It waits for a person's approval.
        Held = "held",
        /// It is being made.
        Running = "running",
        /// An attempt failed, and another will follow.
        Failed = "failed",
        /// The sub-agent that was called waits for a person.
        Waiting = "waiting",
        /// Its process ended while it ran: its effect is unknown.
        InDoubt = "in_doubt",
        /// The model has its answer.
        Answered = "answered",
    }

    /// An event of a tool call.
    pub enum CallEvent {
        /// It needs a person's approval.
        Hold = "hold",
        /// A person approved it.
        Allow = "allow",
        /// It is being made.
        Call = "call",
        /// Records a failed attempt.
        Fail = "fail",
        /// Its sub-agent waits for a person.
        Wait = "wait",
        /// No one knows whether it had its effect.
        Doubt = "doubt",
        /// It was answered: by the tool, by a person, or with the reason why it was not made.
        Answer = "answer",
    }
}

impl CallState {
    #[inline]
    fn next(self, event: CallEvent) -> Option<Self> {
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
}

//! The loop of a task. With a model it is reason, act, observe, until the model answers; a workflow
//! or a program only acts, and so does an
//! agent on another server.
//!
//! ```text
//! idle         call     reasoning
//! idle         back_off backing_off
//! idle         act      acting        a workflow or a program begins
//! reasoning    call     reasoning     the owner ended; a new one calls again
//! reasoning    act      acting
//! reasoning    answer   answered
//! reasoning    fail     idle
//! backing_off  call     reasoning
//! backing_off  act      acting        a program is run again
//! acting       call     reasoning     every tool call has its answer
//! acting       fail     idle          a program failed
//! acting       ask      asking
//! asking       reply    acting
//! answered     call     reasoning     the answer is invalid; the model is asked again
//! any but over end      over
//! ```

use std::fmt;

use super::Machine;

/// A state of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoopState {
    /// Nothing: the model has not been called, or a call has just failed.
    Idle,
    /// The model is thinking.
    Reasoning,
    /// A call of the model failed, or a program, and the next try has its time.
    BackingOff,
    /// Tools are at work, or nodes, or a program.
    Acting,
    /// A person decides about a tool call, or about one of a sub-agent, or about a program in doubt.
    Asking,
    /// The model has answered without asking for tools.
    Answered,
    /// The loop has ended.
    Over,
}

/// An event of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoopEvent {
    /// The conversation went to the model.
    Call,
    /// The model asks for tools, or a workflow or a program begins.
    Act,
    /// The model has answered, and asks for no tools.
    Answer,
    /// The call of the model failed, or the program.
    Fail,
    /// The next attempt was scheduled.
    BackOff,
    /// A person is asked.
    Ask,
    /// The person has decided.
    Reply,
    /// The task has ended.
    End,
}

impl Machine for LoopState {
    type Event = LoopEvent;
    const SUBJECT: &'static str = "loop";
    const INITIAL: Self = Self::Idle;
    const STATES: &'static [Self] = &[
        Self::Idle,
        Self::Reasoning,
        Self::BackingOff,
        Self::Acting,
        Self::Asking,
        Self::Answered,
        Self::Over,
    ];
    const EVENTS: &'static [LoopEvent] = &[
        LoopEvent::Call,
        LoopEvent::Act,
        LoopEvent::Answer,
        LoopEvent::Fail,
        LoopEvent::BackOff,
        LoopEvent::Ask,
        LoopEvent::Reply,
        LoopEvent::End,
    ];

    #[inline]
    fn after(self, event: LoopEvent) -> Option<Self> {
        use LoopEvent as On;
        match (self, event) {
            (
                Self::Idle | Self::Reasoning | Self::BackingOff | Self::Acting | Self::Answered,
                On::Call,
            ) => Some(Self::Reasoning),
            (Self::Idle | Self::Reasoning | Self::BackingOff, On::Act)
            | (Self::Asking, On::Reply) => Some(Self::Acting),
            (Self::Reasoning | Self::Acting, On::Fail) => Some(Self::Idle),
            (Self::Idle, On::BackOff) => Some(Self::BackingOff),
            (Self::Acting, On::Ask) => Some(Self::Asking),
            (Self::Reasoning, On::Answer) => Some(Self::Answered),
            (
                Self::Idle
                | Self::Reasoning
                | Self::BackingOff
                | Self::Acting
                | Self::Asking
                | Self::Answered,
                On::End,
            ) => Some(Self::Over),
            (Self::Idle, On::Answer | On::Fail | On::Ask | On::Reply)
            | (Self::Reasoning, On::BackOff | On::Ask | On::Reply)
            | (Self::BackingOff, On::Answer | On::Fail | On::BackOff | On::Ask | On::Reply)
            | (
                Self::Answered,
                On::Act | On::Answer | On::Fail | On::BackOff | On::Ask | On::Reply,
            )
            | (Self::Acting, On::Act | On::Answer | On::BackOff | On::Reply)
            | (Self::Asking, On::Call | On::Act | On::Answer | On::Fail | On::BackOff | On::Ask)
            | (
                Self::Over,
                On::Call
                | On::Act
                | On::Answer
                | On::Fail
                | On::BackOff
                | On::Ask
                | On::Reply
                | On::End,
            ) => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Reasoning => "reasoning",
            Self::BackingOff => "backing_off",
            Self::Acting => "acting",
            Self::Asking => "asking",
            Self::Answered => "answered",
            Self::Over => "over",
        }
    }

    fn event_label(event: LoopEvent) -> &'static str {
        match event {
            LoopEvent::Call => "call",
            LoopEvent::Act => "act",
            LoopEvent::Answer => "answer",
            LoopEvent::Fail => "fail",
            LoopEvent::BackOff => "back_off",
            LoopEvent::Ask => "ask",
            LoopEvent::Reply => "reply",
            LoopEvent::End => "end",
        }
    }
}

impl fmt::Display for LoopState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::LoopEvent::{Act, Answer, Ask, BackOff, Call, End, Fail, Reply};
    use super::LoopState::{Acting, Answered, Asking, BackingOff, Idle, Over, Reasoning};
    use super::*;
    use crate::machine::testing::{check_reachable, check_table};

    #[test]
    fn the_full_table() {
        check_table(&[
            (Idle, Call, Reasoning),
            (Idle, BackOff, BackingOff),
            (Idle, Act, Acting),
            (Idle, End, Over),
            (Reasoning, Call, Reasoning),
            (Reasoning, Act, Acting),
            (Reasoning, Answer, Answered),
            (Reasoning, Fail, Idle),
            (Reasoning, End, Over),
            (BackingOff, Call, Reasoning),
            (BackingOff, Act, Acting),
            (BackingOff, End, Over),
            (Acting, Call, Reasoning),
            (Acting, Ask, Asking),
            (Acting, Fail, Idle),
            (Acting, End, Over),
            (Asking, Reply, Acting),
            (Asking, End, Over),
            (Answered, Call, Reasoning),
            (Answered, End, Over),
        ]);
    }

    #[test]
    fn every_state_is_reachable() {
        check_reachable::<LoopState>();
    }
}

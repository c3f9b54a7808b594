//! The loop of an agent with a model: reason, act, observe, until the model answers.
//!
//! ```text
//! idle         call     reasoning
//! idle         back_off backing_off
//! reasoning    call     reasoning     the process that called is gone, and another calls again
//! reasoning    act      acting
//! reasoning    answer   over
//! reasoning    fail     idle
//! backing_off  call     reasoning
//! acting       call     reasoning     every tool call has its answer
//! acting       ask      asking
//! asking       reply    acting
//! any but over end      over
//! ```

use std::fmt;

use super::Machine;

/// What the loop is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoopState {
    /// Nothing: the model has not been called, or a call has just failed.
    Idle,
    /// The model is thinking.
    Reasoning,
    /// A call of the model failed, and the next try has its time.
    BackingOff,
    /// Tools are at work.
    Acting,
    /// A person decides about a tool call, or about one of a sub-agent.
    Asking,
    /// The loop has ended.
    Over,
}

/// What can happen to the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoopEvent {
    /// The conversation went to the model.
    Call,
    /// The model asks for tools.
    Act,
    /// The model has answered for good.
    Answer,
    /// The call of the model failed.
    Fail,
    /// The next try was given its time.
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
    const STATES: &'static [Self] =
        &[Self::Idle, Self::Reasoning, Self::BackingOff, Self::Acting, Self::Asking, Self::Over];
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
            (Self::Idle | Self::Reasoning | Self::BackingOff | Self::Acting, On::Call) => {
                Some(Self::Reasoning)
            }
            (Self::Reasoning, On::Act) | (Self::Asking, On::Reply) => Some(Self::Acting),
            (Self::Reasoning, On::Fail) => Some(Self::Idle),
            (Self::Idle, On::BackOff) => Some(Self::BackingOff),
            (Self::Acting, On::Ask) => Some(Self::Asking),
            (Self::Reasoning, On::Answer)
            | (
                Self::Idle | Self::Reasoning | Self::BackingOff | Self::Acting | Self::Asking,
                On::End,
            ) => Some(Self::Over),
            (Self::Idle, On::Act | On::Answer | On::Fail | On::Ask | On::Reply)
            | (Self::Reasoning, On::BackOff | On::Ask | On::Reply)
            | (
                Self::BackingOff,
                On::Act | On::Answer | On::Fail | On::BackOff | On::Ask | On::Reply,
            )
            | (Self::Acting, On::Act | On::Answer | On::Fail | On::BackOff | On::Reply)
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
    use super::LoopState::{Acting, Asking, BackingOff, Idle, Over, Reasoning};
    use super::*;
    use crate::machine::testing::{check_reachable, check_table};

    #[test]
    fn the_full_table() {
        check_table(&[
            (Idle, Call, Reasoning),
            (Idle, BackOff, BackingOff),
            (Idle, End, Over),
            (Reasoning, Call, Reasoning),
            (Reasoning, Act, Acting),
            (Reasoning, Answer, Over),
            (Reasoning, Fail, Idle),
            (Reasoning, End, Over),
            (BackingOff, Call, Reasoning),
            (BackingOff, End, Over),
            (Acting, Call, Reasoning),
            (Acting, Ask, Asking),
            (Acting, End, Over),
            (Asking, Reply, Acting),
            (Asking, End, Over),
        ]);
    }

    #[test]
    fn every_state_is_reachable() {
        check_reachable::<LoopState>();
    }
}

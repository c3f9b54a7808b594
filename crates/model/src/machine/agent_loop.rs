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

use super::machine;

machine! {
    "loop";

    /// A state of the loop.
    pub enum LoopState {
        /// Nothing: the model has not been called, or a call has just failed.
        Idle = "idle",
        /// The model is thinking.
        Reasoning = "reasoning",
        /// A call of the model failed, or a program, and the next try has its time.
        BackingOff = "backing_off",
        /// Tools are at work, or nodes, or a program.
        Acting = "acting",
        /// A person decides about a tool call, or about one of a sub-agent, or about a program in doubt.
        Asking = "asking",
        /// The model has answered without asking for tools.
        Answered = "answered",
        /// The loop has ended.
        Over = "over",
    }

    /// An event of the loop.
    pub enum LoopEvent {
        /// The conversation went to the model.
        Call = "call",
        /// The model asks for tools, or a workflow or a program begins.
        Act = "act",
        /// The model has answered, and asks for no tools.
        Answer = "answer",
        /// The call of the model failed, or the program.
        Fail = "fail",
        /// The next attempt was scheduled.
        BackOff = "back_off",
        /// A person is asked.
        Ask = "ask",
        /// The person has decided.
        Reply = "reply",
        /// The task has ended.
        End = "end",
    }
}

impl LoopState {
    #[inline]
    fn next(self, event: LoopEvent) -> Option<Self> {
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
}

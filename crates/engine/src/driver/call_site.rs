//! The position of a call in a run.

/// The position of a call in a run, by which cassettes find its answer. It does not depend on the
/// order in which parallel sessions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSite<'a> {
    /// The conversation: the agent's name, and for a sub-agent also the calls that led to it, such as
    /// `editor/2.1/writer` for the first call of the second turn.
    pub session: &'a str,
    /// The turn of the conversation, from 1.
    pub turn: u32,
}

impl CallSite<'_> {
    /// The call site of a call outside any run, made by hand.
    pub const OUTSIDE: Self = Self { session: "", turn: 0 };
}

//! Where in a run something is asked.

/// Where in a run something is asked. A run that goes the same way asks it at the same place, however
/// many conversations go on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<'a> {
    /// The conversation: the agent's name, and for a sub-agent also the calls that led to it, such as
    /// `editor/2.1/writer` for the first call of the second turn.
    pub session: &'a str,
    /// The turn of the conversation, from 1.
    pub turn: u32,
}

impl Place<'_> {
    /// Outside of any run: someone asks by hand.
    pub const OUTSIDE: Self = Self { session: "", turn: 0 };
}

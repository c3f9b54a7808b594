//! The state machines, and the trait they share.
//!
//! A machine is an enum of states, an enum of events and one exhaustive `match`. A transition
//! allocates nothing and copies nothing; see `docs/adr/0002-separate-config-and-runtime-types.md`.

pub mod agent_loop;
pub mod execution;
pub mod node;
pub mod task;
pub mod tool_call;

use std::fmt;

/// A state machine over `Copy` states, small enough to be enumerated for tests and diagrams.
pub trait Machine: Copy + Eq + fmt::Debug + 'static {
    /// The events of the machine.
    type Event: Copy + Eq + fmt::Debug + 'static;
    /// The subject in messages: "task", "execution".
    const SUBJECT: &'static str;
    /// The initial state.
    const INITIAL: Self;
    /// Every state.
    const STATES: &'static [Self];
    /// Every event.
    const EVENTS: &'static [Self::Event];

    /// The state after `event`; none if the event is illegal.
    fn after(self, event: Self::Event) -> Option<Self>;
    /// The state's name as files and JSON have it.
    fn label(self) -> &'static str;
    /// The event's name.
    fn event_label(event: Self::Event) -> &'static str;

    /// The state after `event`, or an error that names the state, the event and the legal events.
    fn transition(self, event: Self::Event) -> Result<Self, IllegalTransition<Self>> {
        self.after(event).ok_or(IllegalTransition { state: self, event })
    }

    /// The events that are legal in this state.
    fn legal_events(self) -> impl Iterator<Item = Self::Event> {
        Self::EVENTS.iter().copied().filter(move |&event| self.after(event).is_some())
    }
}

/// An event that a machine in this state does not take. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IllegalTransition<M: Machine> {
    /// The state the machine stays in.
    pub state: M,
    /// The event that was refused.
    pub event: M::Event,
}

impl<M: Machine> fmt::Display for IllegalTransition<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, state, event) = (M::SUBJECT, self.state.label(), M::event_label(self.event));
        let article = if subject.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        write!(f, "{article} {subject} that is {state} cannot {event}; ")?;
        let mut legal = self.state.legal_events().map(M::event_label);
        match legal.next() {
            None => write!(f, "{state} is final"),
            Some(first) => {
                write!(f, "legal here: {first}")?;
                legal.try_for_each(|event| write!(f, ", {event}"))
            }
        }
    }
}

impl<M: Machine> fmt::Debug for IllegalTransition<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IllegalTransition({self})")
    }
}

impl<M: Machine> std::error::Error for IllegalTransition<M> {}

#[cfg(test)]
pub(crate) mod testing {
    //! The checks every machine must pass.

    use super::Machine;

    /// Compares `after` with a table that lists every legal transition, for all pairs.
    pub(crate) fn check_table<M: Machine>(legal: &[(M, M::Event, M)]) {
        for &state in M::STATES {
            for &event in M::EVENTS {
                let expected =
                    legal.iter().find(|row| row.0 == state && row.1 == event).map(|row| row.2);
                assert_eq!(state.after(event), expected, "{state:?} on {event:?}");
            }
        }
    }

    /// Walks from the initial state and expects to see every state.
    pub(crate) fn check_reachable<M: Machine>() {
        let mut seen = vec![M::INITIAL];
        let mut next = 0;
        while let Some(&state) = seen.get(next) {
            next += 1;
            for &event in M::EVENTS {
                if let Some(after) = state.after(event)
                    && !seen.contains(&after)
                {
                    seen.push(after);
                }
            }
        }
        for state in M::STATES {
            assert!(seen.contains(state), "{state:?} cannot be reached");
        }
    }
}

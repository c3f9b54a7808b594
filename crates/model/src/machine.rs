//! The state machines, and the trait they share.
//!
//! A machine is an enum of states, an enum of events and one exhaustive `match`. A transition
//! allocates nothing and copies nothing; see `docs/adr/0002-separate-config-and-runtime-types.md`.

pub mod agent_loop;
pub mod execution;
pub mod node;
pub mod schedule;
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

/// Declares the states and events of a machine, each with its label, and implements [`Machine`] with
/// the state's own `next`. The first state is the initial one.
macro_rules! machine {
    (
        $subject:literal;

        $(#[$state_attribute:meta])*
        pub enum $State:ident {
            $($(#[$state_doc:meta])* $state:ident = $state_label:literal,)+
        }

        $(#[$event_attribute:meta])*
        pub enum $Event:ident {
            $($(#[$event_doc:meta])* $event:ident = $event_label:literal,)+
        }
    ) => {
        $(#[$state_attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $State {
            $($(#[$state_doc])* $state,)+
        }

        $(#[$event_attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Event {
            $($(#[$event_doc])* $event,)+
        }

        impl $crate::machine::Machine for $State {
            type Event = $Event;
            const SUBJECT: &'static str = $subject;
            const INITIAL: Self = Self::STATES[0];
            const STATES: &'static [Self] = &[$(Self::$state),+];
            const EVENTS: &'static [$Event] = &[$($Event::$event),+];

            #[inline]
            fn after(self, event: $Event) -> Option<Self> {
                self.next(event)
            }

            fn label(self) -> &'static str {
                match self {
                    $(Self::$state => $state_label,)+
                }
            }

            fn event_label(event: $Event) -> &'static str {
                match event {
                    $($Event::$event => $event_label,)+
                }
            }
        }

        impl std::fmt::Display for $State {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::machine::Machine::label(*self))
            }
        }
    };
}
use machine;

#[cfg(test)]
mod tests {
    use super::*;
    use agent_loop::LoopState;
    use execution::{ExecutionState, ExecutionTransition};
    use node::NodeState;
    use schedule::ScheduleStatus;
    use task::{TaskStatus, TaskTransition};
    use tool_call::CallState;

    /// Compares `after` with the table in the docs of the machine's file for all pairs of state and
    /// event, and expects every state to be reachable.
    fn check<M: Machine>(file: &str) {
        let legal = documented::<M>(file);
        for &state in M::STATES {
            for &event in M::EVENTS {
                let expected =
                    legal.iter().find(|row| row.0 == state && row.1 == event).map(|row| row.2);
                assert_eq!(state.after(event), expected, "{state:?} on {event:?}");
            }
        }
        let mut seen = vec![M::INITIAL];
        let mut next = 0;
        while let Some(&state) = seen.get(next) {
            next += 1;
            let reached = M::EVENTS.iter().filter_map(|&event| state.after(event));
            for after in reached {
                if !seen.contains(&after) {
                    seen.push(after);
                }
            }
        }
        for state in M::STATES {
            assert!(seen.contains(state), "{state:?} cannot be reached");
        }
    }

    /// Reads rows such as `idle start running`, or `any but over and idle end over`, from the
    /// table. Words after the target state are a remark.
    fn documented<M: Machine>(file: &str) -> Vec<(M, M::Event, M)> {
        let table = file.split("//! ```").nth(1).unwrap().strip_prefix("text\n").unwrap();
        let mut rows = Vec::new();
        for line in table.lines() {
            let words: Vec<&str> = line.trim_start_matches("//!").split_whitespace().collect();
            let event_of =
                |word: &str| M::EVENTS.iter().find(|event| M::event_label(**event) == word);
            let on = words.iter().position(|word| event_of(word).is_some()).expect(line);
            let (from, &event) = (&words[..on], event_of(words[on]).unwrap());
            let to = *M::STATES.iter().find(|state| state.label() == words[on + 1]).expect(line);
            let is_any = from[0] == "any";
            let from = M::STATES.iter().filter(|state| from.contains(&state.label()) != is_any);
            rows.extend(from.map(|&state| (state, event, to)));
        }
        rows
    }

    #[test]
    fn machines_follow_their_tables() {
        check::<LoopState>(include_str!("machine/agent_loop.rs"));
        check::<ExecutionState>(include_str!("machine/execution.rs"));
        check::<NodeState>(include_str!("machine/node.rs"));
        check::<ScheduleStatus>(include_str!("machine/schedule.rs"));
        check::<TaskStatus>(include_str!("machine/task.rs"));
        check::<CallState>(include_str!("machine/tool_call.rs"));
    }

    #[test]
    fn only_final_states_accept_no_event() {
        for &status in TaskStatus::STATES {
            assert_eq!(status.is_final(), status.legal_events().next().is_none(), "{status}");
        }
    }

    #[test]
    fn illegal_transitions_list_the_legal_events() {
        let refused = TaskStatus::Pending.transition(TaskTransition::Complete).unwrap_err();
        insta::assert_snapshot!(refused, @"a task that is pending cannot complete; legal here: start, fail, cancel");
        let refused = TaskStatus::Completed.transition(TaskTransition::Cancel).unwrap_err();
        insta::assert_snapshot!(refused, @"a task that is completed cannot cancel; completed is final");
        let refused = ExecutionState::Running.transition(ExecutionTransition::Retry).unwrap_err();
        insta::assert_snapshot!(refused, @"an execution that is running cannot retry; legal here: complete, fail, time_out, cancel");
    }
}

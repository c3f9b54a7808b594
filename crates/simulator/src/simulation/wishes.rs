//! What agents ask for by their actions, until a turn is over.

use std::collections::{HashMap, HashSet};

use polity_statechart::{AgentRef, AgentRequest, Chart};

use crate::kernel::Slot;

/// The most requests of agents that are looked at in a turn; more are only counted.
pub(crate) const REQUESTS_PER_TURN: usize = 1_000_000;

/// How many agents may ask in how many ticks before it is looked at what they ask for.
const AT_ONCE: u64 = 4_000_000;

/// What agents have asked for in a turn so far.
#[derive(Debug)]
pub(super) struct Wishes {
    kept: Vec<(Slot, AgentRequest)>,
    heard: Heard,
    /// Whether there is anything to ask for.
    are_possible: bool,
    most: usize,
    left_out: u64,
}

/// What needs not be heard again, because no one can have undone it since.
#[derive(Debug)]
enum Heard {
    /// All speak of themselves alone: what each has asked for last.
    Themselves(HashMap<Slot, AgentRequest>),
    /// Some speak of others: who has asked for the same as everyone since something else was asked for.
    Others(Option<AgentRequest>, HashSet<Slot>),
}

impl Heard {
    /// Whether it is the first time. Each copy is another one.
    fn is_new(&mut self, slot: Slot, wish: &AgentRequest) -> bool {
        let is_copy = matches!(wish, AgentRequest::Copy { .. });
        match self {
            Self::Themselves(last) => {
                is_copy || last.insert(slot, wish.clone()).as_ref() != Some(wish)
            }
            Self::Others(last, who) => {
                if last.as_ref() != Some(wish) {
                    *last = Some(wish.clone());
                    who.clear();
                }
                who.insert(slot) || is_copy
            }
        }
    }

    fn forget(&mut self) {
        match self {
            Self::Themselves(last) => last.clear(),
            Self::Others(last, who) => {
                *last = None;
                who.clear();
            }
        }
    }
}

impl Wishes {
    pub(super) fn new(chart: &Chart) -> Self {
        let heard = if chart.requests().any(speaks_of_another) {
            Heard::Others(None, HashSet::new())
        } else {
            Heard::Themselves(HashMap::new())
        };
        Self {
            kept: Vec::new(),
            heard,
            are_possible: chart.requests().next().is_some(),
            most: REQUESTS_PER_TURN,
            left_out: 0,
        }
    }

    /// How many ticks may go by before what so many agents ask for is taken in.
    pub(super) fn ticks(&self, agents: u64) -> u32 {
        if !self.are_possible {
            return u32::MAX;
        }
        u32::try_from(AT_ONCE / agents.max(1)).unwrap_or(u32::MAX).max(1)
    }

    /// Takes in what agents asked for.
    pub(super) fn take_in(&mut self, wishes: Vec<(Slot, AgentRequest)>) {
        for (slot, wish) in wishes {
            if !self.heard.is_new(slot, &wish) {
                continue;
            }
            if self.kept.len() < self.most {
                self.kept.push((slot, wish));
            } else {
                self.left_out += 1;
            }
        }
    }

    /// All that was asked for in a turn, and how much more there was.
    pub(super) fn take(&mut self) -> (Vec<(Slot, AgentRequest)>, u64) {
        self.heard.forget();
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.left_out))
    }
}

fn speaks_of_another(request: &AgentRequest) -> bool {
    match request {
        AgentRequest::Pause { who: AgentRef::Named(_), .. }
        | AgentRequest::Remove { who: AgentRef::Named(_) }
        | AgentRequest::Resume { .. } => true,
        AgentRequest::Pause { who: AgentRef::Requester, .. }
        | AgentRequest::Remove { who: AgentRef::Requester }
        | AgentRequest::Copy { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(action: &str) -> Wishes {
        let text = format!(
            "name: n\nstates: [a, b]\ninitial: a\ntransitions:\n  \
             - {{trigger: t, source: a, target: b, action: {action}}}\n"
        );
        Wishes { most: 3, ..Wishes::new(&Chart::from_text(&text).unwrap()) }
    }

    #[test]
    fn what_agents_ask_of_themselves_again_is_heard_once() {
        let mut asked = wishes("[pause, copy]");
        let pause =
            |slot| (Slot(slot), AgentRequest::Pause { who: AgentRef::Requester, turns: None });
        let copy = |slot| (Slot(slot), AgentRequest::Copy { name: None });
        asked.take_in(vec![pause(1), copy(1), pause(1)]);
        asked.take_in(vec![pause(1), copy(1), copy(1), pause(2)]);
        assert_eq!(asked.take(), (vec![pause(1), copy(1), copy(1)], 2));
        asked.take_in(vec![pause(1)]);
        assert_eq!(asked.take(), (vec![pause(1)], 0));
    }

    #[test]
    fn what_may_have_been_undone_is_heard_again() {
        let mut asked = Wishes { most: 5, ..wishes("resume 'boss'") };
        let resume = |slot| (Slot(slot), AgentRequest::Resume { name: "boss".into() });
        let pause =
            |slot| (Slot(slot), AgentRequest::Pause { who: AgentRef::Requester, turns: None });
        asked.take_in(vec![resume(1), resume(2), resume(1)]);
        asked.take_in(vec![resume(2), resume(1), pause(3), pause(3), resume(1)]);
        asked.take_in(vec![resume(1), resume(2), pause(1)]);
        let kept = vec![resume(1), resume(2), pause(3), resume(1), resume(2)];
        assert_eq!(asked.take(), (kept, 1));
    }

    #[test]
    fn the_more_agents_may_ask_the_sooner_they_are_heard() {
        let asked = wishes("pause");
        assert_eq!((asked.ticks(10), asked.ticks(1_000_000)), (400_000, 4));
        assert_eq!((asked.ticks(0), asked.ticks(100_000_000)), (4_000_000, 1));
        assert_eq!(wishes("[]").ticks(1_000_000), u32::MAX);
    }
}

//! Who is there, who is paused, and for how long.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use crate::kernel::{AgentSerial, Slot};
use crate::names::{FreeNames, Names};

/// A slot that no agent has.
const GONE: u32 = u32::MAX;

/// How many agents a run may have had in all, the removed included.
pub(crate) const SERIALS_MAX: u64 = 1 << 48;

/// So few places of agents that have gone do no harm.
const FORGET_MIN: usize = 1024;

/// The agents of a simulation by name and serial. What they do is the kernel's.
#[derive(Debug, Clone)]
pub(crate) struct Population {
    names: Names,
    free_names: FreeNames,
    /// The slots of those who were there from the start, by serial. There may be a million.
    first: Vec<u32>,
    /// Those who came later and are still there.
    later: BTreeMap<AgentSerial, Later>,
    next: u64,
    count: u64,
    max_agents: u64,
    /// The paused, and the turn after which each goes on by itself.
    paused: HashMap<AgentSerial, Option<u64>>,
    /// Who goes on by itself after a turn; some may have been resumed or removed before.
    due: BTreeMap<u64, Vec<AgentSerial>>,
}

/// An agent that was not there from the start.
#[derive(Debug, Clone, Copy)]
struct Later {
    slot: Slot,
    turn_added: u64,
}

impl Population {
    /// Nobody yet. Those with serials below `first` are there from the start.
    pub(crate) fn new(max_agents: u64, first: u64) -> Self {
        Self {
            names: Names::default(),
            free_names: FreeNames::default(),
            first: vec![GONE; usize::try_from(first).unwrap_or_default()],
            later: BTreeMap::new(),
            next: 0,
            count: 0,
            max_agents,
            paused: HashMap::new(),
            due: BTreeMap::new(),
        }
    }

    /// Declares a group of agents, which have the next serials in order.
    pub(crate) fn declare_group(&mut self, stem: &str, first: AgentSerial, count: u64) {
        self.names.add_group(stem, first, count);
    }

    /// Gives an agent of its own name.
    pub(crate) fn declare(&mut self, name: &str, serial: AgentSerial) {
        self.names.add(name, serial);
    }

    /// Lets an agent in that was added in this turn; in turn 0 if it is there from the start.
    pub(crate) fn enter(&mut self, serial: AgentSerial, slot: Slot, turn_added: u64) {
        match self.first_place(serial) {
            Some(place) => self.first[place] = slot.0,
            None => drop(self.later.insert(serial, Later { slot, turn_added })),
        }
        self.next = self.next.max(serial.0 + 1);
        self.count += 1;
    }

    /// Makes sure that no serial below is given again.
    pub(crate) fn reserve_serials(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Where the slot of an agent stands that was there from the start.
    fn first_place(&self, serial: AgentSerial) -> Option<usize> {
        usize::try_from(serial.0).ok().filter(|place| *place < self.first.len())
    }

    /// Takes an agent out, and says where the kernel has it.
    pub(crate) fn leave(&mut self, serial: AgentSerial) -> Option<Slot> {
        let slot = self.slot(serial)?;
        match self.first_place(serial) {
            Some(place) => self.first[place] = GONE,
            None => drop(self.later.remove(&serial)),
        }
        self.count -= 1;
        self.paused.remove(&serial);
        self.names.remove(serial);
        Some(slot)
    }

    /// Pauses an agent in this turn.
    pub(crate) fn pause(&mut self, serial: AgentSerial, turn: u64, turns: Option<NonZeroU32>) {
        let until = turns.map(|turns| turn + u64::from(turns.get()));
        self.paused.insert(serial, until);
        if let Some(until) = until {
            self.due.entry(until).or_default().push(serial);
        }
    }

    /// Lets an agent go on.
    pub(crate) fn resume(&mut self, serial: AgentSerial) {
        self.paused.remove(&serial);
    }

    /// The agents whose pause ends with this turn, in their order. They are no longer paused.
    pub(crate) fn take_due(&mut self, turn: u64) -> Vec<AgentSerial> {
        let mut due = Vec::new();
        while let Some(first) = self.due.first_entry().filter(|first| *first.key() <= turn) {
            let (until, serials) = first.remove_entry();
            // One that was resumed and paused again in between has another end.
            due.extend(
                serials.into_iter().filter(|serial| self.paused.get(serial) == Some(&Some(until))),
            );
        }
        due.sort_unstable();
        due.dedup();
        for serial in &due {
            self.paused.remove(serial);
        }
        due
    }

    /// How many agents there are.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// How many there may be.
    pub(crate) fn max_agents(&self) -> u64 {
        self.max_agents
    }

    /// The serial of the next agent.
    pub(crate) fn next_serial(&self) -> AgentSerial {
        AgentSerial(self.next)
    }

    /// The agent of a name.
    pub(crate) fn find(&self, name: &str) -> Option<AgentSerial> {
        self.names.serial(name).filter(|serial| self.slot(*serial).is_some())
    }

    /// The name of an agent.
    pub(crate) fn name(&self, serial: AgentSerial) -> String {
        self.names.name(serial)
    }

    /// Where the kernel has an agent; nowhere if it is gone.
    pub(crate) fn slot(&self, serial: AgentSerial) -> Option<Slot> {
        match self.first_place(serial) {
            Some(place) => Some(self.first[place]).filter(|slot| *slot != GONE).map(Slot),
            None => self.later.get(&serial).map(|later| later.slot),
        }
    }

    /// Follows the kernel when it closes gaps: by old slot, which the new one is.
    pub(crate) fn follow(&mut self, moved: &[Option<Slot>]) {
        for slot in self.first.iter_mut().filter(|slot| **slot != GONE) {
            *slot = moved[*slot as usize].map_or(GONE, |slot| slot.0);
        }
        for Later { slot, .. } in self.later.values_mut() {
            *slot = moved[slot.0 as usize].unwrap_or(*slot);
        }
    }

    /// When most of those who were there from the start have gone, the others are held like those
    /// who came later, so that nothing costs more than those who are there.
    pub(crate) fn forget_the_gone(&mut self) {
        self.free_names.forget();
        let there = self.first.iter().filter(|slot| **slot != GONE).count();
        if self.first.len() < FORGET_MIN || there > self.first.len() / 4 {
            return;
        }
        let first = std::mem::take(&mut self.first);
        let there = (0..).map(AgentSerial).zip(first).filter(|(_, slot)| *slot != GONE);
        let there: Vec<(AgentSerial, String, Slot)> =
            there.map(|(serial, slot)| (serial, self.name(serial), Slot(slot))).collect();
        self.names.forget_groups();
        for (serial, name, slot) in there {
            self.names.add(&name, serial);
            self.later.insert(serial, Later { slot, turn_added: 0 });
        }
    }

    /// The agents in their order.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (AgentSerial, Slot)> + '_ {
        let first = (0..).map(AgentSerial).zip(&self.first).filter(|(_, slot)| **slot != GONE);
        let later = self.later.iter().map(|(serial, later)| (*serial, later.slot));
        first.map(|(serial, slot)| (serial, Slot(*slot))).chain(later)
    }

    /// The turn that an agent was added in; 0 if it was there from the start.
    pub(crate) fn turn_added(&self, serial: AgentSerial) -> u64 {
        self.later.get(&serial).map_or(0, |later| later.turn_added)
    }

    pub(crate) fn is_paused(&self, serial: AgentSerial) -> bool {
        self.paused.contains_key(&serial)
    }

    /// How many turns a paused agent still skips after `turn`, if it goes on by itself.
    pub(crate) fn auto_resume(&self, serial: AgentSerial, turn: u64) -> Option<NonZeroU32> {
        let until = (*self.paused.get(&serial)?)?;
        NonZeroU32::new(u32::try_from(until.saturating_sub(turn)).unwrap_or(u32::MAX))
    }

    /// The paused in their order.
    pub(crate) fn paused(&self) -> Vec<AgentSerial> {
        let mut paused: Vec<_> = self.paused.keys().copied().collect();
        paused.sort_unstable();
        paused
    }

    pub(crate) fn take_free_names(&mut self) -> FreeNames {
        std::mem::take(&mut self.free_names)
    }

    pub(crate) fn put_free_names(&mut self, free_names: FreeNames) {
        self.free_names = free_names;
    }

    /// Remembers that a name is free again, or will be.
    pub(crate) fn freed(&mut self, name: &str) {
        self.free_names.freed(name);
    }

    /// Forgets what was remembered of free names, after promises that were not kept.
    pub(crate) fn forget_free_names(&mut self) {
        self.free_names.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_gone_take_no_room() {
        let mut population = Population::new(5000, 4001);
        population.declare_group("crowd", AgentSerial(0), 4000);
        population.declare_group("solo", AgentSerial(4000), 1);
        for serial in 0..4001_u32 {
            population.enter(AgentSerial(serial.into()), Slot(serial), 0);
        }
        let known = |population: &Population| {
            let known = population.agents().map(|(serial, slot)| {
                let name = population.name(serial);
                assert_eq!(population.find(&name), Some(serial));
                (name, slot, population.turn_added(serial))
            });
            known.collect::<Vec<_>>()
        };
        population.forget_the_gone();
        assert_eq!(population.first.len(), 4001);
        for serial in (0..4000).filter(|serial| serial % 100 != 7) {
            population.leave(AgentSerial(serial));
        }
        let before = known(&population);
        population.forget_the_gone();
        assert_eq!((population.first.len(), population.later.len()), (0, 41));
        assert_eq!(known(&population), before);
        assert_eq!(population.find("crowd_1"), None);
        assert_eq!(population.next_serial(), AgentSerial(4001));
    }
}

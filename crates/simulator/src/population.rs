//! The agents of a simulation: names, serials and pauses.

pub(crate) mod draw_key;
pub(crate) mod names;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use crate::kernel::{AgentSerial, AgentSlot};
use crate::population::names::{AgentNames, NameNumbers};

/// The slot of a removed agent.
const GONE: u32 = u32::MAX;

/// The maximum number of agents in a run, including removed ones.
pub(crate) const SERIALS_MAX: u64 = 1 << 48;

/// The minimum number of initial agents for which compacting pays off.
const FORGET_MIN: usize = 1024;

/// The agents of a simulation by name and serial. The kernel holds their state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Population {
    names: AgentNames,
    numbers: NameNumbers,
    /// The slots of initial agents, by serial. There may be millions.
    initial: Vec<u32>,
    /// The agents added during the run.
    added: BTreeMap<AgentSerial, AddedAgent>,
    next: u64,
    count: u64,
    max_agents: u64,
    /// The paused agents, with the turn after which the pause ends by itself.
    paused: HashMap<AgentSerial, Option<u64>>,
    /// The agents whose pause ends after a turn. Some may have been resumed or removed since.
    pause_ends: BTreeMap<u64, Vec<AgentSerial>>,
}

/// An agent added during the run.
#[derive(Debug, Clone, Copy)]
struct AddedAgent {
    slot: AgentSlot,
    turn_added: u64,
}

impl Population {
    /// Creates an empty population. Serials below `initial` belong to initial agents.
    pub(crate) fn new(max_agents: u64, initial: u64) -> Self {
        let initial = vec![GONE; usize::try_from(initial).unwrap_or_default()];
        Self { initial, max_agents, ..Self::default() }
    }

    /// Names a group of agents with consecutive serials.
    pub(crate) fn declare_group(&mut self, stem: &str, initial: AgentSerial, count: u64) {
        self.names.add_group(stem, initial, count);
        if count > 1 {
            self.numbers.reserve(stem, count + 1);
        } else if count == 1 {
            self.numbers.record(stem);
        }
    }

    /// Names a single agent.
    pub(crate) fn declare(&mut self, name: &str, serial: AgentSerial) {
        self.names.add(name, serial);
        self.numbers.record(name);
    }

    /// Inserts an agent that was added in a turn; 0 for an initial agent.
    pub(crate) fn insert(&mut self, serial: AgentSerial, slot: AgentSlot, turn_added: u64) {
        match self.initial_index(serial) {
            Some(index) => self.initial[index] = slot.0,
            None => drop(self.added.insert(serial, AddedAgent { slot, turn_added })),
        }
        self.next = self.next.max(serial.0 + 1);
        self.count += 1;
    }

    /// Reserves all serials below `next`.
    pub(crate) fn reserve_serials(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    fn initial_index(&self, serial: AgentSerial) -> Option<usize> {
        usize::try_from(serial.0).ok().filter(|index| *index < self.initial.len())
    }

    /// Removes an agent and returns its slot.
    pub(crate) fn remove(&mut self, serial: AgentSerial) -> Option<AgentSlot> {
        let slot = self.slot(serial)?;
        match self.initial_index(serial) {
            Some(index) => self.initial[index] = GONE,
            None => drop(self.added.remove(&serial)),
        }
        self.count -= 1;
        self.paused.remove(&serial);
        self.names.remove(serial);
        Some(slot)
    }

    /// Pauses an agent in a turn.
    pub(crate) fn pause(&mut self, serial: AgentSerial, turn: u64, turns: Option<NonZeroU32>) {
        let until = turns.map(|turns| turn + u64::from(turns.get()));
        self.paused.insert(serial, until);
        if let Some(until) = until {
            self.pause_ends.entry(until).or_default().push(serial);
        }
    }

    /// Resumes an agent.
    pub(crate) fn resume(&mut self, serial: AgentSerial) {
        self.paused.remove(&serial);
    }

    /// Takes the agents whose pause ends with this turn, in order. They are resumed.
    pub(crate) fn take_ended_pauses(&mut self, turn: u64) -> Vec<AgentSerial> {
        let mut pause_ends = Vec::new();
        while let Some(initial) =
            self.pause_ends.first_entry().filter(|initial| *initial.key() <= turn)
        {
            let (until, serials) = initial.remove_entry();
            // An agent that was resumed and paused again has another end.
            pause_ends.extend(
                serials.into_iter().filter(|serial| self.paused.get(serial) == Some(&Some(until))),
            );
        }
        pause_ends.sort_unstable();
        pause_ends.dedup();
        for serial in &pause_ends {
            self.paused.remove(serial);
        }
        pause_ends
    }

    /// Returns the number of agents.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Returns the maximum number of agents.
    pub(crate) fn max_agents(&self) -> u64 {
        self.max_agents
    }

    pub(crate) fn next_serial(&self) -> AgentSerial {
        AgentSerial(self.next)
    }

    pub(crate) fn find(&self, name: &str) -> Option<AgentSerial> {
        self.names.serial(name).filter(|serial| self.slot(*serial).is_some())
    }

    pub(crate) fn name(&self, serial: AgentSerial) -> String {
        self.names.name(serial)
    }

    /// Returns the slot of an agent, if it is present.
    pub(crate) fn slot(&self, serial: AgentSerial) -> Option<AgentSlot> {
        match self.initial_index(serial) {
            Some(index) => Some(self.initial[index]).filter(|slot| *slot != GONE).map(AgentSlot),
            None => self.added.get(&serial).map(|added| added.slot),
        }
    }

    /// Updates slots after the kernel was compacted: the new slot by old slot.
    pub(crate) fn remap(&mut self, moved: &[Option<AgentSlot>]) {
        for slot in self.initial.iter_mut().filter(|slot| **slot != GONE) {
            *slot = moved[*slot as usize].map_or(GONE, |slot| slot.0);
        }
        for AddedAgent { slot, .. } in self.added.values_mut() {
            *slot = moved[slot.0 as usize].unwrap_or(*slot);
        }
    }

    /// Stores the remaining initial agents like added ones if most have been removed, so that
    /// memory follows the population.
    pub(crate) fn compact(&mut self) {
        let present = self.initial.iter().filter(|slot| **slot != GONE).count();
        if self.initial.len() < FORGET_MIN || present > self.initial.len() / 4 {
            return;
        }
        let initial = std::mem::take(&mut self.initial);
        let present = (0..).map(AgentSerial).zip(initial).filter(|(_, slot)| *slot != GONE);
        let present: Vec<(AgentSerial, String, AgentSlot)> =
            present.map(|(serial, slot)| (serial, self.name(serial), AgentSlot(slot))).collect();
        self.names.clear_groups();
        for (serial, name, slot) in present {
            self.names.add(&name, serial);
            self.added.insert(serial, AddedAgent { slot, turn_added: 0 });
        }
    }

    /// Returns the agents in order.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (AgentSerial, AgentSlot)> + '_ {
        let initial = (0..).map(AgentSerial).zip(&self.initial).filter(|(_, slot)| **slot != GONE);
        let added = self.added.iter().map(|(serial, added)| (*serial, added.slot));
        initial.map(|(serial, slot)| (serial, AgentSlot(*slot))).chain(added)
    }

    /// Returns the turn in which an agent was added; 0 for an initial agent.
    pub(crate) fn turn_added(&self, serial: AgentSerial) -> u64 {
        self.added.get(&serial).map_or(0, |added| added.turn_added)
    }

    pub(crate) fn is_paused(&self, serial: AgentSerial) -> bool {
        self.paused.contains_key(&serial)
    }

    /// Returns the number of turns that a paused agent still skips after `turn`, if its pause ends
    /// by itself.
    pub(crate) fn auto_resume(&self, serial: AgentSerial, turn: u64) -> Option<NonZeroU32> {
        let until = (*self.paused.get(&serial)?)?;
        NonZeroU32::new(u32::try_from(until.saturating_sub(turn)).unwrap_or(u32::MAX))
    }

    /// Returns the paused agents in order.
    pub(crate) fn paused(&self) -> Vec<AgentSerial> {
        let mut paused: Vec<_> = self.paused.keys().copied().collect();
        paused.sort_unstable();
        paused
    }

    /// The next number behind each base name.
    pub(crate) fn numbers(&self) -> &NameNumbers {
        &self.numbers
    }

    /// Reserves all numbers below `next` behind a base name.
    pub(crate) fn reserve_numbers(&mut self, base: &str, next: u64) {
        self.numbers.reserve(base, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacting_drops_removed_initial_agents() {
        let mut population = Population::new(5000, 4001);
        population.declare_group("crowd", AgentSerial(0), 4000);
        population.declare_group("solo", AgentSerial(4000), 1);
        for serial in 0..4001_u32 {
            population.insert(AgentSerial(serial.into()), AgentSlot(serial), 0);
        }
        let known = |population: &Population| {
            let known = population.agents().map(|(serial, slot)| {
                let name = population.name(serial);
                assert_eq!(population.find(&name), Some(serial));
                (name, slot, population.turn_added(serial))
            });
            known.collect::<Vec<_>>()
        };
        population.compact();
        assert_eq!(population.initial.len(), 4001);
        for serial in (0..4000).filter(|serial| serial % 100 != 7) {
            population.remove(AgentSerial(serial));
        }
        let before = known(&population);
        population.compact();
        assert_eq!((population.initial.len(), population.added.len()), (0, 41));
        assert_eq!(known(&population), before);
        assert_eq!(population.find("crowd_1"), None);
        assert_eq!(population.next_serial(), AgentSerial(4001));
    }
}

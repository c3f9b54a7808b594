//! Who is called what.
//!
//! A group of many agents has one name and a number for each of them, so a population of a million
//! needs no million texts. Agents that are added while it runs have names of their own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::kernel::AgentSerial;

/// The longest name of an agent, in characters.
pub(crate) const AGENT_NAME_CHARACTERS_MAX: usize = 100;

/// What is wrong with a text as the name of an agent, if anything.
pub(crate) fn fault_of(name: &str) -> Option<String> {
    if name.trim().is_empty() {
        Some("the name of an agent must not be empty".to_owned())
    } else if name.chars().count() > AGENT_NAME_CHARACTERS_MAX {
        Some(format!("the name of an agent has {AGENT_NAME_CHARACTERS_MAX} characters at most"))
    } else if name.chars().any(char::is_control) {
        Some("the name of an agent must not hold control characters".to_owned())
    } else {
        None
    }
}

/// The names of all agents that ever were, and whose they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// Groups of many, by their first serial.
    groups: Vec<Group>,
    by_stem: HashMap<Arc<str>, usize>,
    own: HashMap<Arc<str>, AgentSerial>,
    own_of: HashMap<AgentSerial, Arc<str>>,
}

/// Agents `stem_1` to `stem_count`, with serials in that order.
#[derive(Debug, Clone)]
struct Group {
    stem: Arc<str>,
    first: u64,
    count: u64,
}

/// Where to look for the lowest number that makes a name free. It only saves looking: without it
/// the answer is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeNames {
    by_stem: HashMap<String, Suffixes>,
}

#[derive(Debug, Clone)]
struct Suffixes {
    /// All numbers below are taken, but for those in `freed`.
    next: u64,
    freed: BinaryHeap<Reverse<u64>>,
}

impl Names {
    /// Names a group of agents with serials from `first`.
    pub(crate) fn add_group(&mut self, stem: &str, first: AgentSerial, count: u64) {
        if count == 1 {
            self.add(stem, first);
        } else if count > 1 {
            let stem: Arc<str> = stem.into();
            self.by_stem.insert(Arc::clone(&stem), self.groups.len());
            self.groups.push(Group { stem, first: first.0, count });
        }
    }

    /// Names one agent.
    pub(crate) fn add(&mut self, name: &str, serial: AgentSerial) {
        let name: Arc<str> = name.into();
        self.own_of.insert(serial, Arc::clone(&name));
        self.own.insert(name, serial);
    }

    /// The agent that was last given this name.
    pub(crate) fn serial(&self, name: &str) -> Option<AgentSerial> {
        if let Some(serial) = self.own.get(name) {
            return Some(*serial);
        }
        let (stem, number) = numbered(name)?;
        let group = &self.groups[*self.by_stem.get(stem)?];
        (1..=group.count).contains(&number).then(|| AgentSerial(group.first + number - 1))
    }

    /// The name of an agent; empty for one that never was.
    pub(crate) fn name(&self, serial: AgentSerial) -> String {
        if let Some(name) = self.own_of.get(&serial) {
            return name.as_ref().to_owned();
        }
        let after = self.groups.partition_point(|group| group.first <= serial.0);
        let group = after.checked_sub(1).and_then(|place| self.groups.get(place));
        group
            .filter(|group| serial.0 - group.first < group.count)
            .map(|group| format!("{}_{}", group.stem, serial.0 - group.first + 1))
            .unwrap_or_default()
    }

    /// Forgets all groups of many, of which there is no one, or none without a name of its own.
    pub(crate) fn forget_groups(&mut self) {
        self.groups = Vec::new();
        self.by_stem = HashMap::new();
    }

    /// Forgets an agent that is removed. Its name may be given again.
    pub(crate) fn remove(&mut self, serial: AgentSerial) {
        if let Some(name) = self.own_of.remove(&serial)
            && self.own.get(&name) == Some(&serial)
        {
            self.own.remove(&name);
        }
    }
}

impl FreeNames {
    /// The name for a new agent: the one wanted, or with the lowest number behind it that no one
    /// has. `taken` says whether someone will have a name.
    pub(crate) fn find(&mut self, wanted: &str, taken: impl Fn(&str) -> bool) -> String {
        if !taken(wanted) {
            return wanted.to_owned();
        }
        let unknown = || Suffixes { next: 1, freed: BinaryHeap::new() };
        let suffixes = self.by_stem.entry(wanted.to_owned()).or_insert_with(unknown);
        while let Some(Reverse(number)) = suffixes.freed.peek() {
            let name = format!("{wanted}_{number}");
            if !taken(&name) {
                return name;
            }
            suffixes.freed.pop();
        }
        loop {
            let name = format!("{wanted}_{}", suffixes.next);
            if !taken(&name) {
                return name;
            }
            suffixes.next += 1;
        }
    }

    /// Remembers that a name is free again, or will be.
    pub(crate) fn freed(&mut self, name: &str) {
        if let Some((stem, number)) = numbered(name)
            && let Some(suffixes) = self.by_stem.get_mut(stem)
            && number < suffixes.next
        {
            suffixes.freed.push(Reverse(number));
        }
    }

    /// Forgets all, after promises that were not kept.
    pub(crate) fn forget(&mut self) {
        self.by_stem.clear();
    }
}

/// A name that ends in a number, as numbers are written.
pub(crate) fn numbered(name: &str) -> Option<(&str, u64)> {
    let (stem, digits) = name.rsplit_once('_')?;
    let number: u64 = digits.parse().ok()?;
    (number > 0 && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0'))
        .then_some((stem, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_of_a_group_are_numbered_from_one() {
        let mut names = Names::default();
        names.add_group("solo", AgentSerial(0), 1);
        names.add_group("crowd", AgentSerial(1), 1_000_000);
        names.add_group("few", AgentSerial(1_000_001), 2);
        for (serial, name) in [
            (0, "solo"),
            (1, "crowd_1"),
            (1_000_000, "crowd_1000000"),
            (1_000_001, "few_1"),
            (1_000_002, "few_2"),
        ] {
            assert_eq!(names.name(AgentSerial(serial)), name);
            assert_eq!(names.serial(name), Some(AgentSerial(serial)), "{name}");
        }
        for unknown in ["crowd", "crowd_0", "crowd_01", "crowd_1000001", "crowd_+1", "few_3", ""] {
            assert_eq!(names.serial(unknown), None, "{unknown}");
        }
        assert_eq!(names.name(AgentSerial(1_000_003)), "");
    }

    #[test]
    fn a_name_that_is_taken_gets_the_lowest_free_number() {
        let mut free = FreeNames::default();
        let mut taken: Vec<String> = Vec::new();
        let add = |free: &mut FreeNames, taken: &mut Vec<String>| {
            let name = free.find("x", |name| taken.iter().any(|other| other == name));
            taken.push(name.clone());
            name
        };
        let four: Vec<String> = (0..4).map(|_| add(&mut free, &mut taken)).collect();
        assert_eq!(four, ["x", "x_1", "x_2", "x_3"]);
        taken.retain(|name| name != "x_1" && name != "x_2");
        free.freed("x_2");
        free.freed("x_1");
        let three: Vec<String> = (0..3).map(|_| add(&mut free, &mut taken)).collect();
        assert_eq!(three, ["x_1", "x_2", "x_4"]);
        free.forget();
        assert_eq!(add(&mut free, &mut taken), "x_5");
    }

    #[test]
    fn names_are_texts_that_can_be_read() {
        assert_eq!(fault_of("ada"), None);
        assert_eq!(fault_of("Ada Lovelace"), None);
        for wrong in ["", "  ", "a\nb", &"a".repeat(AGENT_NAME_CHARACTERS_MAX + 1)] {
            assert!(fault_of(wrong).is_some(), "{wrong:?}");
        }
    }
}

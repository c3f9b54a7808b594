//! The names of agents.
//!
//! A group stores one name and a count, so that a million agents need no million texts. Agents
//! added during a run have names of their own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::kernel::AgentSerial;

/// The maximum length of an agent's name in characters.
pub(crate) const AGENT_NAME_CHARACTERS_MAX: usize = 100;

/// Returns an error message if a text is not a valid name.
pub(crate) fn name_error(name: &str) -> Option<String> {
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

#[derive(Debug, Clone, Default)]
pub(crate) struct AgentNames {
    /// The groups, by first serial.
    groups: Vec<NameGroup>,
    by_stem: HashMap<Arc<str>, usize>,
    own: HashMap<Arc<str>, AgentSerial>,
    own_of: HashMap<AgentSerial, Arc<str>>,
}

/// Agents `stem_1` to `stem_count`, with serials in that order.
#[derive(Debug, Clone)]
struct NameGroup {
    stem: Arc<str>,
    first: u64,
    count: u64,
}

/// A cache of free name suffixes. It only saves searching.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeNames {
    by_stem: HashMap<String, FreeSuffixes>,
}

#[derive(Debug, Clone)]
struct FreeSuffixes {
    /// All numbers below are taken, except released ones.
    next: u64,
    released: BinaryHeap<Reverse<u64>>,
}

impl AgentNames {
    /// Names a group of agents with serials from `first`.
    pub(crate) fn add_group(&mut self, stem: &str, first: AgentSerial, count: u64) {
        if count == 1 {
            self.add(stem, first);
        } else if count > 1 {
            let stem: Arc<str> = stem.into();
            self.by_stem.insert(Arc::clone(&stem), self.groups.len());
            self.groups.push(NameGroup { stem, first: first.0, count });
        }
    }

    /// Names a single agent.
    pub(crate) fn add(&mut self, name: &str, serial: AgentSerial) {
        let name: Arc<str> = name.into();
        self.own_of.insert(serial, Arc::clone(&name));
        self.own.insert(name, serial);
    }

    /// Returns the agent that last had this name.
    pub(crate) fn serial(&self, name: &str) -> Option<AgentSerial> {
        if let Some(serial) = self.own.get(name) {
            return Some(*serial);
        }
        let (stem, number) = split_number(name)?;
        let group = &self.groups[*self.by_stem.get(stem)?];
        (1..=group.count).contains(&number).then(|| AgentSerial(group.first + number - 1))
    }

    /// Returns the name of an agent; empty for an unknown one.
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

    /// Clears all groups. Their remaining agents must have names of their own.
    pub(crate) fn clear_groups(&mut self) {
        self.groups = Vec::new();
        self.by_stem = HashMap::new();
    }

    /// Removes the name of an agent, which may be reused.
    pub(crate) fn remove(&mut self, serial: AgentSerial) {
        if let Some(name) = self.own_of.remove(&serial)
            && self.own.get(&name) == Some(&serial)
        {
            self.own.remove(&name);
        }
    }
}

impl FreeNames {
    /// Returns the requested name, or the same with the lowest free number. `taken` is true for
    /// names in use.
    pub(crate) fn find(&mut self, wanted: &str, taken: impl Fn(&str) -> bool) -> String {
        if !taken(wanted) {
            return wanted.to_owned();
        }
        let unknown = || FreeSuffixes { next: 1, released: BinaryHeap::new() };
        let suffixes = self.by_stem.entry(wanted.to_owned()).or_insert_with(unknown);
        while let Some(Reverse(number)) = suffixes.released.peek() {
            let name = format!("{wanted}_{number}");
            if !taken(&name) {
                return name;
            }
            suffixes.released.pop();
        }
        loop {
            let name = format!("{wanted}_{}", suffixes.next);
            if !taken(&name) {
                return name;
            }
            suffixes.next += 1;
        }
    }

    /// Marks a name as free.
    pub(crate) fn release_name(&mut self, name: &str) {
        if let Some((stem, number)) = split_number(name)
            && let Some(suffixes) = self.by_stem.get_mut(stem)
            && number < suffixes.next
        {
            suffixes.released.push(Reverse(number));
        }
    }

    /// Clears the cache.
    pub(crate) fn forget(&mut self) {
        self.by_stem.clear();
    }
}

/// Splits a name into its stem and number.
pub(crate) fn split_number(name: &str) -> Option<(&str, u64)> {
    let (stem, digits) = name.rsplit_once('_')?;
    let number: u64 = digits.parse().ok()?;
    (number > 0 && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0'))
        .then_some((stem, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_agents_are_numbered_from_one() {
        let mut names = AgentNames::default();
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
    fn taken_name_gets_the_lowest_free_number() {
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
        free.release_name("x_2");
        free.release_name("x_1");
        let three: Vec<String> = (0..3).map(|_| add(&mut free, &mut taken)).collect();
        assert_eq!(three, ["x_1", "x_2", "x_4"]);
        free.forget();
        assert_eq!(add(&mut free, &mut taken), "x_5");
    }

    #[test]
    fn rejects_empty_long_and_control_names() {
        assert_eq!(name_error("ada"), None);
        assert_eq!(name_error("Ada Lovelace"), None);
        for wrong in ["", "  ", "a\nb", &"a".repeat(AGENT_NAME_CHARACTERS_MAX + 1)] {
            assert!(name_error(wrong).is_some(), "{wrong:?}");
        }
    }
}

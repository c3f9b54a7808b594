//! The names of agents.
//!
//! A group stores one name and a count, so that a million agents need no million texts. Agents
//! added during a run have names of their own.
//!
//! A copy, or a new agent whose name is taken, gets the base name and the next number: the copies
//! of `ada` and `ada_7` are `ada_8` and `ada_9`. So names stay short in every generation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::kernel::AgentSerial;

/// The maximum length of an agent's name in characters.
pub(crate) const AGENT_NAME_CHARACTERS_MAX: usize = 100;

/// The maximum length of a base name in characters. Any number fits behind it.
const BASE_CHARACTERS_MAX: usize = 80;

/// The maximum number behind a base name. More digits are part of the name.
pub(crate) const NAME_NUMBER_MAX: u64 = 999_999_999_999_999;

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

/// The next number behind each base name. Numbers are never reused, so that a removed agent and a
/// new one are never confused.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameNumbers(HashMap<String, u64>);

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

impl NameNumbers {
    /// Records that a name is in use.
    pub(crate) fn record(&mut self, name: &str) {
        if let Some((base, number)) = split_number(name) {
            self.reserve(base, number + 1);
        }
    }

    /// Reserves all numbers below `next` behind a base name.
    pub(crate) fn reserve(&mut self, base: &str, next: u64) {
        match self.0.get_mut(base) {
            Some(known) => *known = (*known).max(next),
            None => drop(self.0.insert(base.to_owned(), next)),
        }
    }

    /// Returns the next number behind a base name.
    pub(crate) fn next(&self, base: &str) -> u64 {
        self.0.get(base).copied().unwrap_or(1)
    }

    /// Returns the next number behind every base name that has one, in order.
    pub(crate) fn sorted(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(base, next)| (base.clone(), *next)).collect()
    }
}

/// Returns the base name of a name: without its number, and short enough for any number.
pub(crate) fn base_name(name: &str) -> &str {
    let base = split_number(name).map_or(name, |(base, _)| base);
    base.char_indices().nth(BASE_CHARACTERS_MAX).map_or(base, |(end, _)| &base[..end])
}

/// Splits a name into its base name and number.
pub(crate) fn split_number(name: &str) -> Option<(&str, u64)> {
    let (base, digits) = name.rsplit_once('_')?;
    let number: u64 = digits.parse().ok()?;
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    (is_plain && (1..=NAME_NUMBER_MAX).contains(&number)).then_some((base, number))
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
    fn base_name_has_no_number_and_room_for_one() {
        let long = "ü".repeat(AGENT_NAME_CHARACTERS_MAX);
        for (name, base) in [
            ("ada", "ada"),
            ("ada_7", "ada"),
            ("ada_7_12", "ada_7"),
            ("ada_07", "ada_07"),
            ("ada_0", "ada_0"),
            ("ada_999999999999999", "ada"),
            ("ada_1000000000000000", "ada_1000000000000000"),
            ("ada_lovelace", "ada_lovelace"),
            (long.as_str(), &"ü".repeat(BASE_CHARACTERS_MAX)),
        ] {
            assert_eq!(base_name(name), base);
            let longest = format!("{}_{NAME_NUMBER_MAX}", base_name(name));
            assert_eq!(name_error(&longest), None, "{longest}");
        }
    }

    #[test]
    fn numbers_are_never_reused() {
        let mut numbers = NameNumbers::default();
        assert_eq!(numbers.next("ada"), 1);
        for (name, next) in [("ada", 1), ("ada_1", 2), ("ada_7", 8), ("ada_3", 8)] {
            numbers.record(name);
            assert_eq!(numbers.next("ada"), next, "{name}");
        }
        numbers.reserve("eve", 5);
        let expected = [("ada".to_owned(), 8), ("eve".to_owned(), 5)];
        assert_eq!(numbers.sorted(), expected.into());
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

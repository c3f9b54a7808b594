//! What went wrong without ending the run.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::lifecycle::{LifecycleAction, Operation, ValidationResult};

/// How many warnings of a run are kept; more are only counted.
pub const WARNINGS_MAX: usize = 1000;

/// Something that could not be done, or a guard or action that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The turn.
    pub turn: u64,
    /// What was asked for; none if it is about a guard or an action.
    pub operation: Option<Operation>,
    /// The agent that it is about.
    pub target_agent_name: Option<String>,
    /// Why.
    pub reason: String,
}

/// What could not be done in a turn. What many ask for is told once.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Each with how often it was asked for, in order.
    told: Vec<(Warning, u64)>,
    places: HashMap<(Operation, String, Option<String>), usize>,
}

impl Refused {
    pub(crate) fn add(&mut self, request: &LifecycleAction, result: &ValidationResult) {
        let LifecycleAction { operation, target_agent_name, .. } = request;
        let key = (*operation, target_agent_name.clone(), result.reason.clone());
        let place = *self.places.entry(key).or_insert(self.told.len());
        if let Some((_, count)) = self.told.get_mut(place) {
            *count += 1;
            return;
        }
        let warning = Warning {
            turn: 0,
            operation: Some(*operation),
            target_agent_name: Some(target_agent_name.clone()),
            reason: result.reason.clone().unwrap_or_default(),
        };
        self.told.push((warning, 1));
    }

    pub(crate) fn into_warnings(self, turn: u64) -> impl Iterator<Item = Warning> {
        let warnings = self.told.into_iter();
        warnings.map(move |(warning, count)| Warning {
            turn,
            reason: often(&warning.reason, count),
            ..warning
        })
    }
}

/// A reason, with how often it was one.
fn often(reason: &str, count: u64) -> String {
    if count == 1 { reason.to_owned() } else { format!("{reason} ({count} times)") }
}

/// The warnings of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warnings {
    #[serde(rename = "warnings")]
    kept: Vec<Warning>,
    /// How many more there were.
    #[serde(default, rename = "warnings_left_out")]
    left_out: u64,
    /// Guards and actions that could not be evaluated: each once, however often that was. A chart
    /// has few of them, so they do not grow with the run.
    #[serde(default)]
    failures: Vec<Failure>,
}

/// A guard or action that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failure {
    /// The first turn.
    turn: u64,
    /// The first agent.
    agent: String,
    what: String,
    count: u64,
}

impl Warnings {
    pub(crate) fn add(&mut self, warning: Warning) {
        if self.kept.len() < WARNINGS_MAX {
            self.kept.push(warning);
        } else {
            self.left_out += 1;
        }
    }

    /// Takes note of a guard or action that could not be evaluated so many times.
    pub(crate) fn fail(&mut self, turn: u64, agent: String, what: String, count: u64) {
        match self.failures.iter_mut().find(|known| known.what == what) {
            Some(known) => known.count += count,
            None => self.failures.push(Failure { turn, agent, what, count }),
        }
    }

    /// All that were kept, in the order of turns, and how many more there were.
    pub(crate) fn told(&self, turn: u64) -> Vec<Warning> {
        let mut told = self.kept.clone();
        told.extend(self.failures.iter().map(|Failure { turn, agent, what, count }| Warning {
            turn: *turn,
            operation: None,
            target_agent_name: Some(agent.clone()),
            reason: often(what, *count),
        }));
        told.sort_by_key(|warning| warning.turn);
        if self.left_out > 0 {
            told.push(Warning {
                turn,
                operation: None,
                target_agent_name: None,
                reason: format!("{} more warnings were left out", self.left_out),
            });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_fails_again_and_again_is_one_warning() {
        let mut warnings = Warnings::default();
        for turn in 3..10 {
            warnings.fail(turn, format!("agent_{turn}"), "guard".to_owned(), 2);
        }
        warnings.fail(5, "other".to_owned(), "action".to_owned(), 1);
        let told = warnings.told(10);
        let told: Vec<_> = told.iter().map(|told| (told.turn, told.reason.as_str())).collect();
        assert_eq!(told, [(3, "guard (14 times)"), (5, "action")]);
    }

    #[test]
    fn warnings_beyond_the_most_are_counted() {
        let mut warnings = Warnings::default();
        let warning =
            Warning { turn: 1, operation: None, target_agent_name: None, reason: "why".to_owned() };
        for _ in 0..WARNINGS_MAX {
            warnings.add(warning.clone());
        }
        assert_eq!(warnings.told(1).len(), WARNINGS_MAX);
        warnings.add(warning.clone());
        warnings.add(warning);
        let told = warnings.told(9);
        assert_eq!(told.len(), WARNINGS_MAX + 1);
        assert_eq!(told.last().unwrap().reason, "2 more warnings were left out");
    }
}

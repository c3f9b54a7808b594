//! What went wrong without ending the run.

use serde::{Deserialize, Serialize};

use crate::lifecycle::Operation;

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

/// The warnings of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warnings {
    warnings: Vec<Warning>,
    /// How many more there were.
    #[serde(default)]
    warnings_left_out: u64,
}

impl Warnings {
    pub(crate) fn add(&mut self, warning: Warning) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        } else {
            self.warnings_left_out += 1;
        }
    }

    /// All that were kept, and how many more there were.
    pub(crate) fn told(&self, turn: u64) -> Vec<Warning> {
        let mut told = self.warnings.clone();
        if self.warnings_left_out > 0 {
            told.push(Warning {
                turn,
                operation: None,
                target_agent_name: None,
                reason: format!("{} more warnings were left out", self.warnings_left_out),
            });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

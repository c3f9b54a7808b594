//! Warnings of a run.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::lifecycle::{LifecycleAction, LifecycleOperation, ValidationResult};

/// The maximum number of warnings kept; more are only counted.
pub const WARNINGS_MAX: usize = 1000;

/// A refused request, or a guard or action that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWarning {
    /// The turn.
    pub turn: u64,
    /// The requested operation; none for a guard or action.
    pub operation: Option<LifecycleOperation>,
    /// The agent concerned.
    pub target_agent_name: Option<String>,
    /// The reason.
    pub reason: String,
}

impl RunWarning {
    /// Creates a warning about no request or agent in particular.
    pub(crate) fn general(turn: u64, reason: String) -> Self {
        Self { turn, operation: None, target_agent_name: None, reason }
    }
}

/// The refused requests of a turn. Equal ones are listed once.
#[derive(Debug, Default)]
pub(crate) struct RefusedRequests {
    /// The warnings in order, each with its count.
    listed: Vec<(RunWarning, u64)>,
    index_by_key: HashMap<(LifecycleOperation, String, Option<String>), usize>,
}

impl RefusedRequests {
    pub(crate) fn add(&mut self, request: &LifecycleAction, result: &ValidationResult) {
        let LifecycleAction { operation, target_agent_name, .. } = request;
        let key = (*operation, target_agent_name.clone(), result.reason.clone());
        let index = *self.index_by_key.entry(key).or_insert(self.listed.len());
        if let Some((_, count)) = self.listed.get_mut(index) {
            *count += 1;
            return;
        }
        let warning = RunWarning {
            turn: 0,
            operation: Some(*operation),
            target_agent_name: Some(target_agent_name.clone()),
            reason: result.reason.clone().unwrap_or_default(),
        };
        self.listed.push((warning, 1));
    }

    pub(crate) fn into_warnings(self, turn: u64) -> impl Iterator<Item = RunWarning> {
        let warnings = self.listed.into_iter();
        warnings.map(move |(warning, count)| RunWarning {
            turn,
            reason: with_count(&warning.reason, count),
            ..warning
        })
    }
}

fn with_count(reason: &str, count: u64) -> String {
    if count == 1 { reason.to_owned() } else { format!("{reason} ({count} times)") }
}

/// The warnings of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WarningLog {
    #[serde(rename = "warnings")]
    kept: Vec<RunWarning>,
    /// The number of dropped warnings.
    #[serde(default, rename = "warnings_left_out")]
    left_out: u64,
    /// Guards and actions that could not be evaluated, each once. A chart has few of them, so the
    /// list does not grow with the run.
    #[serde(default)]
    failures: Vec<EvalErrorCount>,
}

/// A guard or action that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EvalErrorCount {
    /// The first tick. Unlike the turn, it does not depend on the grouping of ticks.
    tick: u64,
    /// The first agent.
    agent: String,
    what: String,
    count: u64,
}

impl WarningLog {
    pub(crate) fn add(&mut self, warning: RunWarning) {
        if self.kept.len() < WARNINGS_MAX {
            self.kept.push(warning);
        } else {
            self.left_out += 1;
        }
    }

    /// Counts an evaluation error.
    pub(crate) fn add_eval_error(&mut self, tick: u64, agent: String, what: String, count: u64) {
        match self.failures.iter_mut().find(|known| known.what == what) {
            Some(known) => {
                known.count += count;
                if tick < known.tick {
                    (known.tick, known.agent) = (tick, agent);
                }
            }
            None => self.failures.push(EvalErrorCount { tick, agent, what, count }),
        }
    }

    /// Lists the warnings by turn, and the number of dropped ones. A turn has this many ticks.
    pub(crate) fn list(&self, turn: u64, ticks: u64) -> Vec<RunWarning> {
        let mut listed = self.kept.clone();
        listed.extend(self.failures.iter().map(|failure| {
            let turn = failure.tick.div_ceil(ticks);
            RunWarning {
                target_agent_name: Some(failure.agent.clone()),
                ..RunWarning::general(turn, with_count(&failure.what, failure.count))
            }
        }));
        listed.sort_by_key(|warning| warning.turn);
        if self.left_out > 0 {
            let reason = format!("{} more warnings were left out", self.left_out);
            listed.push(RunWarning::general(turn, reason));
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_guard_errors_are_one_warning() {
        let mut warnings = WarningLog::default();
        for turn in 3..10 {
            warnings.add_eval_error(4 * turn, format!("agent_{turn}"), "guard".to_owned(), 2);
        }
        warnings.add_eval_error(17, "other".to_owned(), "action".to_owned(), 1);
        let listed = warnings.list(10, 4);
        let listed: Vec<_> =
            listed.iter().map(|listed| (listed.turn, listed.reason.as_str())).collect();
        assert_eq!(listed, [(3, "guard (14 times)"), (5, "action")]);
    }

    #[test]
    fn counts_warnings_beyond_the_limit() {
        let mut warnings = WarningLog::default();
        let warning = RunWarning::general(1, "why".to_owned());
        for _ in 0..WARNINGS_MAX {
            warnings.add(warning.clone());
        }
        assert_eq!(warnings.list(1, 4).len(), WARNINGS_MAX);
        warnings.add(warning.clone());
        warnings.add(warning);
        let listed = warnings.list(9, 4);
        assert_eq!(listed.len(), WARNINGS_MAX + 1);
        assert_eq!(listed.last().unwrap().reason, "2 more warnings were left out");
    }
}

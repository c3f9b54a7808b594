//! The rules for all transitions together.

use std::collections::BTreeSet;

use super::Draft;
use super::transitions::Checked;
use crate::chart::TIMEOUT;
use crate::error::ChartError;
use crate::ids::StateId;
use crate::source::ChartSource;

/// A transition as a candidate of one state, and how far around the state it was declared: 0 for
/// the state itself.
pub(super) struct Candidate {
    pub(super) transition: usize,
    level: usize,
}

impl Draft {
    /// The candidates of a state and trigger in the order in which they are tried: those of the
    /// state itself in the order of the file, then those of the states around it. What was
    /// declared for `*` stands with those of the outermost one.
    pub(super) fn candidates(&self, state: StateId, trigger: usize) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let leaf = self.tree.leaves[state.index()];
        for (level, node) in self.tree.path(leaf).enumerate() {
            let is_outermost = self.tree.nodes[node].parent.is_none();
            for transition in &self.by_trigger[trigger] {
                let Checked { sources, from_any, .. } = &self.checked[*transition];
                let is_here = if *from_any {
                    is_outermost && sources.contains(&leaf)
                } else {
                    sources.contains(&node)
                };
                if is_here {
                    candidates.push(Candidate { transition: *transition, level });
                }
            }
            // What a state says without a condition is not asked of those around it.
            if candidates.iter().any(|candidate| self.is_final(candidate)) {
                break;
            }
        }
        candidates
    }

    fn is_final(&self, candidate: &Candidate) -> bool {
        self.checked[candidate.transition].guard.is_none()
    }

    /// No two transitions may both hold, unless the oracle decides between them.
    pub(super) fn check_ambiguity(&mut self) {
        let mut found = BTreeSet::new();
        let states: Vec<StateId> = self.tree.states().collect();
        for state in states {
            for trigger in 0..self.triggers.len() {
                let candidates = self.candidates(state, trigger);
                let Some(first) = candidates.iter().position(|one| self.is_final(one)) else {
                    continue;
                };
                let level = candidates[first].level;
                let later = candidates[first + 1..].iter().filter(|one| one.level == level);
                for candidate in later {
                    let pair = (candidates[first].transition, candidate.transition);
                    let (earlier, late) = (&self.checked[pair.0], &self.checked[pair.1]);
                    let is_wrong = !(earlier.oracle && late.oracle);
                    if is_wrong && found.insert(pair) {
                        let error = self.conflict(state, earlier, late);
                        self.errors.push(error);
                    }
                }
            }
        }
    }

    fn conflict(&self, state: StateId, earlier: &Checked, late: &Checked) -> ChartError {
        let (state, trigger) = (self.tree.state_name(state), &self.triggers[late.trigger]);
        let first = &earlier.place;
        if self.triggers[late.trigger] == TIMEOUT {
            let message = format!("state \"{state}\" has a timeout already, in {first}");
            return ChartError::new(format!("{}.state", late.place), message);
        }
        let message = if late.guard.is_some() {
            format!(
                "this transition can never be taken: in state \"{state}\" {first} comes first on \
                 \"{trigger}\" and has no guard; put this one before it"
            )
        } else {
            format!(
                "state \"{state}\" has two transitions on \"{trigger}\" that could both hold, this \
                 one and {first}; give one a guard, or declare both \"oracle: true\""
            )
        };
        ChartError::new(&late.place, message)
    }

    /// The state that is gone to when the oracle has no usable answer.
    pub(super) fn check_oracle(&mut self, source: &ChartSource) -> Option<usize> {
        if let Some(name) = &source.oracle_default {
            let node = self.find_state("oracle_default", "oracle_default", name)?;
            self.check_oracle_default(name, node);
            return Some(node);
        }
        let first = self.checked.iter().find(|checked| checked.oracle);
        if let Some(place) = first.map(|checked| checked.place.clone()) {
            let message = format!(
                "oracle_default is missing: {place} is left to the oracle, and an answer that is \
                 of no use needs a state to go to"
            );
            self.error("oracle_default", message);
        }
        None
    }

    /// Wherever the oracle may be asked, the default must be one of its choices.
    fn check_oracle_default(&mut self, name: &str, default: usize) {
        let default = self.tree.landing(default);
        let mut told = Vec::new();
        let states: Vec<StateId> = self.tree.states().collect();
        for (state, trigger) in states
            .into_iter()
            .flat_map(|state| (0..self.triggers.len()).map(move |trigger| (state, trigger)))
        {
            let candidates = self.candidates(state, trigger);
            let choices: Vec<usize> = candidates
                .iter()
                .map(|one| one.transition)
                .filter(|transition| self.checked[*transition].oracle)
                .collect();
            let target = |choice: &usize| self.tree.landing(self.checked[*choice].target);
            // States inside one that says so are told of once.
            if choices.len() < 2
                || choices.iter().any(|choice| target(choice) == default)
                || told.contains(&choices)
            {
                continue;
            }
            let message = format!(
                "oracle_default \"{name}\" is not one of the choices that the oracle has in state \
                 \"{}\" on \"{}\": add a transition with \"oracle: true\" that leads there",
                self.tree.state_name(state),
                self.triggers[trigger]
            );
            let names = choices.iter().map(|choice| self.tree.name(self.checked[*choice].target));
            let error = ChartError::new("oracle_default", message).one_of(name, names);
            self.errors.push(error);
            told.push(choices);
        }
    }

    /// Every state can be reached from the first one, if guards allow it.
    pub(super) fn check_reachable(&mut self, initial: StateId) {
        let mut reached = vec![false; self.tree.leaves.len()];
        let mut entered = BTreeSet::new();
        let mut open = vec![initial];
        reached[initial.index()] = true;
        while let Some(state) = open.pop() {
            for trigger in 0..self.triggers.len() {
                let candidates = self.candidates(state, trigger);
                let targets = candidates.iter().map(|one| self.checked[one.transition].target);
                entered.extend(targets);
            }
            // Where a history leads depends on what was reached before, so all are looked at again.
            let entries = entered.iter().flat_map(|node| self.tree.entries(*node, &reached));
            for to in entries.collect::<Vec<_>>() {
                if !std::mem::replace(&mut reached[to.index()], true) {
                    open.push(to);
                }
            }
        }
        for (leaf, reached) in self.tree.leaves.clone().into_iter().zip(reached) {
            if !reached {
                let name = self.tree.name(leaf);
                let message = format!("state \"{name}\" cannot be reached: no way leads to it");
                let place = self.tree.nodes[leaf].place.clone();
                self.error(place, message);
            }
        }
    }
}

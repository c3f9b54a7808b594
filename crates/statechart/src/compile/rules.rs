//! Rules that concern all transitions together.

use std::collections::BTreeSet;

use super::ChartDraft;
use super::transitions::CheckedTransition;
use crate::chart::TIMEOUT;
use crate::error::ChartError;
use crate::ids::StateId;
use crate::source::ChartSource;

/// A transition as a candidate of one state. `level` counts the ancestors up to its source: 0 for
/// the state itself.
pub(super) struct ScopedTransition {
    pub(super) transition: usize,
    level: usize,
}

impl ChartDraft {
    /// Returns the candidates of a state and trigger in evaluation order: those of the state itself
    /// in file order, then those of its ancestors. `*` ranks with the outermost ancestor.
    pub(super) fn candidates(&self, state: StateId, trigger: usize) -> Vec<ScopedTransition> {
        let mut candidates = Vec::new();
        let leaf = self.tree.leaves[state.index()];
        for (level, node) in self.tree.ancestors(leaf).enumerate() {
            let is_outermost = self.tree.nodes[node].parent.is_none();
            for transition in &self.by_trigger[trigger] {
                let CheckedTransition { sources, from_any, .. } = &self.checked[*transition];
                let is_here = if *from_any {
                    is_outermost && sources.contains(&leaf)
                } else {
                    sources.contains(&node)
                };
                if is_here {
                    candidates.push(ScopedTransition { transition: *transition, level });
                }
            }
            // A transition without a guard hides those of the ancestors.
            if candidates.iter().any(|candidate| self.is_final(candidate)) {
                break;
            }
        }
        candidates
    }

    fn is_final(&self, candidate: &ScopedTransition) -> bool {
        self.checked[candidate.transition].guard.is_none()
    }

    /// Rejects two transitions that could both hold, unless the oracle chooses between them.
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

    fn conflict(
        &self,
        state: StateId,
        earlier: &CheckedTransition,
        late: &CheckedTransition,
    ) -> ChartError {
        let (state, trigger) = (self.tree.state_name(state), &self.triggers[late.trigger]);
        let first = &earlier.location;
        if self.triggers[late.trigger] == TIMEOUT {
            let message = format!("state \"{state}\" has a timeout already, in {first}");
            return ChartError::new(format!("{}.state", late.location), message);
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
        ChartError::new(&late.location, message)
    }

    /// Checks `oracle_default` and returns its node.
    pub(super) fn check_oracle(&mut self, source: &ChartSource) -> Option<usize> {
        if let Some(name) = &source.oracle_default {
            let node = self.find_state("oracle_default", "oracle_default", name)?;
            self.check_oracle_default(name, node);
            return Some(node);
        }
        let first = self.checked.iter().find(|checked| checked.oracle);
        if let Some(location) = first.map(|checked| checked.location.clone()) {
            let message = format!(
                "oracle_default is missing: {location} is left to the oracle, and an answer that is \
                 of no use needs a state to go to"
            );
            self.error("oracle_default", message);
        }
        None
    }

    /// Checks that `oracle_default` is a choice in every state where the oracle may be asked.
    fn check_oracle_default(&mut self, name: &str, default: usize) {
        let default = self.tree.resolve_entry(default);
        let mut reported = Vec::new();
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
            let target = |choice: &usize| self.tree.resolve_entry(self.checked[*choice].target);
            // Several children of one state would repeat the same error.
            if choices.len() < 2
                || choices.iter().any(|choice| target(choice) == default)
                || reported.contains(&choices)
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
            let error = ChartError::new("oracle_default", message).suggest_from(name, names);
            self.errors.push(error);
            reported.push(choices);
        }
    }

    /// Checks that every state is reachable from the initial one, ignoring guards.
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
            // Histories depend on the states reached so far, so all entered nodes are revisited.
            let entries =
                entered.iter().flat_map(|node| self.tree.possible_leaves(*node, &reached));
            for to in entries.collect::<Vec<_>>() {
                if !std::mem::replace(&mut reached[to.index()], true) {
                    open.push(to);
                }
            }
        }
        for (leaf, reached) in self.tree.leaves.clone().into_iter().zip(reached) {
            if !reached {
                let name = self.tree.name(leaf);
                let message =
                    format!("state \"{name}\" cannot be reached: no transition leads to it");
                let location = self.tree.nodes[leaf].location.clone();
                self.error(location, message);
            }
        }
    }
}

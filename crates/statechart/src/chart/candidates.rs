//! Access to candidates and their outcomes, for callers that run many agents at once.

use super::{Chart, FastGuard, Transition};
use crate::chart::GuardBody;
use crate::expression::{ExprTree, OperandComparison};
use crate::ids::{StateId, TriggerId};

/// The id of a candidate; see [`Chart::candidates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(pub(crate) u32);

/// The id of a transition path: from one leaf state to another, with all actions on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub(crate) u32);

/// The id of the first of several [entry rules](EntryRule), one per child of a history state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryRuleId(pub(crate) u32);

/// Determines the path of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryRule {
    /// A fixed path.
    Path(PathId),
    /// A path that depends on the last active child of a state with a history.
    History {
        /// The history state.
        history_state: u8,
        /// The first entry rule; see [`Chart::entry_for_child`].
        first: EntryRuleId,
    },
}

/// A guard in the form that batch evaluation needs.
#[derive(Debug, Clone, Copy)]
pub enum GuardKind<'a> {
    /// No guard: the candidate is always eligible.
    Always,
    /// A conjunction of comparisons.
    Comparisons {
        /// The comparisons.
        comparisons: &'a [OperandComparison],
        /// The offset to add to each draw index.
        first_draw: u32,
    },
    /// Another expression; see [`Chart::guard_tree`].
    Expression,
    /// A Rust function.
    Rust,
}

/// The outcome of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransitionOutcome {
    /// The target state.
    pub to: StateId,
    /// The arrival code for [`Chart::decode_arrival`]; 0 if the state stays the same.
    pub code: u8,
    /// True if the path has actions or history updates.
    pub has_effects: bool,
}

impl Chart {
    /// Returns the candidates of a state and trigger in evaluation order.
    pub fn candidates(
        &self,
        state: StateId,
        trigger: TriggerId,
    ) -> impl ExactSizeIterator<Item = CandidateId> + Clone + use<> {
        #[expect(clippy::cast_possible_truncation, reason = "the table was built with 32 bits")]
        self.candidate_range(state, trigger).map(|index| CandidateId(index as u32))
    }

    /// Returns a candidate's guard.
    pub fn guard_kind(&self, candidate: CandidateId) -> GuardKind<'_> {
        let row = &self.candidates[candidate.0 as usize];
        match row.guard.map(|guard| &self.guards[usize::from(guard)].body) {
            None => GuardKind::Always,
            Some(GuardBody::Simple(comparisons, _)) => {
                GuardKind::Comparisons { comparisons, first_draw: row.first_draw }
            }
            Some(GuardBody::Code(_)) => GuardKind::Expression,
            Some(GuardBody::Rust(_)) => GuardKind::Rust,
        }
    }

    /// Returns a candidate's guard as a fast guard.
    pub fn fast_guard(&self, candidate: CandidateId) -> FastGuard {
        self.candidates[candidate.0 as usize].fast_guard
    }

    /// Returns a candidate's guard as an expression, unless it is a Rust function.
    pub fn guard_tree(&self, candidate: CandidateId) -> Option<ExprTree<'_>> {
        let row = &self.candidates[candidate.0 as usize];
        match &self.guards[usize::from(row.guard?)].body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => Some(code.tree(row.first_draw)),
            GuardBody::Rust(_) => None,
        }
    }

    /// Returns the outcome of a candidate, or `None` if it depends on a history.
    pub fn outcome(&self, candidate: CandidateId) -> Option<TransitionOutcome> {
        match self.entry(candidate) {
            EntryRule::Path(path) => Some(self.path_outcome(path)),
            EntryRule::History { .. } => None,
        }
    }

    /// Returns the outcome of a path.
    pub fn path_outcome(&self, path: PathId) -> TransitionOutcome {
        let path = &self.paths[path.0 as usize];
        TransitionOutcome {
            to: path.to,
            code: path.code,
            has_effects: path.effects.0 < path.effects.1
                || path.history_updates.0 < path.history_updates.1,
        }
    }

    /// Returns the entry rule of a candidate.
    pub fn entry(&self, candidate: CandidateId) -> EntryRule {
        self.candidates[candidate.0 as usize].entry
    }

    /// Returns the entry rule of a child.
    #[inline]
    pub fn entry_for_child(&self, first: EntryRuleId, child: u8) -> EntryRule {
        self.entries[(first.0 + u32::from(child)) as usize]
    }

    /// True if the oracle may choose the candidate.
    pub fn is_oracle(&self, candidate: CandidateId) -> bool {
        self.candidates[candidate.0 as usize].oracle
    }

    /// True if the candidate leads to `oracle_default`.
    pub fn is_default(&self, candidate: CandidateId) -> bool {
        self.candidates[candidate.0 as usize].is_default
    }

    /// Returns the transition of a candidate.
    pub fn transition(&self, candidate: CandidateId) -> &Transition {
        &self.transitions[usize::from(self.candidates[candidate.0 as usize].transition)]
    }
}

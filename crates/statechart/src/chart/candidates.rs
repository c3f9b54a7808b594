//! Charts for those who fire many agents at once: what there is to try, and where it leads.

use super::{Chart, Quick, Transition};
use crate::expression::{Comparison, Tree};
use crate::guard::GuardBody;
use crate::ids::{StateId, TriggerId};

/// A candidate of a state and trigger; see [`Chart::candidates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub(crate) u32);

/// A way from one state to another, with all that happens on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WayId(pub(crate) u32);

/// The first of several [entries](Entry), one for each state inside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub(crate) u32);

/// How to find the way of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It is this one.
    Way(WayId),
    /// It depends on which state inside another was left last.
    Recall {
        /// The history that says so.
        memory: u8,
        /// The entries by state inside; see [`Chart::entry_inside`].
        first: EntryId,
    },
}

/// A guard, for those who evaluate many at once.
#[derive(Debug, Clone, Copy)]
pub enum GuardShape<'a> {
    /// There is none: the candidate is always taken.
    Always,
    /// All of these must hold. Draws are counted from `first_draw`.
    All {
        /// The comparisons.
        comparisons: &'a [Comparison],
        /// What to add to the number of each draw.
        first_draw: u32,
    },
    /// It is an expression of another kind; see [`Chart::guard_tree`].
    Expression,
    /// It is a function in Rust.
    Rust,
}

/// Where a candidate leads, for those who fire many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The state that it leads to.
    pub to: StateId,
    /// The code that [`Chart::way_into`] understands; 0 if the state stays the same.
    pub code: u8,
    /// Whether anything else happens.
    pub has_effects: bool,
}

impl Chart {
    /// The candidates of a state and trigger, in the order in which they are tried.
    pub fn candidates(
        &self,
        state: StateId,
        trigger: TriggerId,
    ) -> impl ExactSizeIterator<Item = RowId> + Clone + use<> {
        #[expect(clippy::cast_possible_truncation, reason = "the table was built with 32 bits")]
        self.group(state, trigger).map(|row| RowId(row as u32))
    }

    /// A candidate's guard.
    pub fn guard_shape(&self, row: RowId) -> GuardShape<'_> {
        let row = &self.rows[row.0 as usize];
        match row.guard.map(|guard| &self.guards[usize::from(guard)].body) {
            None => GuardShape::Always,
            Some(GuardBody::Simple(comparisons, _)) => {
                GuardShape::All { comparisons, first_draw: row.first_draw }
            }
            Some(GuardBody::Code(_)) => GuardShape::Expression,
            Some(GuardBody::Rust(_)) => GuardShape::Rust,
        }
    }

    /// A candidate's guard, if it is one of the frequent ones.
    pub fn quick(&self, row: RowId) -> Quick {
        self.rows[row.0 as usize].quick
    }

    /// A candidate's guard as an expression, if it has one that is no function in Rust.
    pub fn guard_tree(&self, row: RowId) -> Option<Tree<'_>> {
        let row = &self.rows[row.0 as usize];
        match &self.guards[usize::from(row.guard?)].body {
            GuardBody::Simple(_, code) | GuardBody::Code(code) => Some(code.tree(row.first_draw)),
            GuardBody::Rust(_) => None,
        }
    }

    /// Where a candidate leads; nothing if that depends on a history.
    pub fn destination(&self, row: RowId) -> Option<Destination> {
        match self.entry(row) {
            Entry::Way(way) => Some(self.destination_of(way)),
            Entry::Recall { .. } => None,
        }
    }

    /// Where a way leads.
    pub fn destination_of(&self, way: WayId) -> Destination {
        let way = &self.ways[way.0 as usize];
        Destination {
            to: way.to,
            code: way.code,
            has_effects: way.effects.0 < way.effects.1 || way.remembers.0 < way.remembers.1,
        }
    }

    /// How to find the way of a candidate.
    pub fn entry(&self, row: RowId) -> Entry {
        self.rows[row.0 as usize].entry
    }

    /// How to go on to the state inside that has this number.
    #[inline]
    pub fn entry_inside(&self, first: EntryId, child: u8) -> Entry {
        self.entries[(first.0 + u32::from(child)) as usize]
    }

    /// Whether the oracle has a say in a candidate.
    pub fn is_oracle(&self, row: RowId) -> bool {
        self.rows[row.0 as usize].oracle
    }

    /// Whether a candidate leads to where one goes when the oracle has no usable answer.
    pub fn is_default(&self, row: RowId) -> bool {
        self.rows[row.0 as usize].is_default
    }

    /// The transition that a candidate comes from.
    pub fn transition(&self, row: RowId) -> &Transition {
        &self.transitions[usize::from(self.rows[row.0 as usize].transition)]
    }
}

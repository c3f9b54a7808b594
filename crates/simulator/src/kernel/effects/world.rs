//! World changes by agents, until they apply.
//!
//! Changes apply by tick and agent. Each world value has its own list, since none depends on
//! another. Most lists are already in order.

use std::ops::Range;

use polity_statechart::{ScalarValue, WorldChange, WorldId};

use crate::kernel::columns::block::AgentBlock;
use crate::kernel::columns::history::COLUMNS_MAX;

/// The position of a change in the order of ticks and agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeOrder {
    column: u8,
    lane: u16,
}

// The exit actions of removed agents count as one more column.
const _: () = assert!(COLUMNS_MAX < 1 << u8::BITS, "a column's number is a byte");

impl ChangeOrder {
    /// Creates the position of a change by an agent in the tick that writes a column.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are no more columns than that")]
    pub(crate) fn new(column: usize, lane: u16) -> Self {
        Self { column: column as u8, lane }
    }
}

/// A change of a value. There may be one per agent and tick, so it is small.
#[derive(Debug, Clone, Copy)]
enum PendingChange {
    Add { at: ChangeOrder, more: f64 },
    Set { at: ChangeOrder, value: u32 },
}

/// The changes of one value by the agents of a block.
#[derive(Debug, Default)]
pub(crate) struct ValueChanges {
    changes: Vec<PendingChange>,
    /// The values that it is set to.
    values: Vec<ScalarValue>,
    /// True if the changes are out of order, because agents are processed by path.
    is_unsorted: bool,
    /// The number of changes that have been applied.
    done: usize,
}

/// The changes of all values by the agents of a block.
#[derive(Debug, Default)]
pub(crate) struct BlockWorldChanges(Vec<ValueChanges>);

impl BlockWorldChanges {
    pub(crate) fn of(&mut self, world: WorldId) -> &mut ValueChanges {
        if self.0.len() <= world.index() {
            self.0.resize_with(world.index() + 1, ValueChanges::default);
        }
        &mut self.0[world.index()]
    }

    pub(crate) fn push(&mut self, at: ChangeOrder, change: WorldChange) {
        match change {
            WorldChange::Add(world, more) => self.of(world).add(at, more),
            WorldChange::Set(world, value) => self.of(world).set(at, value),
        }
    }
}

impl ValueChanges {
    #[inline]
    pub(crate) fn add(&mut self, at: ChangeOrder, more: f64) {
        self.note_order(at);
        self.changes.push(PendingChange::Add { at, more });
    }

    /// Adds to the value for each agent of a list.
    pub(crate) fn add_all(&mut self, column: usize, list: &[u16], more: impl Fn(usize) -> f64) {
        let Some(first) = list.first() else { return };
        self.note_order(ChangeOrder::new(column, *first));
        let changes = list.iter().enumerate().map(|(number, lane)| PendingChange::Add {
            at: ChangeOrder::new(column, *lane),
            more: more(number),
        });
        self.changes.extend(changes);
    }

    pub(crate) fn set(&mut self, at: ChangeOrder, value: ScalarValue) {
        self.note_order(at);
        // A block has fewer changes than 32 bits can count.
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value);
        self.changes.push(PendingChange::Set { at, value: number });
    }

    /// Records if the next change is out of order.
    #[inline]
    fn note_order(&mut self, at: ChangeOrder) {
        self.is_unsorted |= self.changes.last().is_some_and(|last| last.at() > at);
    }

    fn sort(&mut self) {
        if std::mem::take(&mut self.is_unsorted) {
            self.changes.sort_by_key(PendingChange::at);
        }
    }

    /// Applies the changes of a tick. Rejects additions with an infinite result and returns the
    /// first of them and their number.
    fn apply(
        &mut self,
        column: usize,
        world: &mut Option<ScalarValue>,
    ) -> Option<(ChangeOrder, u64)> {
        let open = &self.changes[self.done..];
        let count = match open.last() {
            Some(last) if usize::from(last.at().column) == column => open.len(),
            Some(_) => open.partition_point(|change| usize::from(change.at().column) <= column),
            None => return None,
        };
        self.done += count;
        let these = &open[..count];
        if let (Some(ScalarValue::Number(now)), []) = (&mut *world, &*self.values)
            && let Some(sum) = sum_of(*now, these)
        {
            *now = sum;
            return None;
        }
        let mut rejected = None;
        for change in these {
            match (*change, &mut *world) {
                (PendingChange::Add { at, more }, Some(ScalarValue::Number(now))) => {
                    let sum = *now + more;
                    if sum.is_finite() {
                        *now = sum;
                    } else {
                        rejected.get_or_insert((at, 0)).1 += 1;
                    }
                }
                // A value that is not a number counts from 0.
                (PendingChange::Add { more, .. }, world) => {
                    *world = Some(ScalarValue::Number(more));
                }
                (PendingChange::Set { value, .. }, world) => {
                    *world = self.values.get(value as usize).cloned();
                }
            }
        }
        rejected
    }

    /// Clears the list, keeping capacity for twice as many changes.
    fn clear(&mut self) {
        let (changes, values) = (self.changes.len(), self.values.len());
        self.changes.clear();
        self.values.clear();
        self.changes.shrink_to(2 * changes);
        self.values.shrink_to(2 * values);
        self.done = 0;
    }
}

impl PendingChange {
    #[inline]
    fn at(&self) -> ChangeOrder {
        match self {
            Self::Add { at, .. } | Self::Set { at, .. } => *at,
        }
    }
}

/// Returns the sum of additions, if it is finite. An infinite intermediate result stays infinite.
fn sum_of(number: f64, changes: &[PendingChange]) -> Option<f64> {
    let sum = changes.iter().fold(number, |now, change| match change {
        PendingChange::Add { more, .. } => now + more,
        PendingChange::Set { .. } => f64::NAN,
    });
    sum.is_finite().then_some(sum)
}

/// The result of applying changes.
#[derive(Debug, Default)]
pub(crate) struct AppliedChanges {
    /// The number of changes.
    pub(crate) count: usize,
    /// The additions rejected because of an infinite result.
    pub(crate) rejected: Vec<RejectedAdditions>,
}

/// Rejected additions to a value by agents of a block in one tick.
#[derive(Debug)]
pub(crate) struct RejectedAdditions {
    /// The index of the world value.
    pub(crate) value: usize,
    pub(crate) block: usize,
    /// The lane of the first agent.
    pub(crate) lane: u16,
    pub(crate) column: usize,
    pub(crate) count: u64,
}

/// Applies all changes made while these columns were written.
pub(crate) fn apply(
    blocks: &mut [AgentBlock],
    columns: Range<usize>,
    world: &mut [Option<ScalarValue>],
) -> AppliedChanges {
    let mut applied = AppliedChanges::default();
    for (value, now) in world.iter_mut().enumerate() {
        let lists = blocks.iter_mut().enumerate().filter_map(|(block, its)| {
            let list = its.effects.changes.0.get_mut(value)?;
            (!list.changes.is_empty()).then_some((block, list))
        });
        let mut lists: Vec<(usize, &mut ValueChanges)> = lists.collect();
        for (_, list) in &mut lists {
            applied.count += list.changes.len();
            list.sort();
        }
        for column in columns.clone() {
            for (block, list) in &mut lists {
                if let Some((ChangeOrder { lane, .. }, count)) = list.apply(column, now) {
                    let block = *block;
                    let rejected = RejectedAdditions { value, block, lane, column, count };
                    applied.rejected.push(rejected);
                }
            }
        }
        for (_, list) in lists {
            list.clear();
        }
    }
    applied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_additions_with_infinite_results() {
        let ends = |numbers: &[f64]| {
            let mut changes = ValueChanges::default();
            changes.add_all(3, &[0, 1, 2], |number| numbers[number]);
            let mut world = Some(ScalarValue::Number(0.5));
            let rejected = changes.apply(3, &mut world);
            (world.unwrap(), rejected.map(|(at, count)| (at.lane, count)))
        };
        assert_eq!(ends(&[1.0, 2.0, -0.25]), (ScalarValue::Number(3.25), None));
        assert_eq!(ends(&[1e308, 1e308, -1e308]), (ScalarValue::Number(0.0), Some((1, 1))));
        assert_eq!(ends(&[-1e308, -1e308, -1e308]), (ScalarValue::Number(-1e308), Some((1, 2))));
    }
}

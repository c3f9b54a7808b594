//! What agents do to the world, until it takes effect.
//!
//! That happens by tick and in the order of agents. Each value of the world has a list of its own, as
//! none depends on another; most lists are in order already.

use std::ops::Range;

use polity_statechart::{Value, WorldChange, WorldId};

use super::block::Block;
use super::history::COLUMNS_MAX;

/// When a change is made, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    column: u8,
    lane: u16,
}

const _: () = assert!(COLUMNS_MAX <= 1 << u8::BITS, "a column's number is a byte");

impl At {
    /// A change in the tick that writes a column, by the agent at a place of its block.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are no more columns than that")]
    pub(super) fn new(column: usize, lane: u16) -> Self {
        Self { column: column as u8, lane }
    }
}

/// A change of a value. There may be one for every agent and tick, so they are kept small.
#[derive(Debug, Clone, Copy)]
enum Change {
    Add { at: At, more: f64 },
    Set { at: At, value: u32 },
}

/// The changes of one value by the agents of a block.
#[derive(Debug, Default)]
pub(super) struct ValueChanges {
    changes: Vec<Change>,
    /// What it is set to.
    values: Vec<Value>,
    /// Whether some were made before others that stand before them: agents that take the same way are
    /// looked at together.
    is_mixed: bool,
    /// How many changes have taken effect.
    done: usize,
}

/// The changes of all values by the agents of a block.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<ValueChanges>);

impl Changes {
    /// The changes of a value.
    pub(super) fn of(&mut self, world: WorldId) -> &mut ValueChanges {
        if self.0.len() <= world.index() {
            self.0.resize_with(world.index() + 1, ValueChanges::default);
        }
        &mut self.0[world.index()]
    }

    pub(super) fn push(&mut self, at: At, change: WorldChange) {
        match change {
            WorldChange::Add(world, more) => self.of(world).add(at, more),
            WorldChange::Set(world, value) => self.of(world).set(at, value),
        }
    }
}

impl ValueChanges {
    #[inline]
    pub(super) fn add(&mut self, at: At, more: f64) {
        self.goes_on(at);
        self.changes.push(Change::Add { at, more });
    }

    /// Additions by agents of a list in the tick that writes a column.
    pub(super) fn add_all(&mut self, column: usize, list: &[u16], more: impl Fn(usize) -> f64) {
        let Some(first) = list.first() else { return };
        self.goes_on(At::new(column, *first));
        let changes = list
            .iter()
            .enumerate()
            .map(|(number, lane)| Change::Add { at: At::new(column, *lane), more: more(number) });
        self.changes.extend(changes);
    }

    pub(super) fn set(&mut self, at: At, value: Value) {
        self.goes_on(at);
        // There are as many as changes, of which a block has less than 32 bits can count.
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value);
        self.changes.push(Change::Set { at, value: number });
    }

    /// Takes note of whether what comes next is in order.
    #[inline]
    fn goes_on(&mut self, at: At) {
        self.is_mixed |= self.changes.last().is_some_and(|last| last.at() > at);
    }

    fn put_in_order(&mut self) {
        if std::mem::take(&mut self.is_mixed) {
            self.changes.sort_by_key(Change::at);
        }
    }

    /// Has the changes of a tick take effect.
    fn apply(&mut self, column: usize, world: &mut Option<Value>) {
        let open = &self.changes[self.done..];
        let count = match open.last() {
            Some(last) if usize::from(last.at().column) == column => open.len(),
            Some(_) => open.partition_point(|change| usize::from(change.at().column) <= column),
            None => return,
        };
        self.done += count;
        let these = &open[..count];
        if let (Some(Value::Number(now)), []) = (&mut *world, &*self.values)
            && let Some(sum) = sum_of(*now, these)
        {
            *now = sum;
            return;
        }
        for change in these {
            match (*change, &mut *world) {
                (Change::Add { more, .. }, Some(Value::Number(now))) => *now = sum(*now, more),
                // What is no number counts from 0.
                (Change::Add { more, .. }, world) => *world = Some(Value::Number(sum(0.0, more))),
                (Change::Set { value, .. }, world) => {
                    *world = self.values.get(value as usize).cloned();
                }
            }
        }
    }

    /// Has room for as many changes again, and no more for those of a livelier time.
    fn clear(&mut self) {
        let (changes, values) = (self.changes.len(), self.values.len());
        self.changes.clear();
        self.values.clear();
        self.changes.shrink_to(2 * changes);
        self.values.shrink_to(2 * values);
        self.done = 0;
    }
}

impl Change {
    #[inline]
    fn at(&self) -> At {
        match self {
            Self::Add { at, .. } | Self::Set { at, .. } => *at,
        }
    }
}

/// What a number comes to by additions, if it is finite all the way: what is not finite once stays so.
fn sum_of(number: f64, changes: &[Change]) -> Option<f64> {
    let sum = changes.iter().fold(number, |now, change| match change {
        Change::Add { more, .. } => now + more,
        Change::Set { .. } => f64::NAN,
    });
    sum.is_finite().then_some(sum)
}

/// Numbers stay finite.
#[inline]
fn sum(left: f64, right: f64) -> f64 {
    let sum = left + right;
    if sum.is_finite() { sum } else { sum.clamp(f64::MIN, f64::MAX) }
}

/// Has all changes take effect that were made while these columns were written. Says how many they
/// were.
pub(super) fn apply(
    blocks: &mut [Block],
    columns: Range<usize>,
    world: &mut [Option<Value>],
) -> usize {
    let mut count = 0;
    for (number, value) in world.iter_mut().enumerate() {
        let lists = blocks.iter_mut().filter_map(|block| block.outbox.changes.0.get_mut(number));
        let mut lists: Vec<&mut ValueChanges> =
            lists.filter(|list| !list.changes.is_empty()).collect();
        for list in &mut lists {
            count += list.changes.len();
            list.put_in_order();
        }
        for column in columns.clone() {
            for list in &mut lists {
                list.apply(column, value);
            }
        }
        for list in lists {
            list.clear();
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_was_too_large_on_the_way_is_what_one_by_one_it_comes_to() {
        let ends = |numbers: &[f64]| {
            let mut changes = ValueChanges::default();
            changes.add_all(3, &[0, 1, 2], |number| numbers[number]);
            let mut world = Some(Value::Number(0.5));
            changes.apply(3, &mut world);
            world.unwrap()
        };
        assert_eq!(ends(&[1.0, 2.0, -0.25]), Value::Number(3.25));
        assert_eq!(ends(&[1e308, 1e308, -1e308]), Value::Number(f64::MAX - 1e308));
        assert_eq!(ends(&[-1e308, -1e308, -1e308]), Value::Number(f64::MIN));
    }
}

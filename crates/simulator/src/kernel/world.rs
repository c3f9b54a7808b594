//! What agents do to the world, until it takes effect.
//!
//! That happens by tick and in the order of agents. Each value of the world has a list of its own, as
//! none depends on another; most lists are in order already.

use std::ops::Range;

use polity_statechart::{ScalarValue, WorldChange, WorldId};

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
    values: Vec<ScalarValue>,
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

    pub(super) fn set(&mut self, at: At, value: ScalarValue) {
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

    /// Has the changes of a tick take effect. An addition that would come to no number is left out.
    /// Says by whom the first of those was, and how many there were.
    fn apply(&mut self, column: usize, world: &mut Option<ScalarValue>) -> Option<(At, u64)> {
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
        let mut left_out = None;
        for change in these {
            match (*change, &mut *world) {
                (Change::Add { at, more }, Some(ScalarValue::Number(now))) => {
                    let sum = *now + more;
                    if sum.is_finite() {
                        *now = sum;
                    } else {
                        left_out.get_or_insert((at, 0)).1 += 1;
                    }
                }
                // What is no number counts from 0.
                (Change::Add { more, .. }, world) => *world = Some(ScalarValue::Number(more)),
                (Change::Set { value, .. }, world) => {
                    *world = self.values.get(value as usize).cloned();
                }
            }
        }
        left_out
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

/// What came of the changes of a world.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// How many changes there were.
    pub(super) count: usize,
    /// Those that are left out, because a number would have been too large.
    pub(super) left_out: Vec<LeftOut>,
}

/// Additions to a value by agents of a block in a tick that are left out.
#[derive(Debug)]
pub(super) struct LeftOut {
    /// The place of the value in the world.
    pub(super) value: usize,
    pub(super) block: usize,
    /// Of the first agent, in its block.
    pub(super) lane: u16,
    pub(super) column: usize,
    pub(super) count: u64,
}

/// Has all changes take effect that were made while these columns were written.
pub(super) fn apply(
    blocks: &mut [Block],
    columns: Range<usize>,
    world: &mut [Option<ScalarValue>],
) -> Applied {
    let mut applied = Applied::default();
    for (value, now) in world.iter_mut().enumerate() {
        let lists = blocks.iter_mut().enumerate().filter_map(|(block, its)| {
            let list = its.outbox.changes.0.get_mut(value)?;
            (!list.changes.is_empty()).then_some((block, list))
        });
        let mut lists: Vec<(usize, &mut ValueChanges)> = lists.collect();
        for (_, list) in &mut lists {
            applied.count += list.changes.len();
            list.put_in_order();
        }
        for column in columns.clone() {
            for (block, list) in &mut lists {
                if let Some((At { lane, .. }, count)) = list.apply(column, now) {
                    applied.left_out.push(LeftOut { value, block: *block, lane, column, count });
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
    fn an_addition_that_comes_to_no_number_is_left_out() {
        let ends = |numbers: &[f64]| {
            let mut changes = ValueChanges::default();
            changes.add_all(3, &[0, 1, 2], |number| numbers[number]);
            let mut world = Some(ScalarValue::Number(0.5));
            let left_out = changes.apply(3, &mut world);
            (world.unwrap(), left_out.map(|(at, count)| (at.lane, count)))
        };
        assert_eq!(ends(&[1.0, 2.0, -0.25]), (ScalarValue::Number(3.25), None));
        assert_eq!(ends(&[1e308, 1e308, -1e308]), (ScalarValue::Number(0.0), Some((1, 1))));
        assert_eq!(ends(&[-1e308, -1e308, -1e308]), (ScalarValue::Number(-1e308), Some((1, 2))));
    }
}

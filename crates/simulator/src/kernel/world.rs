//! What agents do to the world, until it takes effect.
//!
//! That happens in the order of agents. Each value of the world has a list of its own, as none
//! depends on another; most lists are in order already.

use polity_statechart::{Value, WorldChange, WorldId};

/// A change of one value.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Add(f64),
    Set(Value),
}

/// Changes by value of the world, and whose they are.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<Vec<(u32, Change)>>);

impl Changes {
    /// The changes of a value.
    pub(super) fn of(&mut self, world: WorldId) -> &mut Vec<(u32, Change)> {
        if self.0.len() <= world.index() {
            self.0.resize_with(world.index() + 1, Vec::new);
        }
        &mut self.0[world.index()]
    }

    pub(super) fn push(&mut self, slot: u32, change: WorldChange) {
        let (world, change) = match change {
            WorldChange::Add(world, more) => (world, Change::Add(more)),
            WorldChange::Set(world, value) => (world, Change::Set(value)),
        };
        self.of(world).push((slot, change));
    }

    /// Has all changes take effect.
    pub(super) fn apply(&mut self, world: &mut [Option<Value>]) {
        for (changes, value) in self.0.iter_mut().zip(world) {
            // Agents that took the same way were looked at together.
            if !changes.is_sorted_by_key(|(slot, _)| *slot) {
                changes.sort_by_key(|(slot, _)| *slot);
            }
            for (_, change) in changes.drain(..) {
                change.apply(value);
            }
        }
    }
}

impl Change {
    /// A value that is added to and is no number counts from 0. Numbers stay finite.
    #[inline]
    fn apply(self, value: &mut Option<Value>) {
        match (self, value) {
            (Self::Add(more), Some(Value::Number(number))) => *number = sum(*number, more),
            (Self::Add(more), value) => *value = Some(Value::Number(sum(0.0, more))),
            (Self::Set(new), value) => *value = Some(new),
        }
    }
}

#[inline]
fn sum(left: f64, right: f64) -> f64 {
    let sum = left + right;
    if sum.is_finite() { sum } else { sum.clamp(f64::MIN, f64::MAX) }
}

//! A ring buffer of an agent's last transitions.

use std::sync::Arc;

use serde_json::Value as Json;

use super::AgentTransition;
use crate::ids::{StateId, TriggerId};

/// A transition without its context.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingEntry {
    pub(super) from: StateId,
    pub(super) to: StateId,
    pub(super) trigger: TriggerId,
    pub(super) tick: u64,
}

/// The newest transitions; each new one replaces the oldest.
#[derive(Debug, Clone)]
pub(super) struct TransitionRing {
    entries: Vec<RingEntry>,
    /// The context of each entry. Empty until the first context.
    context_names: Vec<Option<Arc<Json>>>,
    depth: usize,
    /// The index of the next entry.
    next: usize,
}

impl TransitionRing {
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: Vec::with_capacity(depth), context_names: Vec::new(), depth, next: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, entry: RingEntry, context: Option<&Arc<Json>>) {
        let index = self.next;
        match self.entries.get_mut(index) {
            Some(oldest) => *oldest = entry,
            None => self.entries.push(entry),
        }
        if context.is_some() || !self.context_names.is_empty() {
            self.context_names.resize(self.depth, None);
            self.context_names[index] = context.cloned();
        }
        self.next = if index + 1 == self.depth { 0 } else { index + 1 };
    }

    /// Iterates from the oldest.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = AgentTransition> {
        let count = self.entries.len();
        let first = if count < self.depth { 0 } else { self.next };
        (0..count).map(move |index| {
            let index = (first + index) % self.depth;
            let RingEntry { from, to, trigger, tick } = self.entries[index];
            let context = self.context_names.get(index).cloned().flatten();
            AgentTransition { from, to, trigger, tick, context }
        })
    }
}

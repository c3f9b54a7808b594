//! The last transitions of one agent, in a ring.

use std::sync::Arc;

use serde_json::Value as Json;

use super::StateTransition;
use crate::ids::{StateId, TriggerId};

/// A transition without what was known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) from: StateId,
    pub(super) to: StateId,
    pub(super) trigger: TriggerId,
    pub(super) tick: u64,
}

/// The newest transitions. The oldest one makes room for the newest.
#[derive(Debug, Clone)]
pub(super) struct History {
    entries: Vec<Entry>,
    /// What was known, by entry. Empty as long as nothing ever was.
    contexts: Vec<Option<Arc<Json>>>,
    depth: usize,
    /// Where the next one goes.
    next: usize,
}

impl History {
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: Vec::with_capacity(depth), contexts: Vec::new(), depth, next: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry, context: Option<&Arc<Json>>) {
        let place = self.next;
        match self.entries.get_mut(place) {
            Some(oldest) => *oldest = entry,
            None => self.entries.push(entry),
        }
        if context.is_some() || !self.contexts.is_empty() {
            self.contexts.resize(self.depth, None);
            self.contexts[place] = context.cloned();
        }
        self.next = if place + 1 == self.depth { 0 } else { place + 1 };
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = StateTransition> {
        let count = self.entries.len();
        let first = if count < self.depth { 0 } else { self.next };
        (0..count).map(move |index| {
            let place = (first + index) % self.depth;
            let Entry { from, to, trigger, tick } = self.entries[place];
            let context = self.contexts.get(place).cloned().flatten();
            StateTransition { from, to, trigger, tick, context }
        })
    }
}

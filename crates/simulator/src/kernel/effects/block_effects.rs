//! Effects of the agents of a block, until they are collected.

use std::collections::BTreeMap;

use polity_statechart::{AgentRequest, ErrorSite, EvalError};

use crate::kernel::effects::world::BlockWorldChanges;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    pub(crate) tick: u32,
    pub(crate) slot: u32,
    pub(crate) request: AgentRequest,
}

/// The number of errors of one kind, and the first agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorTally {
    pub(crate) count: u64,
    pub(crate) tick: u32,
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// The pending effects of a block.
#[derive(Debug, Default)]
pub(crate) struct BlockEffects {
    pub(crate) changes: BlockWorldChanges,
    pub(crate) requests: Vec<PendingRequest>,
    pub(crate) failures: BTreeMap<(ErrorSite, EvalError), ErrorTally>,
    /// The visits of each state, if counted.
    pub(crate) visits: Vec<u64>,
}

impl BlockEffects {
    pub(crate) fn add_error(&mut self, site: ErrorSite, fault: EvalError, tally: ErrorTally) {
        self.failures.entry((site, fault)).and_modify(|known| known.merge(tally)).or_insert(tally);
    }
}

impl ErrorTally {
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        if (other.tick, other.slot) < (self.tick, self.slot) {
            let Self { tick, slot, serial, .. } = other;
            *self = Self { count: self.count, tick, slot, serial };
        }
    }
}

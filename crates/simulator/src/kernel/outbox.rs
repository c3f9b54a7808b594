//! What agents do that concerns others, until it can be put in order.

use std::collections::BTreeMap;

use polity_statechart::{AgentRequest, ErrorSite, EvalError};

use super::world::Changes;

/// A request of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) tick: u32,
    pub(super) slot: u32,
    pub(super) request: AgentRequest,
}

/// How often something failed, and who was first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) count: u64,
    pub(super) tick: u32,
    pub(super) slot: u32,
    pub(super) serial: u64,
}

/// What the agents of one block have for others.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) changes: Changes,
    pub(super) requests: Vec<Asked>,
    pub(super) failures: BTreeMap<(ErrorSite, EvalError), Failed>,
    /// How often each state was entered, if that is counted.
    pub(super) visits: Vec<u64>,
}

impl Outbox {
    pub(super) fn fail(&mut self, site: ErrorSite, fault: EvalError, failed: Failed) {
        self.failures
            .entry((site, fault))
            .and_modify(|known| known.merge(failed))
            .or_insert(failed);
    }
}

impl Failed {
    pub(super) fn merge(&mut self, other: Self) {
        self.count += other.count;
        if (other.tick, other.slot) < (self.tick, self.slot) {
            let Self { tick, slot, serial, .. } = other;
            *self = Self { count: self.count, tick, slot, serial };
        }
    }
}

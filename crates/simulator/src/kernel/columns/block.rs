//! A block of agents, stored by column.

use polity_statechart::{Chart, ScalarValue};

use crate::kernel::BLOCK;
use crate::kernel::columns::fields::FieldColumn;
use crate::kernel::columns::history::{HistoryCalendar, HistoryColumns};
use crate::kernel::effects::block_effects::BlockEffects;

/// The status of an active agent. All bits are set, so that it serves as a mask.
pub(crate) const ACTIVE: u8 = 0xFF;
/// The status of a paused agent.
pub(crate) const PAUSED: u8 = 1;
/// The status of a slot without an agent.
pub(crate) const VACANT: u8 = 0;

/// Up to [`BLOCK`] agents. Each column has full length.
#[derive(Debug)]
pub(crate) struct AgentBlock {
    /// The number of agents added.
    pub(crate) length: usize,
    pub(crate) serials: Vec<u64>,
    /// The draw keys.
    pub(crate) keys: Vec<u64>,
    pub(crate) states: Vec<u8>,
    /// The ticks in the state, without the current tick.
    pub(crate) ticks_in_state: Vec<u32>,
    pub(crate) status: Vec<u8>,
    pub(crate) behaviours: Vec<u8>,
    pub(crate) fields: Vec<FieldColumn>,
    /// The last active child, by history state.
    pub(crate) last_active: Vec<Vec<u8>>,
    pub(crate) history: HistoryColumns,
    pub(crate) effects: BlockEffects,
}

pub(crate) struct BlockRow {
    pub(crate) serial: u64,
    pub(crate) key: u64,
    pub(crate) state: u8,
    pub(crate) ticks_in_state: u32,
    pub(crate) status: u8,
    pub(crate) behaviour: u8,
    pub(crate) fields: Vec<Option<ScalarValue>>,
    pub(crate) last_active: Vec<u8>,
    /// Arrival codes and ticks, newest first.
    pub(crate) history: Vec<(u8, u32)>,
}

impl AgentBlock {
    pub(crate) fn new(chart: &Chart, columns: usize) -> Self {
        let mut history = HistoryColumns::new();
        for _ in 0..columns {
            history.push();
        }
        Self {
            length: 0,
            serials: vec![0; BLOCK],
            keys: vec![0; BLOCK],
            states: vec![0; BLOCK],
            ticks_in_state: vec![0; BLOCK],
            status: vec![VACANT; BLOCK],
            behaviours: vec![0; BLOCK],
            fields: FieldColumn::all(chart, BLOCK),
            last_active: chart.history_defaults().iter().map(|first| vec![*first; BLOCK]).collect(),
            history,
            effects: BlockEffects::default(),
        }
    }

    /// Adds an agent at the end. The block must not be full.
    pub(crate) fn push(&mut self, row: BlockRow, calendar: &HistoryCalendar) {
        let index = self.length;
        self.length += 1;
        self.serials[index] = row.serial;
        self.keys[index] = row.key;
        self.states[index] = row.state;
        self.ticks_in_state[index] = row.ticks_in_state;
        self.status[index] = row.status;
        self.behaviours[index] = row.behaviour;
        for (column, value) in self.fields.iter_mut().zip(row.fields) {
            column.set(index, value);
        }
        for (column, child) in self.last_active.iter_mut().zip(row.last_active) {
            column[index] = child;
        }
        self.history.insert(index, &row.history, calendar);
    }

    pub(crate) fn row(&self, index: usize, calendar: &HistoryCalendar) -> BlockRow {
        let fields = self.fields.iter().map(|column| Some(column.get(index).to_value()));
        BlockRow {
            serial: self.serials[index],
            key: self.keys[index],
            state: self.states[index],
            ticks_in_state: self.ticks_in_state[index],
            status: self.status[index],
            behaviour: self.behaviours[index],
            fields: fields.collect(),
            last_active: self.last_active.iter().map(|column| column[index]).collect(),
            history: self.history.of(index, calendar),
        }
    }

    /// Returns the memory of the agents in bytes, without their fields.
    pub(crate) fn bytes(&self) -> usize {
        let last_active: usize = self.last_active.iter().map(Vec::len).sum();
        size_of_val(self.serials.as_slice())
            + size_of_val(self.keys.as_slice())
            + self.states.len()
            + size_of_val(self.ticks_in_state.as_slice())
            + self.status.len()
            + self.behaviours.len()
            + last_active
            + self.history.bytes()
    }
}

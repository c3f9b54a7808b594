//! Some agents of a population, column by column.

use polity_statechart::{Chart, ScalarValue};

use super::BLOCK;
use super::fields::Column;
use super::history::{Calendar, History};
use super::outbox::Outbox;

/// The agent acts. All bits are set, so that it can serve as a mask.
pub(super) const ACTING: u8 = 0xFF;
/// The agent is there and does not act.
pub(super) const PAUSED: u8 = 1;
/// There is no agent, or none any more.
pub(super) const GONE: u8 = 0;

/// Up to [`BLOCK`] agents. Each column has room for all of them.
#[derive(Debug)]
pub(super) struct Block {
    /// How many agents have been added.
    pub(super) length: usize,
    pub(super) serials: Vec<u64>,
    /// What the agents' random numbers depend on.
    pub(super) keys: Vec<u64>,
    pub(super) states: Vec<u8>,
    /// The ticks in the state, without the one that is under way.
    pub(super) held: Vec<u32>,
    pub(super) status: Vec<u8>,
    pub(super) behaviours: Vec<u8>,
    pub(super) fields: Vec<Column>,
    /// Which state inside was left last, by history.
    pub(super) memories: Vec<Vec<u8>>,
    pub(super) history: History,
    pub(super) outbox: Outbox,
}

/// One agent, taken out of the columns.
pub(super) struct Row {
    pub(super) serial: u64,
    pub(super) key: u64,
    pub(super) state: u8,
    pub(super) held: u32,
    pub(super) status: u8,
    pub(super) behaviour: u8,
    pub(super) fields: Vec<Option<ScalarValue>>,
    pub(super) memories: Vec<u8>,
    /// Codes and ticks, the newest first.
    pub(super) history: Vec<(u8, u32)>,
}

impl Block {
    pub(super) fn new(chart: &Chart, columns: usize) -> Self {
        let mut history = History::new();
        for _ in 0..columns {
            history.push();
        }
        Self {
            length: 0,
            serials: vec![0; BLOCK],
            keys: vec![0; BLOCK],
            states: vec![0; BLOCK],
            held: vec![0; BLOCK],
            status: vec![GONE; BLOCK],
            behaviours: vec![0; BLOCK],
            fields: Column::all(chart, BLOCK),
            memories: chart.history_defaults().iter().map(|first| vec![*first; BLOCK]).collect(),
            history,
            outbox: Outbox::default(),
        }
    }

    /// Adds an agent at the end, where there must be room.
    pub(super) fn push(&mut self, row: Row, calendar: &Calendar) {
        let index = self.length;
        self.length += 1;
        self.serials[index] = row.serial;
        self.keys[index] = row.key;
        self.states[index] = row.state;
        self.held[index] = row.held;
        self.status[index] = row.status;
        self.behaviours[index] = row.behaviour;
        for (column, value) in self.fields.iter_mut().zip(row.fields) {
            column.set(index, value);
        }
        for (column, child) in self.memories.iter_mut().zip(row.memories) {
            column[index] = child;
        }
        self.history.take_in(index, &row.history, calendar);
    }

    pub(super) fn row(&self, index: usize, calendar: &Calendar) -> Row {
        let fields = self.fields.iter().map(|column| Some(column.get(index).to_value()));
        Row {
            serial: self.serials[index],
            key: self.keys[index],
            state: self.states[index],
            held: self.held[index],
            status: self.status[index],
            behaviour: self.behaviours[index],
            fields: fields.collect(),
            memories: self.memories.iter().map(|column| column[index]).collect(),
            history: self.history.of(index, calendar),
        }
    }

    /// How many bytes the agents take without their fields.
    pub(super) fn bytes(&self) -> usize {
        let memories: usize = self.memories.iter().map(Vec::len).sum();
        size_of_val(self.serials.as_slice())
            + size_of_val(self.keys.as_slice())
            + self.states.len()
            + size_of_val(self.held.as_slice())
            + self.status.len()
            + self.behaviours.len()
            + memories
            + self.history.bytes()
    }
}

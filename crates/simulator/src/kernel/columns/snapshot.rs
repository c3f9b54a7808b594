//! Snapshots of single agents, for checkpoints.

use polity_statechart::{AgentTransition, Chart, ScalarValue, StateId};

use crate::kernel::Kernel;
use crate::kernel::columns::agents::{AgentSerial, AgentSlot, KernelError};
use crate::kernel::columns::block::{ACTIVE, BlockRow, PAUSED};
use crate::kernel::draws::philox::DrawKey;
use crate::kernel::draws::rates::BehaviourId;

/// The complete state of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSnapshot {
    /// Its serial.
    pub serial: AgentSerial,
    /// Its draw key.
    pub key: DrawKey,
    /// Its behaviour.
    pub behaviour: BehaviourId,
    /// Its state.
    pub state: StateId,
    /// The number of ticks in the state.
    pub ticks_in_state: u32,
    /// True if it is paused.
    pub paused: bool,
    /// Its fields, in chart order.
    pub fields: Vec<Option<ScalarValue>>,
    /// The last active child of each history state.
    pub last_active: Vec<u8>,
    /// Its last transitions, oldest first.
    pub history: Vec<AgentTransition>,
}

impl Kernel {
    /// Returns the snapshot of an agent.
    pub fn snapshot(&self, slot: AgentSlot) -> AgentSnapshot {
        let (block, index) = slot.block_and_lane();
        let row = self.blocks[block].row(index, &self.calendar);
        AgentSnapshot {
            serial: AgentSerial(row.serial),
            key: DrawKey(row.key),
            behaviour: BehaviourId(row.behaviour),
            state: self.states[usize::from(row.state)],
            ticks_in_state: row.ticks_in_state,
            paused: row.status == PAUSED,
            history: self.transitions(row.state, &row.history),
            fields: row.fields,
            last_active: row.last_active,
        }
    }

    /// Sets the last tick of the agents to be restored. Only for a kernel without ticks.
    pub fn resume_at(&mut self, tick: u32) {
        self.calendar.start_at(tick);
    }

    /// Adds an agent from a snapshot, after all others. A missing field gets the chart's default.
    pub fn restore(&mut self, snapshot: AgentSnapshot) -> Result<AgentSlot, KernelError> {
        let history = codes(&self.chart, &snapshot)?;
        let (fields, last_active) = (self.chart.fields(), self.chart.history_defaults());
        if snapshot.fields.len() != fields.len() || snapshot.last_active.len() != last_active.len()
        {
            return Err(KernelError::Shape);
        }
        let sizes = self.chart.history_child_counts();
        if sizes.zip(&snapshot.last_active).any(|(size, child)| usize::from(*child) >= size) {
            return Err(KernelError::Shape);
        }
        let mut values = Vec::with_capacity(fields.len());
        for (field, value) in fields.iter().zip(snapshot.fields) {
            if let (Some(id), Some(value)) = (self.chart.field(&field.name), &value) {
                self.chart.check_field(id, value).map_err(KernelError::Field)?;
            }
            values.push(value.or_else(|| field.default.clone()));
        }
        self.push(BlockRow {
            serial: snapshot.serial.0,
            key: snapshot.key.0,
            state: snapshot.state.get(),
            ticks_in_state: snapshot.ticks_in_state,
            status: if snapshot.paused { PAUSED } else { ACTIVE },
            behaviour: snapshot.behaviour.0,
            fields: values,
            last_active: snapshot.last_active,
            history,
        })
    }
}

/// Encodes a history as codes and ticks, newest first.
fn codes(chart: &Chart, snapshot: &AgentSnapshot) -> Result<Vec<(u8, u32)>, KernelError> {
    let mut to = snapshot.state;
    let broken = || {
        let state = chart.state_name(snapshot.state).to_owned();
        KernelError::BrokenHistory { state }
    };
    if !snapshot.history.is_sorted_by_key(|transition| transition.tick) {
        return Err(broken());
    }
    let mut codes = Vec::with_capacity(snapshot.history.len());
    for transition in snapshot.history.iter().rev() {
        if transition.to != to {
            return Err(broken());
        }
        let code = chart.arrival_code(to, transition.from, transition.trigger);
        let tick = u32::try_from(transition.tick).ok();
        let (Some(code), Some(tick)) = (code, tick) else {
            return Err(KernelError::History {
                from: chart.state_name(transition.from).to_owned(),
                to: chart.state_name(to).to_owned(),
                trigger: chart.trigger_name(transition.trigger).to_owned(),
                tick: transition.tick,
            });
        };
        codes.push((code, tick));
        to = transition.from;
    }
    Ok(codes)
}

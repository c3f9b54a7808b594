//! Adding, removing, pausing and reading agents.

use polity_statechart::{AgentTransition, FieldId, ScalarRef, ScalarValue, StateId};
use thiserror::Error;

use crate::kernel::columns::block::{ACTIVE, AgentBlock, BlockRow, PAUSED, VACANT};
use crate::kernel::columns::fields;
use crate::kernel::draws::philox::DrawKey;
use crate::kernel::draws::rates::BehaviourId;
use crate::kernel::{BLOCK, Kernel};

/// An agent's position in the population. Removing others does not change it; [`Kernel::compact`]
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentSlot(pub u32);

/// An agent's number, unique in a simulation and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentSerial(pub u64);

/// The reason why an agent cannot be added.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum KernelError {
    /// A field may not have the given value.
    #[error("{0}")]
    Field(String),
    /// An unknown behaviour.
    #[error("there is no behaviour {0}")]
    Behaviour(u8),
    /// A transition of the agent's history is not one of the chart.
    #[error(
        "the history has a transition that the chart does not have: {from} to {to} by {trigger} in tick {tick}"
    )]
    History {
        /// The state before.
        from: String,
        /// The state after.
        to: String,
        /// The trigger.
        trigger: String,
        /// The tick.
        tick: u64,
    },
    /// The agent's history does not end in its state, has a gap or goes back in time.
    #[error("the history does not lead step by step to the state \"{state}\"")]
    BrokenHistory {
        /// The state's name.
        state: String,
    },
    /// The agent belongs to another chart.
    #[error("its fields, or the states it last left, are not those of the chart")]
    Shape,
    /// All slots are in use.
    #[error("there is no slot for another agent")]
    Full,
}

impl AgentSlot {
    pub(crate) fn block_and_lane(self) -> (usize, usize) {
        (self.0 as usize / BLOCK, self.0 as usize % BLOCK)
    }
}

impl Kernel {
    /// Adds an agent after all others. Missing fields get the chart's defaults.
    pub fn add(
        &mut self,
        serial: AgentSerial,
        key: DrawKey,
        behaviour: BehaviourId,
        state: StateId,
        given: &[(FieldId, ScalarValue)],
    ) -> Result<AgentSlot, KernelError> {
        let fields = fields::complete(&self.chart, given).map_err(KernelError::Field)?;
        self.push(BlockRow {
            serial: serial.0,
            key: key.0,
            state: state.get(),
            ticks_in_state: 0,
            status: ACTIVE,
            behaviour: behaviour.0,
            fields,
            last_active: self.chart.history_defaults().to_vec(),
            history: Vec::new(),
        })
    }

    pub(crate) fn push(&mut self, row: BlockRow) -> Result<AgentSlot, KernelError> {
        if usize::from(row.behaviour) >= self.rates.behaviours() {
            return Err(KernelError::Behaviour(row.behaviour));
        }
        let slot = u32::try_from(self.slots_used()).map_err(|_| KernelError::Full)?;
        if AgentSlot(slot).block_and_lane().0 == self.blocks.len() {
            self.blocks.push(AgentBlock::new(&self.chart, self.calendar.ticks.len()));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(row, &self.calendar);
        }
        self.live += 1;
        Ok(AgentSlot(slot))
    }

    fn slots_used(&self) -> usize {
        let last = self.blocks.last();
        last.map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.length)
    }

    /// Returns the number of agents, including paused ones.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True if there are no agents.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the slots of all agents, in order.
    pub fn slots(&self) -> impl Iterator<Item = AgentSlot> {
        let used = u32::try_from(self.slots_used()).unwrap_or(u32::MAX);
        (0..used).map(AgentSlot).filter(|slot| self.status(*slot) != VACANT)
    }

    fn block(&self, slot: AgentSlot) -> (&AgentBlock, usize) {
        let (block, index) = slot.block_and_lane();
        (&self.blocks[block], index)
    }

    fn status(&self, slot: AgentSlot) -> u8 {
        let (block, index) = self.block(slot);
        block.status[index]
    }

    fn set_status(&mut self, slot: AgentSlot, status: u8) {
        let (block, index) = slot.block_and_lane();
        self.blocks[block].status[index] = status;
    }

    /// True if the slot holds an agent.
    pub fn contains(&self, slot: AgentSlot) -> bool {
        (slot.0 as usize) < self.slots_used() && self.status(slot) != VACANT
    }

    /// Removes an agent. Its slot stays vacant until [`compact`](Self::compact).
    pub fn remove(&mut self, slot: AgentSlot) {
        if self.contains(slot) {
            self.set_status(slot, VACANT);
            self.live -= 1;
        }
    }

    /// Pauses an agent: it keeps its state and does nothing.
    pub fn pause(&mut self, slot: AgentSlot) {
        if self.contains(slot) {
            self.set_status(slot, PAUSED);
        }
    }

    /// Resumes an agent.
    pub fn resume(&mut self, slot: AgentSlot) {
        if self.contains(slot) {
            self.set_status(slot, ACTIVE);
        }
    }

    /// True if the agent is paused.
    pub fn is_paused(&self, slot: AgentSlot) -> bool {
        self.status(slot) == PAUSED
    }

    /// Returns an agent's serial.
    pub fn serial(&self, slot: AgentSlot) -> AgentSerial {
        let (block, index) = self.block(slot);
        AgentSerial(block.serials[index])
    }

    /// Returns an agent's behaviour.
    pub fn behaviour(&self, slot: AgentSlot) -> BehaviourId {
        let (block, index) = self.block(slot);
        BehaviourId(block.behaviours[index])
    }

    /// Returns an agent's state.
    pub fn state(&self, slot: AgentSlot) -> StateId {
        let (block, index) = self.block(slot);
        self.states[usize::from(block.states[index])]
    }

    /// Returns the number of ticks in the state.
    pub fn ticks_in_state(&self, slot: AgentSlot) -> u32 {
        let (block, index) = self.block(slot);
        block.ticks_in_state[index]
    }

    /// Returns a field of an agent.
    pub fn field(&self, slot: AgentSlot, field: FieldId) -> Option<ScalarRef<'_>> {
        let (block, index) = self.block(slot);
        Some(block.fields[field.index()].get(index))
    }

    /// Sets a field of an agent. Fails if it may not have that value.
    pub fn set_field(
        &mut self,
        slot: AgentSlot,
        field: FieldId,
        value: ScalarValue,
    ) -> Result<(), KernelError> {
        self.chart.check_field(field, &value).map_err(KernelError::Field)?;
        let (block, index) = slot.block_and_lane();
        self.blocks[block].fields[field.index()].set(index, Some(value));
        Ok(())
    }

    /// Returns an agent's last transitions, oldest first.
    pub fn history(&self, slot: AgentSlot) -> Vec<AgentTransition> {
        let (block, index) = self.block(slot);
        self.transitions(block.states[index], &block.history.of(index, &self.calendar))
    }

    /// Decodes arrival codes and ticks, newest first, into transitions that lead to a state.
    pub(crate) fn transitions(&self, state: u8, codes: &[(u8, u32)]) -> Vec<AgentTransition> {
        let mut to = self.states[usize::from(state)];
        let mut transitions = Vec::with_capacity(codes.len());
        for (code, tick) in codes {
            let Some((from, trigger)) = self.chart.decode_arrival(to, *code) else { break };
            let tick = u64::from(*tick);
            transitions.push(AgentTransition { from, to, trigger, tick, context: None });
            to = from;
        }
        transitions.reverse();
        transitions
    }

    /// Counts the agents in each state, in chart order, including paused ones.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = [0_u64; 256];
        for block in &self.blocks {
            for (state, status) in block.states.iter().zip(&block.status) {
                counts[usize::from(*state)] += u64::from(*status != VACANT);
            }
        }
        counts[..self.chart.states().len()].to_vec()
    }

    /// Returns the memory of all agents in bytes, without their fields.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(AgentBlock::bytes).sum()
    }

    /// Closes the gaps of removed agents, keeping the order. Returns the new slot by old slot, or
    /// `None` without gaps.
    pub fn compact(&mut self) -> Option<Vec<Option<AgentSlot>>> {
        let used = self.slots_used();
        if used == self.live {
            return None;
        }
        let mut moved = Vec::with_capacity(used);
        let old = std::mem::take(&mut self.blocks);
        self.live = 0;
        for block in old {
            for index in 0..block.length {
                let there = block.status[index] != VACANT;
                // The population only shrinks, so a slot is always free.
                let row = there.then(|| block.row(index, &self.calendar));
                moved.push(row.and_then(|row| self.push(row).ok()));
            }
        }
        Some(moved)
    }
}

//! Who is there: agents come, go, rest and are looked at.

use polity_statechart::{AgentTransition, FieldId, ScalarRef, ScalarValue, StateId};
use thiserror::Error;

use super::block::{ACTING, Block, GONE, PAUSED, Row};
use super::philox::DrawKey;
use super::rates::BehaviourId;
use super::{BLOCK, Kernel, fields};

/// An agent's place in the order of the population. Removing others does not change it;
/// [`Kernel::compact`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// An agent's number, which no other one ever has in the same simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentSerial(pub u64);

/// Why an agent cannot be added.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum KernelError {
    /// A field may not have the value it is given.
    #[error("{0}")]
    Field(String),
    /// There is no such behaviour.
    #[error("there is no behaviour {0}")]
    Behaviour(u8),
    /// A transition in the agent's history is none of the chart's.
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
    /// The agent was one of another chart.
    #[error("its fields, or the states it last left, are not those of the chart")]
    Shape,
    /// There are as many agents as there are slots.
    #[error("there is no slot for another agent")]
    Full,
}

impl Slot {
    pub(super) fn place(self) -> (usize, usize) {
        (self.0 as usize / BLOCK, self.0 as usize % BLOCK)
    }
}

impl Kernel {
    /// Adds an agent behind all others. Fields that are not given are what the chart says.
    pub fn add(
        &mut self,
        serial: AgentSerial,
        key: DrawKey,
        behaviour: BehaviourId,
        state: StateId,
        given: &[(FieldId, ScalarValue)],
    ) -> Result<Slot, KernelError> {
        let fields = fields::complete(&self.chart, given).map_err(KernelError::Field)?;
        self.push(Row {
            serial: serial.0,
            key: key.0,
            state: state.get(),
            held: 0,
            status: ACTING,
            behaviour: behaviour.0,
            fields,
            memories: self.chart.history_defaults().to_vec(),
            history: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, row: Row) -> Result<Slot, KernelError> {
        if usize::from(row.behaviour) >= self.rates.behaviours() {
            return Err(KernelError::Behaviour(row.behaviour));
        }
        let slot = u32::try_from(self.slots_used()).map_err(|_| KernelError::Full)?;
        if Slot(slot).place().0 == self.blocks.len() {
            self.blocks.push(Block::new(&self.chart, self.calendar.ticks.len()));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(row, &self.calendar);
        }
        self.live += 1;
        Ok(Slot(slot))
    }

    fn slots_used(&self) -> usize {
        let last = self.blocks.last();
        last.map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.length)
    }

    /// How many agents there are, paused ones too.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The slots of all agents, in order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        let used = u32::try_from(self.slots_used()).unwrap_or(u32::MAX);
        (0..used).map(Slot).filter(|slot| self.status(*slot) != GONE)
    }

    fn block(&self, slot: Slot) -> (&Block, usize) {
        let (block, index) = slot.place();
        (&self.blocks[block], index)
    }

    fn status(&self, slot: Slot) -> u8 {
        let (block, index) = self.block(slot);
        block.status[index]
    }

    fn set_status(&mut self, slot: Slot, status: u8) {
        let (block, index) = slot.place();
        self.blocks[block].status[index] = status;
    }

    /// Whether there is an agent in a slot.
    pub fn contains(&self, slot: Slot) -> bool {
        (slot.0 as usize) < self.slots_used() && self.status(slot) != GONE
    }

    /// Takes an agent out. Its slot stays empty until [`compact`](Self::compact).
    pub fn remove(&mut self, slot: Slot) {
        if self.contains(slot) {
            self.set_status(slot, GONE);
            self.live -= 1;
        }
    }

    /// Lets an agent rest: it keeps all that it has and does nothing.
    pub fn pause(&mut self, slot: Slot) {
        if self.contains(slot) {
            self.set_status(slot, PAUSED);
        }
    }

    /// Lets an agent act again.
    pub fn resume(&mut self, slot: Slot) {
        if self.contains(slot) {
            self.set_status(slot, ACTING);
        }
    }

    /// Whether an agent rests.
    pub fn is_paused(&self, slot: Slot) -> bool {
        self.status(slot) == PAUSED
    }

    /// An agent's number.
    pub fn serial(&self, slot: Slot) -> AgentSerial {
        let (block, index) = self.block(slot);
        AgentSerial(block.serials[index])
    }

    /// How an agent behaves.
    pub fn behaviour(&self, slot: Slot) -> BehaviourId {
        let (block, index) = self.block(slot);
        BehaviourId(block.behaviours[index])
    }

    /// The state that an agent is in.
    pub fn state(&self, slot: Slot) -> StateId {
        let (block, index) = self.block(slot);
        self.states[usize::from(block.states[index])]
    }

    /// For how many ticks it has been there.
    pub fn ticks_in_state(&self, slot: Slot) -> u32 {
        let (block, index) = self.block(slot);
        block.held[index]
    }

    /// A field of an agent.
    pub fn field(&self, slot: Slot, field: FieldId) -> Option<ScalarRef<'_>> {
        let (block, index) = self.block(slot);
        Some(block.fields[field.index()].get(index))
    }

    /// Changes a field of an agent; refused with the reason if it may not have that value.
    pub fn set_field(
        &mut self,
        slot: Slot,
        field: FieldId,
        value: ScalarValue,
    ) -> Result<(), KernelError> {
        self.chart.check_field(field, &value).map_err(KernelError::Field)?;
        let (block, index) = slot.place();
        self.blocks[block].fields[field.index()].set(index, Some(value));
        Ok(())
    }

    /// An agent's last transitions, the newest last.
    pub fn history(&self, slot: Slot) -> Vec<AgentTransition> {
        let (block, index) = self.block(slot);
        self.transitions(block.states[index], &block.history.of(index, &self.calendar))
    }

    /// Codes and ticks, the newest first, as transitions that lead to a state.
    pub(super) fn transitions(&self, state: u8, codes: &[(u8, u32)]) -> Vec<AgentTransition> {
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

    /// How many agents are in each state, in the order of the chart. Paused ones count.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = [0_u64; 256];
        for block in &self.blocks {
            for (state, status) in block.states.iter().zip(&block.status) {
                counts[usize::from(*state)] += u64::from(*status != GONE);
            }
        }
        counts[..self.chart.states().len()].to_vec()
    }

    /// How many bytes all agents take without their fields.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::bytes).sum()
    }

    /// Closes the gaps that removed agents left, keeping the order. Says by old slot which the new
    /// one is; nothing if there were no gaps.
    pub fn compact(&mut self) -> Option<Vec<Option<Slot>>> {
        let used = self.slots_used();
        if used == self.live {
            return None;
        }
        let mut moved = Vec::with_capacity(used);
        let old = std::mem::take(&mut self.blocks);
        self.live = 0;
        for block in old {
            for index in 0..block.length {
                let there = block.status[index] != GONE;
                // Who was there has a place: the population only gets smaller.
                let row = there.then(|| block.row(index, &self.calendar));
                moved.push(row.and_then(|row| self.push(row).ok()));
            }
        }
        Some(moved)
    }
}

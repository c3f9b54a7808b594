//! One agent, whole: how populations are written to checkpoints and read back, agent by agent.

use polity_statechart::{AgentTransition, Chart, ScalarValue, StateId};

use super::Kernel;
use super::block::{ACTING, PAUSED, Row};
use super::philox::DrawKey;
use super::population::{AgentSerial, KernelError, Slot};
use super::rates::BehaviourId;

/// All there is to know about an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentImage {
    /// Its number.
    pub serial: AgentSerial,
    /// What its random numbers follow from.
    pub key: DrawKey,
    /// How it behaves.
    pub behaviour: BehaviourId,
    /// The state that it is in.
    pub state: StateId,
    /// For how many ticks it has been there.
    pub ticks_in_state: u32,
    /// Whether it rests.
    pub paused: bool,
    /// Its fields, in the order of the chart.
    pub fields: Vec<Option<ScalarValue>>,
    /// Which states inside others it left last, by the chart's histories.
    pub memories: Vec<u8>,
    /// Its last transitions, the newest last.
    pub history: Vec<AgentTransition>,
}

impl Kernel {
    /// An agent, whole.
    pub fn image(&self, slot: Slot) -> AgentImage {
        let (block, index) = slot.place();
        let row = self.blocks[block].row(index, &self.calendar);
        AgentImage {
            serial: AgentSerial(row.serial),
            key: DrawKey(row.key),
            behaviour: BehaviourId(row.behaviour),
            state: self.states[usize::from(row.state)],
            ticks_in_state: row.held,
            paused: row.status == PAUSED,
            history: self.transitions(row.state, &row.history),
            fields: row.fields,
            memories: row.memories,
        }
    }

    /// Says that the agents to be restored have lived until this tick. Only for a population that
    /// has not had a tick yet.
    pub fn resume_at(&mut self, tick: u32) {
        self.calendar.begin_at(tick);
    }

    /// Adds an agent behind all others, just as it was. A field that is missing is what the chart
    /// says.
    pub fn restore(&mut self, image: AgentImage) -> Result<Slot, KernelError> {
        let history = codes(&self.chart, &image)?;
        let (fields, memories) = (self.chart.fields(), self.chart.history_defaults());
        if image.fields.len() != fields.len() || image.memories.len() != memories.len() {
            return Err(KernelError::Shape);
        }
        let sizes = self.chart.history_child_counts();
        if sizes.zip(&image.memories).any(|(size, child)| usize::from(*child) >= size) {
            return Err(KernelError::Shape);
        }
        let mut values = Vec::with_capacity(fields.len());
        for (field, value) in fields.iter().zip(image.fields) {
            if let (Some(id), Some(value)) = (self.chart.field(&field.name), &value) {
                self.chart.check_field(id, value).map_err(KernelError::Field)?;
            }
            values.push(value.or_else(|| field.default.clone()));
        }
        self.push(Row {
            serial: image.serial.0,
            key: image.key.0,
            state: image.state.get(),
            held: image.ticks_in_state,
            status: if image.paused { PAUSED } else { ACTING },
            behaviour: image.behaviour.0,
            fields: values,
            memories: image.memories,
            history,
        })
    }
}

/// A history as codes and ticks, the newest first.
fn codes(chart: &Chart, image: &AgentImage) -> Result<Vec<(u8, u32)>, KernelError> {
    let mut to = image.state;
    let broken = || {
        let state = chart.state_name(image.state).to_owned();
        KernelError::BrokenHistory { state }
    };
    if !image.history.is_sorted_by_key(|transition| transition.tick) {
        return Err(broken());
    }
    let mut codes = Vec::with_capacity(image.history.len());
    for transition in image.history.iter().rev() {
        if transition.to != to {
            return Err(broken());
        }
        let way = chart.arrival_code(to, transition.from, transition.trigger);
        let tick = u32::try_from(transition.tick).ok();
        let (Some(code), Some(tick)) = (way, tick) else {
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

//! An agent as JSON, for debugging and logging.

use serde::Serialize;
use serde_json::Value as Json;

use super::{Instance, StateTransition};
use crate::chart::Chart;
use crate::ids::StateId;

/// An agent, its state and how it came there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentRecord {
    /// The agent.
    pub agent_id: String,
    /// The name of the state that it is in.
    pub current_state: String,
    /// For how many ticks it has been there.
    pub ticks_in_state: u32,
    /// The transitions that it made, the newest last.
    pub state_history: Vec<TransitionRecord>,
}

/// A transition that an agent made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransitionRecord {
    /// The name of the state before.
    pub from_state: String,
    /// The name of the state after.
    pub to_state: String,
    /// The name of what set it off.
    pub trigger: String,
    /// When, as an RFC 3339 time in UTC.
    pub timestamp: String,
    /// What was known, or null.
    pub context: Option<Json>,
}

impl AgentRecord {
    /// The record of an agent. `time` turns ticks into times.
    pub fn new(
        chart: &Chart,
        agent_id: &str,
        (state, ticks_in_state): (StateId, u32),
        history: impl IntoIterator<Item = StateTransition>,
        time: impl Fn(u64) -> String,
    ) -> Self {
        let state_history = history.into_iter().map(|transition| TransitionRecord {
            from_state: chart.state_name(transition.from).to_owned(),
            to_state: chart.state_name(transition.to).to_owned(),
            trigger: chart.trigger_name(transition.trigger).to_owned(),
            timestamp: time(transition.tick),
            context: transition.context.as_deref().cloned(),
        });
        Self {
            agent_id: agent_id.to_owned(),
            current_state: chart.state_name(state).to_owned(),
            ticks_in_state,
            state_history: state_history.collect(),
        }
    }
}

impl Instance {
    /// The agent as JSON. `time` turns ticks into times.
    pub fn record(&self, agent_id: &str, time: impl Fn(u64) -> String) -> AgentRecord {
        let now = (self.state, self.ticks_in_state);
        AgentRecord::new(&self.chart, agent_id, now, self.history(), time)
    }
}

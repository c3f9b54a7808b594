//! The JSON form of an agent.

use serde::Serialize;
use serde_json::Value as Json;

use super::{AgentTransition, ChartInstance};
use crate::chart::Chart;
use crate::ids::StateId;

/// An agent with its state and transition history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentRecord {
    /// The agent's id.
    pub agent_id: String,
    /// The name of its state.
    pub current_state: String,
    /// The number of ticks in its state.
    pub ticks_in_state: u32,
    /// Its recorded transitions, oldest first.
    pub state_history: Vec<TransitionRecord>,
}

/// A recorded transition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransitionRecord {
    /// The name of the state before.
    pub from_state: String,
    /// The name of the state after.
    pub to_state: String,
    /// The name of the trigger.
    pub trigger: String,
    /// The time of the tick, in RFC 3339 and UTC.
    pub timestamp: String,
    /// The context, or null.
    pub context: Option<Json>,
}

impl AgentRecord {
    /// Creates the record of an agent. `time` converts ticks to times.
    pub fn new(
        chart: &Chart,
        agent_id: &str,
        (state, ticks_in_state): (StateId, u32),
        history: impl IntoIterator<Item = AgentTransition>,
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

impl ChartInstance {
    /// Returns the record of the agent. `time` converts ticks to times.
    pub fn record(&self, agent_id: &str, time: impl Fn(u64) -> String) -> AgentRecord {
        let now = (self.state, self.ticks_in_state);
        AgentRecord::new(&self.chart, agent_id, now, self.history(), time)
    }
}

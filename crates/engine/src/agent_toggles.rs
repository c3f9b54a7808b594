//! Agents that a person enabled or disabled at run time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polity_definition::{AgentDefinition, AgentKind};
use polity_model::event::{Event, RecordedEvent, StreamId};
use polity_model::name::Name;
use polity_store::{Store, StoreError};

/// The newest toggle of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentToggle {
    /// True if the agent accepts work.
    pub enabled: bool,
    /// The reason for disabling it.
    pub reason: Option<String>,
    /// The time of the toggle.
    pub at: Timestamp,
}

/// The newest toggle of each agent that has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentToggles(BTreeMap<Name, AgentToggle>);

impl AgentToggle {
    /// Reads a toggle from a recorded event, if it is one.
    pub(crate) fn from_event(recorded: RecordedEvent) -> Option<Self> {
        let at = recorded.at;
        if recorded.event == Event::AgentEnabled {
            return Some(Self { enabled: true, reason: None, at });
        }
        let Event::AgentDisabled { reason } = recorded.event else { return None };
        Some(Self { enabled: false, reason, at })
    }

    /// Loads the newest toggle of an agent.
    pub(crate) async fn newest(
        store: &dyn Store,
        agent: &Name,
    ) -> Result<Option<Self>, StoreError> {
        let newest = store.newest_events(&StreamId::Agent(agent.clone()), 1).await?;
        Ok(newest.into_iter().find_map(Self::from_event))
    }
}

impl AgentToggles {
    /// Loads the toggles of all agents.
    pub async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut toggles = Self::default();
        for agent in store.toggled_agents().await? {
            toggles.reload(store, agent).await?;
        }
        Ok(toggles)
    }

    /// Reloads the toggle of one agent.
    pub(crate) async fn reload(
        &mut self,
        store: &dyn Store,
        agent: Name,
    ) -> Result<(), StoreError> {
        if let Some(switch) = AgentToggle::newest(store, &agent).await? {
            self.0.insert(agent, switch);
        }
        Ok(())
    }

    /// The toggle of an agent.
    pub fn of(&self, agent: &Name) -> Option<&AgentToggle> {
        self.0.get(agent)
    }

    /// True if an agent accepts work. A toggle overrides the agent's file.
    pub fn is_enabled(&self, agent: &AgentDefinition) -> bool {
        let by_file = match &agent.kind {
            AgentKind::Cli(cli) => cli.enabled,
            AgentKind::Llm(_) | AgentKind::Remote(_) => true,
        };
        self.of(&agent.name).map_or(by_file, |switch| switch.enabled)
    }
}

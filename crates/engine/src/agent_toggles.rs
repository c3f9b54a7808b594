//! Which agents take work, whatever their files say.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polity_definition::{AgentDefinition, AgentKind};
use polity_model::event::{Event, Recorded, StreamId};
use polity_model::name::Name;
use polity_store::{Store, StoreError};

/// What was said last about whether an agent takes work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentToggle {
    /// Whether it does.
    pub enabled: bool,
    /// Why not, for people.
    pub reason: Option<String>,
    /// When it was said.
    pub at: Timestamp,
}

/// What was said last of each agent that anything was said of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentToggles(BTreeMap<Name, AgentToggle>);

impl AgentToggle {
    /// What an event says of its agent, if it says anything.
    pub(crate) fn told(recorded: Recorded) -> Option<Self> {
        let at = recorded.at;
        if recorded.event == Event::AgentEnabled {
            return Some(Self { enabled: true, reason: None, at });
        }
        let Event::AgentDisabled { reason } = recorded.event else { return None };
        Some(Self { enabled: false, reason, at })
    }

    /// What was said last of an agent.
    pub(crate) fn newest(store: &dyn Store, agent: &Name) -> Result<Option<Self>, StoreError> {
        let newest = store.newest_events(&StreamId::Agent(agent.clone()), 1)?;
        Ok(newest.into_iter().find_map(Self::told))
    }
}

impl AgentToggles {
    /// Reads what was said of all agents.
    pub fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut toggles = Self::default();
        for agent in store.switched_agents()? {
            toggles.look(store, agent)?;
        }
        Ok(toggles)
    }

    /// Reads what was said last of one agent.
    pub(crate) fn look(&mut self, store: &dyn Store, agent: Name) -> Result<(), StoreError> {
        if let Some(switch) = AgentToggle::newest(store, &agent)? {
            self.0.insert(agent, switch);
        }
        Ok(())
    }

    /// What was said of an agent.
    pub fn of(&self, agent: &Name) -> Option<&AgentToggle> {
        self.0.get(agent)
    }

    /// Whether an agent takes work. What was said last counts more than its file.
    pub fn is_enabled(&self, agent: &AgentDefinition) -> bool {
        let by_file = match &agent.kind {
            AgentKind::Cli(cli) => cli.enabled,
            AgentKind::Llm(_) | AgentKind::Remote(_) => true,
        };
        self.of(&agent.name).map_or(by_file, |switch| switch.enabled)
    }
}

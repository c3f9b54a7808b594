//! Whether agents take work: saying so, and noticing that another process has.

use std::sync::{Arc, PoisonError};

use polity_model::event::{StreamId, StreamSequence};
use polity_model::name::Name;
use polity_store::{Commit, CommitError, Store};

use super::{CONFLICTS_MAX, EngineError, Shared, load};
use crate::agent_toggles::{AgentToggle, AgentToggles};
use crate::clock::Clock;
use crate::commands::ToggleAgent;

/// Says whether an agent takes work. Says whether that changed anything.
pub async fn toggle_agent(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    agent: &Name,
    switch: &ToggleAgent,
) -> Result<bool, EngineError> {
    let mut conflict = None;
    for _ in 0..CONFLICTS_MAX {
        let stream = StreamId::Agent(agent.clone());
        let looked_at = stream.clone();
        let newest =
            load::blocking(store, move |store| store.newest_events(&looked_at, 1)).await?.pop();
        let expected_sequence =
            newest.as_ref().map_or(StreamSequence::default(), |newest| newest.sequence);
        let events = switch.decide(newest.and_then(AgentToggle::from_event).as_ref());
        if events.is_empty() {
            return Ok(false);
        }
        let commit = Commit {
            stream,
            expected_sequence,
            owner_epoch: None,
            at: clock.now(),
            events,
            definitions: Vec::new(),
            sealed_input: None,
        };
        match store.commit(commit).await {
            Ok(_) => return Ok(true),
            Err(error @ CommitError::Conflict { .. }) => conflict = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    conflict.map_or(Ok(false), |conflict| Err(conflict.into()))
}

impl Shared {
    /// Which agents take work, as far as this process has noticed.
    pub(super) fn agent_toggles(&self) -> Arc<AgentToggles> {
        Arc::clone(&self.agent_toggles.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Someone has said something about an agent.
    pub(super) async fn look_at_agent(&self, agent: Name) {
        let mut agent_toggles = AgentToggles::clone(&self.agent_toggles());
        let looked = load::blocking(&self.parts.store, move |store| {
            agent_toggles.reload(store, agent)?;
            Ok(agent_toggles)
        });
        match looked.await {
            Ok(agent_toggles) => {
                *self.agent_toggles.write().unwrap_or_else(PoisonError::into_inner) =
                    Arc::new(agent_toggles);
            }
            Err(error) => tracing::warn!(%error, "it cannot be told whether an agent is enabled"),
        }
    }
}

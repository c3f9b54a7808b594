//! Enables and disables agents by command.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use polity_model::event::{Event, RecordedEvent, StreamId, StreamSequence};
use polity_model::name::Name;
use polity_store::{Commit, CommitError, Store, StoreError};

use super::EngineError;
use super::decision_loop::{DecisionTarget, ProposedEvents, decide_and_commit};
use crate::agent_toggles::{AgentToggle, AgentToggles};
use crate::clock::Clock;
use crate::commands::ToggleAgent;

/// The toggles that this process has noticed.
pub(super) struct ToggleCache(RwLock<Arc<AgentToggles>>);

impl ToggleCache {
    /// Reads the toggles of all agents.
    pub(super) async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self(RwLock::new(Arc::new(AgentToggles::read(store).await?))))
    }

    /// The current toggles.
    pub(super) fn current(&self) -> Arc<AgentToggles> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the toggle of an agent again.
    pub(super) async fn reload(&self, store: &dyn Store, agent: Name) {
        let mut toggles = AgentToggles::clone(&self.current());
        match toggles.reload(store, agent).await {
            Ok(()) => *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(toggles),
            Err(error) => tracing::warn!(%error, "cannot read whether an agent is enabled"),
        }
    }
}

/// Enables or disables an agent. Returns true if that is a change.
pub async fn toggle_agent(
    store: &dyn Store,
    clock: &dyn Clock,
    agent: &Name,
    toggle: &ToggleAgent,
) -> Result<bool, EngineError> {
    let stream = StreamId::Agent(agent.clone());
    let newest = store.newest_events(&stream, 1).await?.pop();
    decide_and_commit(&mut ToggleDecision { store, clock, toggle, stream, newest }).await
}

struct ToggleDecision<'a> {
    store: &'a dyn Store,
    clock: &'a dyn Clock,
    toggle: &'a ToggleAgent,
    stream: StreamId,
    newest: Option<RecordedEvent>,
}

impl DecisionTarget for ToggleDecision<'_> {
    type Output = bool;

    async fn propose(&mut self) -> Result<ProposedEvents<bool>, EngineError> {
        let current = self.newest.clone().and_then(AgentToggle::from_event);
        let events = self.toggle.decide(current.as_ref());
        let output = !events.is_empty();
        Ok(ProposedEvents { at: self.clock.now(), events, output })
    }

    async fn commit(&mut self, at: Timestamp, events: Vec<Event>) -> Result<(), EngineError> {
        let expected =
            self.newest.as_ref().map_or(StreamSequence::default(), |newest| newest.sequence);
        let commit = Commit::new(self.stream.clone(), expected, None, at, events);
        self.store.commit(commit).await?;
        Ok(())
    }

    async fn catch_up(&mut self) -> Result<(), EngineError> {
        self.newest = self.store.newest_events(&self.stream, 1).await?.pop();
        Ok(())
    }

    fn contended(&self, conflict: CommitError) -> EngineError {
        conflict.into()
    }
}

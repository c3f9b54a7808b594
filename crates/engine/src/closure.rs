//! Everything a task may need of its definitions, frozen when the task is created.
//!
//! A task goes on with what it began with, whatever becomes of the files. The canonical form of
//! each definition is in the store by its digest, and the task names the digests.

use std::sync::Arc;

use polity_model::definition::{
    AgentDefinition, AgentKind, Home, LlmAgent, Problem, ScriptDefinition,
};
use polity_model::event::{Pin, PinKind};
use polity_model::name::Name;
use polity_store::{PinnedDefinition, Store, StoreError};

/// An agent with everything it needs.
#[derive(Debug, Clone)]
pub struct Closure {
    /// The agent that was asked for.
    pub agent: Arc<AgentDefinition>,
    /// The rules of its model, if that is a scripted one.
    pub script: Option<Arc<ScriptDefinition>>,
}

/// A task's definitions cannot be put together.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClosureError {
    /// The store does not have what the task pinned.
    #[error("the definition of {kind:?} {name} that the task pinned is not in the store")]
    Lost {
        /// What it was.
        kind: PinKind,
        /// Its name.
        name: Name,
    },
    /// What is in the store cannot be read.
    #[error("the pinned definition of {name} cannot be read: {problem}")]
    Unreadable {
        /// Its name.
        name: Name,
        /// The first thing that is wrong with it.
        problem: String,
    },
    /// There is no agent among the pinned definitions.
    #[error("the task pinned no agent")]
    NoAgent,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Closure {
    /// What this agent needs, from the home as it is now.
    pub fn of(home: &Home, agent: Arc<AgentDefinition>) -> Self {
        let script = match &agent.kind {
            AgentKind::Llm(llm) => llm.llm_config.script.as_ref(),
            AgentKind::Cli(_) | AgentKind::Remote(_) => None,
        };
        let script = script.and_then(|name| home.scripts.get(name)).cloned();
        Self { agent, script }
    }

    /// What a task pinned, from the store.
    pub fn load(store: &dyn Store, pins: &[Pin]) -> Result<Self, ClosureError> {
        let (mut agent, mut script) = (None, None);
        for pin in pins {
            let json = store
                .definition(&pin.digest)?
                .ok_or_else(|| ClosureError::Lost { kind: pin.kind, name: pin.name.clone() })?;
            let unreadable = |problems: Vec<Problem>| ClosureError::Unreadable {
                name: pin.name.clone(),
                problem: problems.first().map(ToString::to_string).unwrap_or_default(),
            };
            match pin.kind {
                PinKind::Agent => {
                    agent = Some(AgentDefinition::from_canonical(&json).map_err(unreadable)?);
                }
                PinKind::Script => {
                    script = Some(
                        ScriptDefinition::from_canonical(&pin.name, &json).map_err(unreadable)?,
                    );
                }
            }
        }
        let agent = agent.ok_or(ClosureError::NoAgent)?;
        Ok(Self { agent: Arc::new(agent), script: script.map(Arc::new) })
    }

    /// What the task names, and what the store keeps.
    pub fn pin(&self) -> (Vec<Pin>, Vec<PinnedDefinition>) {
        let mut pins = Vec::new();
        let mut definitions = Vec::new();
        let mut add = |kind, name: &Name, digest, json| {
            pins.push(Pin { kind, name: name.clone(), digest });
            definitions.push(PinnedDefinition { digest, json });
        };
        let agent = &*self.agent;
        add(PinKind::Agent, &agent.name, agent.digest(), agent.canonical_json());
        if let Some(script) = &self.script {
            add(PinKind::Script, &script.name, script.digest(), script.canonical_json());
        }
        (pins, definitions)
    }

    /// The agent's model, if it has one.
    pub fn llm(&self) -> Option<&LlmAgent> {
        match &self.agent.kind {
            AgentKind::Llm(llm) => Some(llm),
            AgentKind::Cli(_) | AgentKind::Remote(_) => None,
        }
    }
}

//! Everything a task may need of its definitions, frozen when the task is created.
//!
//! A task goes on with what it began with, whatever becomes of the files. The canonical form of
//! each definition is in the store by its digest, and the task names the digests. What an agent
//! needs includes the agents that it hands work to, and theirs in turn.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The agents that it may hand work to, and those that they may, with what they need.
    pub cast: Arc<Cast>,
}

/// Agents that may hand work to one another, with the rules of their models.
#[derive(Debug, Default)]
pub struct Cast {
    agents: BTreeMap<Name, Arc<AgentDefinition>>,
    scripts: BTreeMap<Name, Arc<ScriptDefinition>>,
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
    /// The agent is not among the pinned definitions.
    #[error("the task did not pin agent {0}")]
    NoAgent(Name),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Something that an agent needs is not there, or not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is.
    pub kind: PinKind,
    /// Its name.
    pub name: Name,
    /// The agent that needs it.
    pub needed_by: Name,
}

impl Closure {
    /// What this agent needs, from the home as it is now.
    pub fn of(home: &Home, agent: Arc<AgentDefinition>) -> Result<Self, Missing> {
        let mut cast = Cast::default();
        let mut waiting = vec![Arc::clone(&agent)];
        while let Some(next) = waiting.pop() {
            if cast.agents.contains_key(&next.name) {
                continue;
            }
            let missing = |kind, name: &Name| {
                let (name, needed_by) = (name.clone(), next.name.clone());
                Missing { kind, name, needed_by }
            };
            if let Some(name) = script_of(&next) {
                let script = home.scripts.get(name);
                let script = script.ok_or_else(|| missing(PinKind::Script, name))?;
                cast.scripts.insert(name.clone(), Arc::clone(script));
            }
            for name in sub_agents_of(&next) {
                let agent = home.agents.get(name);
                let agent = agent.ok_or_else(|| missing(PinKind::Agent, name))?;
                waiting.push(Arc::clone(agent));
            }
            cast.agents.insert(next.name.clone(), next);
        }
        Ok(Self::within(agent, &Arc::new(cast)))
    }

    /// What a task pinned, from the store.
    pub fn load(store: &dyn Store, agent: &Name, pins: &[Pin]) -> Result<Self, ClosureError> {
        let mut cast = Cast::default();
        for pin in pins {
            let json = store
                .definition(&pin.digest)?
                .ok_or_else(|| ClosureError::Lost { kind: pin.kind, name: pin.name.clone() })?;
            let unreadable = |problems: Vec<Problem>| ClosureError::Unreadable {
                name: pin.name.clone(),
                problem: problems.first().map(ToString::to_string).unwrap_or_default(),
            };
            let name = pin.name.clone();
            match pin.kind {
                PinKind::Agent => {
                    let agent = AgentDefinition::from_canonical(&json).map_err(unreadable)?;
                    cast.agents.insert(name, Arc::new(agent));
                }
                PinKind::Script => {
                    let script =
                        ScriptDefinition::from_canonical(&pin.name, &json).map_err(unreadable)?;
                    cast.scripts.insert(name, Arc::new(script));
                }
            }
        }
        let found = cast.agents.get(agent).cloned();
        let agent = found.ok_or_else(|| ClosureError::NoAgent(agent.clone()))?;
        Ok(Self::within(agent, &Arc::new(cast)))
    }

    fn within(agent: Arc<AgentDefinition>, cast: &Arc<Cast>) -> Self {
        let script = script_of(&agent).and_then(|name| cast.scripts.get(name)).cloned();
        Self { agent, script, cast: Arc::clone(cast) }
    }

    /// What the task names, and what the store keeps.
    pub fn pin(&self) -> (Vec<Pin>, Vec<PinnedDefinition>) {
        let mut pins = Vec::new();
        let mut definitions = Vec::new();
        let mut add = |kind, name: &Name, digest, json| {
            pins.push(Pin { kind, name: name.clone(), digest });
            definitions.push(PinnedDefinition { digest, json });
        };
        let mut scripts = BTreeSet::new();
        for closure in self.everyone() {
            let agent = &*closure.agent;
            add(PinKind::Agent, &agent.name, agent.digest(), agent.canonical_json());
            if let Some(script) =
                closure.script.filter(|script| scripts.insert(script.name.clone()))
            {
                add(PinKind::Script, &script.name, script.digest(), script.canonical_json());
            }
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

    /// One of the agents that this one may hand work to, with everything that one needs.
    pub fn sub_agent(&self, name: &Name) -> Option<Self> {
        let is_named = sub_agents_of(&self.agent).contains(name);
        let agent = self.cast.agents.get(name).filter(|_| is_named)?;
        Some(Self::within(Arc::clone(agent), &self.cast))
    }

    /// The agents that this one may hand work to, in the order of its file.
    pub fn sub_agents(&self) -> impl Iterator<Item = Self> + '_ {
        sub_agents_of(&self.agent).iter().filter_map(|name| self.sub_agent(name))
    }

    /// The agent and all that work may be handed on to, each once, itself first.
    pub fn everyone(&self) -> Vec<Self> {
        let mut met = BTreeSet::new();
        let mut found = Vec::new();
        let mut waiting = vec![self.clone()];
        while let Some(next) = waiting.pop() {
            if met.insert(next.agent.name.clone()) {
                waiting.extend(next.sub_agents());
                found.push(next);
            }
        }
        found
    }

    /// The longest way on which work may be handed on, from this agent to the last. Definitions
    /// refuse circles, so there is one.
    pub fn longest_chain(&self) -> Vec<Name> {
        self.chain_from(&self.agent, &mut BTreeMap::new())
    }

    fn chain_from(
        &self,
        agent: &AgentDefinition,
        known: &mut BTreeMap<Name, Vec<Name>>,
    ) -> Vec<Name> {
        if let Some(chain) = known.get(&agent.name) {
            return chain.clone();
        }
        // Met again before it is known, as it only could be on a circle, it ends the chain.
        known.insert(agent.name.clone(), vec![agent.name.clone()]);
        let below = sub_agents_of(agent)
            .iter()
            .filter_map(|name| self.cast.agents.get(name))
            .map(|agent| self.chain_from(agent, known))
            .max_by_key(Vec::len)
            .unwrap_or_default();
        let chain: Vec<Name> = std::iter::once(agent.name.clone()).chain(below).collect();
        known.insert(agent.name.clone(), chain.clone());
        chain
    }
}

fn script_of(agent: &AgentDefinition) -> Option<&Name> {
    match &agent.kind {
        AgentKind::Llm(llm) => llm.llm_config.script.as_ref(),
        AgentKind::Cli(_) | AgentKind::Remote(_) => None,
    }
}

fn sub_agents_of(agent: &AgentDefinition) -> &[Name] {
    match &agent.kind {
        AgentKind::Llm(llm) => &llm.sub_agents,
        AgentKind::Cli(_) | AgentKind::Remote(_) => &[],
    }
}

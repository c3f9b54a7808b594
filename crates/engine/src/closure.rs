//! Everything a task may need of its definitions, frozen when the task is created.
//!
//! A task goes on with what it began with, whatever becomes of the files. The canonical form of
//! each definition is in the store by its digest, and the task names the digests. What an agent
//! needs includes the agents that it hands work to, and theirs in turn; what a workflow needs, the
//! agents and workflows of its nodes.

mod cast;
mod flow;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use polity_definition::{AgentDefinition, AgentKind, Home, LlmAgent, ScriptDefinition};
use polity_model::digest::Digest;
use polity_model::event::{Pin, PinKind};
use polity_model::name::Name;
use polity_store::{PinnedDefinition, Store, StoreError};

pub use cast::Cast;
pub use flow::FlowClosure;

/// An agent with everything it needs.
#[derive(Debug, Clone)]
pub struct Closure {
    /// The agent that was asked for.
    pub agent: Arc<AgentDefinition>,
    /// The rules of its model, if that is a scripted one.
    pub script: Option<Arc<ScriptDefinition>>,
    /// The agents that it may hand work to, and those that they may, with what they need.
    pub cast: Arc<Cast>,
    pinned: Arc<OnceLock<Pinned>>,
}

/// What a task names, and what the store keeps.
#[derive(Debug)]
pub struct Pinned {
    /// What the task names.
    pub pins: Vec<Pin>,
    /// What the store keeps.
    pub definitions: Vec<PinnedDefinition>,
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
    /// The agent or workflow is not among the pinned definitions.
    #[error("the task did not pin {0}")]
    NoAssignee(Name),
    /// The workflow has no nodes.
    #[error("the pinned workflow {0} has no nodes")]
    NothingToDo(Name),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who does a task, with everything that is needed for it.
#[derive(Debug, Clone)]
pub enum Assignee {
    /// An agent.
    Agent(Closure),
    /// A workflow.
    Workflow(FlowClosure),
}

/// Something that an agent or a workflow needs is not there, or not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is.
    pub kind: PinKind,
    /// Its name.
    pub name: Name,
    /// The agent or workflow that needs it.
    pub needed_by: Name,
}

impl From<Closure> for Assignee {
    fn from(closure: Closure) -> Self {
        Self::Agent(closure)
    }
}

impl From<FlowClosure> for Assignee {
    fn from(flow: FlowClosure) -> Self {
        Self::Workflow(flow)
    }
}

impl Assignee {
    /// What a task pinned, from the store.
    pub fn load(store: &dyn Store, name: &Name, pins: &[Pin]) -> Result<Self, ClosureError> {
        let cast = Arc::new(Cast::load(store, pins)?);
        Self::within(name, &cast)?.ok_or_else(|| ClosureError::NoAssignee(name.clone()))
    }

    /// The agent or workflow of that name.
    pub(crate) fn within(name: &Name, cast: &Arc<Cast>) -> Result<Option<Self>, ClosureError> {
        if let Some(agent) = cast.agents.get(name) {
            return Ok(Some(Self::Agent(Closure::within(Arc::clone(agent), cast))));
        }
        let Some(workflow) = cast.workflows.get(name) else { return Ok(None) };
        let flow = FlowClosure::within(Arc::clone(workflow), cast);
        let flow = flow.ok_or_else(|| ClosureError::NothingToDo(name.clone()))?;
        Ok(Some(Self::Workflow(flow)))
    }

    /// The name of the agent or workflow.
    pub fn name(&self) -> &Name {
        match self {
            Self::Agent(closure) => &closure.agent.name,
            Self::Workflow(flow) => &flow.workflow.name,
        }
    }

    /// The agent, if one does the task.
    pub fn agent(&self) -> Option<&AgentDefinition> {
        match self {
            Self::Agent(closure) => Some(&closure.agent),
            Self::Workflow(_) => None,
        }
    }

    /// The agent's model, if it is an agent that has one.
    pub fn llm(&self) -> Option<&LlmAgent> {
        match self {
            Self::Agent(closure) => closure.llm(),
            Self::Workflow(_) => None,
        }
    }

    /// Every agent that may come to work for the task, each once.
    pub fn everyone(&self) -> Vec<Closure> {
        match self {
            Self::Agent(closure) => closure.everyone(),
            Self::Workflow(flow) => flow.everyone(),
        }
    }

    /// What a task names of it, and what the store keeps. It is worked out once.
    pub fn pinned(&self) -> &Pinned {
        let pinned = match self {
            Self::Agent(closure) => &closure.pinned,
            Self::Workflow(flow) => &flow.pinned,
        };
        pinned.get_or_init(|| self.pin())
    }

    fn pin(&self) -> Pinned {
        let mut pins = Vec::new();
        let mut definitions = Vec::new();
        let mut add = |kind, name: &Name, json: String| {
            let digest = Digest::of(json.as_bytes());
            pins.push(Pin { kind, name: name.clone(), digest });
            definitions.push(PinnedDefinition { digest, json: json.into() });
        };
        if let Self::Workflow(flow) = self {
            for workflow in flow.workflows() {
                let workflow = workflow.written_out();
                add(PinKind::Workflow, &workflow.name, workflow.canonical_json());
            }
        }
        let mut scripts = BTreeSet::new();
        for closure in self.everyone() {
            let agent = &*closure.agent;
            add(PinKind::Agent, &agent.name, agent.canonical_json());
            if let Some(script) =
                closure.script.filter(|script| scripts.insert(script.name.clone()))
            {
                add(PinKind::Script, &script.name, script.canonical_json());
            }
        }
        Pinned { pins, definitions }
    }

    /// The longest way on which work may be handed on. Definitions refuse circles, so there is one.
    pub fn longest_chain(&self) -> Vec<Name> {
        match self {
            Self::Agent(closure) => closure.longest_chain(),
            Self::Workflow(flow) => flow.longest_chain(),
        }
    }
}

impl Closure {
    /// What this agent needs, from the home as it is now.
    pub fn of(home: &Home, agent: Arc<AgentDefinition>) -> Result<Self, Missing> {
        let mut cast = Cast::default();
        cast.add_agent(home, Arc::clone(&agent))?;
        Ok(Self::within(agent, &Arc::new(cast)))
    }

    /// An agent that hands work to no one.
    pub fn alone(agent: Arc<AgentDefinition>, script: Option<Arc<ScriptDefinition>>) -> Self {
        Self { agent, script, cast: Arc::default(), pinned: Arc::default() }
    }

    pub(crate) fn within(agent: Arc<AgentDefinition>, cast: &Arc<Cast>) -> Self {
        let script = script_of(&agent).and_then(|name| cast.scripts.get(name)).cloned();
        Self { agent, script, cast: Arc::clone(cast), pinned: Arc::default() }
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

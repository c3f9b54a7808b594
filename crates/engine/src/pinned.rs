//! The definitions of a task, pinned when it is created.
//!
//! A task keeps the definitions it was created with, even if their files change. The store holds
//! the canonical form of each definition by digest, and the task lists the digests. An agent pins
//! its sub-agents and theirs; a workflow pins the agents, workflows and scripts of its nodes.

mod participants;
mod workflow;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use polity_definition::{
    AgentDefinition, AgentKind, Home, LlmAgent, ScriptDefinition, ScriptSource,
};
use polity_model::digest::Digest;
use polity_model::event::{DefinitionPin, PinKind};
use polity_model::name::Name;
use polity_store::{PinnedDefinition, Store, StoreError};

pub use participants::TaskParticipants;
pub use workflow::PinnedWorkflow;

/// An agent with every definition it needs.
#[derive(Debug, Clone)]
pub struct PinnedAgent {
    /// The agent.
    pub agent: Arc<AgentDefinition>,
    /// The script of its model, if the model is scripted.
    pub script: Option<Arc<ScriptDefinition>>,
    /// The script that it runs, if it performs a script node of a workflow.
    pub step: Option<Arc<ScriptSource>>,
    /// Its sub-agents, directly or through others, with their definitions.
    pub participants: Arc<TaskParticipants>,
    pin_set: Arc<OnceLock<PinSet>>,
}

/// The pins of a task and the definitions they refer to.
#[derive(Debug)]
pub struct PinSet {
    /// The pins listed in the task.
    pub pins: Vec<DefinitionPin>,
    /// The definitions kept by the store.
    pub definitions: Vec<PinnedDefinition>,
}

/// A failure to load the pinned definitions of a task.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PinnedError {
    /// The store does not have a pinned definition.
    #[error("the definition of {kind:?} {name} that the task pinned is not in the store")]
    Lost {
        /// The kind of definition.
        kind: PinKind,
        /// Its name.
        name: Name,
    },
    /// A stored definition cannot be decoded.
    #[error("the pinned definition of {name} cannot be read: {problem}")]
    Unreadable {
        /// Its name.
        name: Name,
        /// The first problem.
        problem: String,
    },
    /// The agent or workflow is not pinned.
    #[error("the task did not pin {0}")]
    NoAssignee(Name),
    /// The workflow has no nodes.
    #[error("the pinned workflow {0} has no nodes")]
    NothingToDo(Name),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The agent or workflow of a task, with every definition it needs.
#[derive(Debug, Clone)]
pub enum Assignee {
    /// An agent.
    Agent(PinnedAgent),
    /// A workflow.
    Workflow(PinnedWorkflow),
}

/// A definition that an agent or workflow needs is missing or invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDefinition {
    /// The kind of definition.
    pub kind: PinKind,
    /// Its name.
    pub name: Name,
    /// The agent or workflow that needs it.
    pub needed_by: Name,
}

impl From<PinnedAgent> for Assignee {
    fn from(pinned: PinnedAgent) -> Self {
        Self::Agent(pinned)
    }
}

impl From<PinnedWorkflow> for Assignee {
    fn from(flow: PinnedWorkflow) -> Self {
        Self::Workflow(flow)
    }
}

impl Assignee {
    /// Loads the definitions that a task pinned.
    pub async fn load(
        store: &dyn Store,
        name: &Name,
        pins: &[DefinitionPin],
    ) -> Result<Self, PinnedError> {
        let participants = Arc::new(TaskParticipants::load(store, pins).await?);
        Self::within(name, &participants)?.ok_or_else(|| PinnedError::NoAssignee(name.clone()))
    }

    /// Looks up an agent or workflow among the participants.
    pub(crate) fn within(
        name: &Name,
        participants: &Arc<TaskParticipants>,
    ) -> Result<Option<Self>, PinnedError> {
        if let Some(agent) = participants.agents.get(name) {
            return Ok(Some(Self::Agent(PinnedAgent::within(Arc::clone(agent), participants))));
        }
        let Some(workflow) = participants.workflows.get(name) else { return Ok(None) };
        let flow = PinnedWorkflow::within(Arc::clone(workflow), participants);
        let flow = flow.ok_or_else(|| PinnedError::NothingToDo(name.clone()))?;
        Ok(Some(Self::Workflow(flow)))
    }

    /// The name of the agent or workflow.
    pub fn name(&self) -> &Name {
        match self {
            Self::Agent(pinned) => &pinned.agent.name,
            Self::Workflow(flow) => &flow.workflow.name,
        }
    }

    /// The agent, if the assignee is one.
    pub fn agent(&self) -> Option<&AgentDefinition> {
        match self {
            Self::Agent(pinned) => Some(&pinned.agent),
            Self::Workflow(_) => None,
        }
    }

    /// The model configuration, if the assignee is an LLM agent.
    pub fn llm(&self) -> Option<&LlmAgent> {
        match self {
            Self::Agent(pinned) => pinned.llm(),
            Self::Workflow(_) => None,
        }
    }

    /// Every agent that may work for the task, each once, also those that run scripts.
    pub fn everyone(&self) -> Vec<PinnedAgent> {
        match self {
            Self::Agent(pinned) => pinned.everyone(),
            Self::Workflow(flow) => {
                let mut everyone = flow.everyone();
                everyone.extend(flow.script_agents());
                everyone
            }
        }
    }

    /// The pins and definitions, computed once.
    pub fn pin_set(&self) -> &PinSet {
        let pin_set = match self {
            Self::Agent(pinned) => &pinned.pin_set,
            Self::Workflow(flow) => &flow.pin_set,
        };
        pin_set.get_or_init(|| self.pin())
    }

    fn pin(&self) -> PinSet {
        let mut pins = Vec::new();
        let mut definitions = Vec::new();
        let mut add = |kind, name: &Name, json: String| {
            let digest = Digest::of(json.as_bytes());
            pins.push(DefinitionPin { kind, name: name.clone(), digest });
            definitions.push(PinnedDefinition { digest, json: json.into() });
        };
        if let Self::Workflow(flow) = self {
            for workflow in flow.workflows() {
                let workflow = workflow.written_out();
                add(PinKind::Workflow, &workflow.name, workflow.canonical_json());
            }
        }
        // The agent of a script follows from its node, so only the task that runs it pins it.
        let (agents, script_agents) = match self {
            Self::Agent(pinned) => (pinned.everyone(), vec![pinned.clone()]),
            Self::Workflow(flow) => (flow.everyone(), flow.script_agents()),
        };
        let mut steps = BTreeSet::new();
        for pinned in script_agents {
            if let Some(step) = pinned.step.filter(|step| steps.insert(step.file.clone())) {
                add(PinKind::Step, &pinned.agent.name, step.canonical_json());
            }
        }
        let mut scripts = BTreeSet::new();
        for pinned in agents {
            let agent = &*pinned.agent;
            add(PinKind::Agent, &agent.name, agent.canonical_json());
            if let Some(script) = pinned.script.filter(|script| scripts.insert(script.name.clone()))
            {
                add(PinKind::Script, &script.name, script.canonical_json());
            }
        }
        PinSet { pins, definitions }
    }

    /// The assignee with another time limit for its model calls or runs, if one is given. The limits
    /// of a workflow's nodes are in its state.
    pub(crate) fn with_timeout(self, seconds: Option<NonZeroU64>) -> Self {
        let (Self::Agent(pinned), Some(seconds)) = (&self, seconds) else { return self };
        // The pins are those of the definition as it is written.
        self.pin_set();
        let mut agent = AgentDefinition::clone(&pinned.agent);
        match &mut agent.kind {
            AgentKind::Llm(llm) => {
                let config = &mut llm.llm_config;
                config.timeout_seconds = seconds;
                config.total_timeout_seconds = config.total_timeout_seconds.max(seconds);
            }
            AgentKind::Cli(cli) => cli.timeout_seconds = seconds,
            // A remote agent has no time limit of its own.
            AgentKind::Remote(_) => return self,
        }
        Self::Agent(PinnedAgent { agent: Arc::new(agent), ..pinned.clone() })
    }

    /// The longest chain of sub-agents. Definitions forbid cycles, so it is finite.
    pub fn longest_chain(&self) -> Vec<Name> {
        match self {
            Self::Agent(pinned) => pinned.longest_chain(),
            Self::Workflow(flow) => flow.longest_chain(),
        }
    }
}

impl PinnedAgent {
    /// Collects the definitions of an agent from the home.
    pub fn of(home: &Home, agent: Arc<AgentDefinition>) -> Result<Self, MissingDefinition> {
        let mut participants = TaskParticipants::default();
        participants.add_agent(home, Arc::clone(&agent))?;
        Ok(Self::within(agent, &Arc::new(participants)))
    }

    /// An agent without sub-agents.
    pub fn alone(agent: Arc<AgentDefinition>, script: Option<Arc<ScriptDefinition>>) -> Self {
        Self { agent, script, step: None, participants: Arc::default(), pin_set: Arc::default() }
    }

    pub(crate) fn within(
        agent: Arc<AgentDefinition>,
        participants: &Arc<TaskParticipants>,
    ) -> Self {
        let script = script_of(&agent).and_then(|name| participants.scripts.get(name)).cloned();
        let file = agent.program().and_then(|cli| cli.script.as_ref()?.file());
        let step = file.and_then(|file| participants.steps.get(file)).cloned();
        let participants = Arc::clone(participants);
        Self { agent, script, step, participants, pin_set: Arc::default() }
    }

    /// The agent's model configuration, if it is an LLM agent.
    pub fn llm(&self) -> Option<&LlmAgent> {
        match &self.agent.kind {
            AgentKind::Llm(llm) => Some(llm),
            AgentKind::Cli(_) | AgentKind::Remote(_) => None,
        }
    }

    /// Returns one of its own sub-agents with every definition that one needs.
    pub fn sub_agent(&self, name: &Name) -> Option<Self> {
        let is_named = sub_agents_of(&self.agent).contains(name);
        let agent = self.participants.agents.get(name).filter(|_| is_named)?;
        Some(Self::within(Arc::clone(agent), &self.participants))
    }

    /// Its own sub-agents, in file order.
    pub fn sub_agents(&self) -> impl Iterator<Item = Self> + '_ {
        sub_agents_of(&self.agent).iter().filter_map(|name| self.sub_agent(name))
    }

    /// The agent and all its sub-agents, directly or through others, each once, itself first.
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

    /// The longest chain of sub-agents from this agent. Definitions forbid cycles, so it is finite.
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
        // Guards against a cycle: an agent that is still being visited ends the chain.
        known.insert(agent.name.clone(), vec![agent.name.clone()]);
        let below = sub_agents_of(agent)
            .iter()
            .filter_map(|name| self.participants.agents.get(name))
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

//! What an agent carries through a run: everything about it that changes.

use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_model::ids::TaskId;
use polity_model::message::{Message, MessageHistory};
use polity_model::state::State;
use polity_model::usage::Usage;
use serde_json::{Map, Value};

/// The runtime side of an agent. It shares the frozen definition and grows in place.
#[derive(Debug, Clone)]
pub struct AgentContext {
    /// Who the agent is. Shared, never changed.
    pub agent: Arc<AgentDefinition>,
    /// What has been said so far.
    pub conversation: MessageHistory,
    /// What the agent keeps in mind besides the conversation; it begins with the parameters.
    pub working_memory: Map<String, Value>,
    /// The sum of what its model calls used.
    pub usage: Usage,
    /// The task it is working on, if any.
    pub current_task: Option<TaskId>,
}

impl AgentContext {
    /// An agent with nothing on its mind.
    pub fn new(agent: Arc<AgentDefinition>) -> Self {
        Self {
            agent,
            conversation: MessageHistory::default(),
            working_memory: Map::new(),
            usage: Usage::default(),
            current_task: None,
        }
    }

    /// Adds one message to the conversation.
    pub fn say(&mut self, message: Message) {
        self.conversation.push(message);
    }

    /// Adds what one model call used.
    pub fn charge(&mut self, used: Usage) {
        self.usage += used;
    }

    /// The State at this moment, copied out to be stored or shown.
    pub fn state(&self) -> State {
        State {
            messages: self.conversation.clone(),
            next_action: None,
            current_agent: self.agent.name.clone(),
            routing_key: None,
            metadata: self.working_memory.clone(),
        }
    }
}

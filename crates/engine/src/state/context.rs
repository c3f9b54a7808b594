//! The changing part of an agent during a run.

use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_model::ids::TaskId;
use polity_model::message::{Message, MessageHistory};
use polity_model::state::State;
use polity_model::usage::Usage;
use serde_json::{Map, Value};

/// An agent's run: the shared definition and the conversation.
#[derive(Debug, Clone)]
pub struct AgentContext {
    /// The definition.
    pub agent: Arc<AgentDefinition>,
    /// The conversation so far.
    pub conversation: MessageHistory,
    /// Values besides the conversation, initialized with the task's parameters.
    pub working_memory: Map<String, Value>,
    /// The total usage of its model calls.
    pub usage: Usage,
    /// The current task, if any.
    pub current_task: Option<TaskId>,
}

impl AgentContext {
    /// An agent with an empty conversation.
    pub fn new(agent: Arc<AgentDefinition>) -> Self {
        Self {
            agent,
            conversation: MessageHistory::default(),
            working_memory: Map::new(),
            usage: Usage::default(),
            current_task: None,
        }
    }

    /// Adds a message to the conversation.
    pub fn say(&mut self, message: Message) {
        self.conversation.push(message);
    }

    /// Adds the usage of a model call.
    pub fn charge(&mut self, used: Usage) {
        self.usage += used;
    }

    /// The current State, copied to be stored or shown.
    pub fn state(&self) -> State {
        State {
            messages: self.conversation.clone(),
            next_action: None,
            current_agent: self.agent.name.clone(),
            routing_key: None,
            metadata: self.working_memory.clone(),
            error: None,
        }
    }
}

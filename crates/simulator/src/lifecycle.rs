//! Requests to change the population, and what is said about them.
//!
//! A request is never an error to whoever makes it: it is looked at, and there is an answer. What
//! is wrong with it is the reason in that answer.

mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::rules::{Change, Ruling, Stage, number_of_turns};

/// What can be done to a population.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A new agent comes in.
    AddAgent,
    /// An agent goes for good.
    RemoveAgent,
    /// An agent does nothing for a while and keeps all that it has.
    PauseAgent,
    /// An agent that was paused goes on.
    ResumeAgent,
}

impl Operation {
    /// The operation as files name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddAgent => "add_agent",
            Self::RemoveAgent => "remove_agent",
            Self::PauseAgent => "pause_agent",
            Self::ResumeAgent => "resume_agent",
        }
    }
}

/// A request to change the population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LifecycleAction {
    /// What is to be done.
    pub operation: Operation,
    /// Whom it is done to; for a new agent, the name that is wanted for it.
    pub target_agent_name: String,
    /// The agent that asks for it; none when it comes from outside.
    #[serde(default)]
    pub initiating_agent: Option<String>,
    /// How a new agent begins: values of its fields, and `state`.
    #[serde(default)]
    pub initial_state: Option<Map<String, Value>>,
    /// For how many turns an agent is paused; until it is resumed, if none.
    #[serde(default)]
    pub auto_resume_turns: Option<i64>,
}

impl LifecycleAction {
    /// A request from outside, with nothing but its target.
    pub fn new(operation: Operation, target_agent_name: impl Into<String>) -> Self {
        Self {
            operation,
            target_agent_name: target_agent_name.into(),
            initiating_agent: None,
            initial_state: None,
            auto_resume_turns: None,
        }
    }
}

/// Something that was done to the population.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What.
    pub operation: Operation,
    /// To whom, by the name that it has.
    pub name: String,
    /// The name that was wanted for a new agent, where that was taken.
    pub instead_of: Option<String>,
    /// Who asked for it.
    pub asked_by: AskedBy,
}

/// Who asks for something to be done to the population.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedBy {
    /// An agent, by its action.
    Agent(String),
    /// The scenario.
    Scenario,
    /// Someone from outside.
    Outside,
    /// No one: a pause is over.
    Time,
}

/// What is said about a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationResult {
    /// Whether it can be done.
    pub valid: bool,
    /// Why it cannot.
    pub reason: Option<String>,
    /// What is worth knowing even though it can.
    pub warnings: Vec<String>,
}

impl ValidationResult {
    fn refused(reason: impl Into<String>) -> Self {
        Self { valid: false, reason: Some(reason.into()), warnings: Vec::new() }
    }
}

/// What is said about a request, and the agent that it is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opinion {
    /// Whether it can be done.
    #[serde(flatten)]
    pub result: ValidationResult,
    /// The agent, by the name that it has or gets.
    pub name: Option<String>,
}

impl Opinion {
    /// That it cannot be done.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self { result: ValidationResult::refused(reason), name: None }
    }
}

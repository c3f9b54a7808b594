//! Lifecycle requests: changes of the population, and their verdicts.
//!
//! An invalid request is not an error. It gets an answer with the reason.

mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::rules::{PopulationChange, PopulationDraft, RequestRuling, number_of_turns};

/// An operation on the population.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Operation")]
pub enum LifecycleOperation {
    /// Adds an agent.
    AddAgent,
    /// Removes an agent for good.
    RemoveAgent,
    /// Pauses an agent, which keeps its state.
    PauseAgent,
    /// Resumes a paused agent.
    ResumeAgent,
}

impl LifecycleOperation {
    /// Returns the serialized name.
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
    /// The operation.
    pub operation: LifecycleOperation,
    /// The target; for a new agent, the requested name.
    pub target_agent_name: String,
    /// The requesting agent; none for requests from outside.
    #[serde(default)]
    pub initiating_agent: Option<String>,
    /// The initial state of a new agent: values of its fields, and `state`.
    #[serde(default)]
    pub initial_state: Option<Map<String, Value>>,
    /// The number of turns of a pause; by default until resumed.
    #[serde(default)]
    pub auto_resume_turns: Option<i64>,
}

impl LifecycleAction {
    /// Creates a request from outside.
    pub fn new(operation: LifecycleOperation, target_agent_name: impl Into<String>) -> Self {
        Self {
            operation,
            target_agent_name: target_agent_name.into(),
            initiating_agent: None,
            initial_state: None,
            auto_resume_turns: None,
        }
    }
}

/// A change of the population.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleEvent {
    /// The operation.
    pub operation: LifecycleOperation,
    /// The name of the agent.
    pub name: String,
    /// The requested name of a new agent, if that was taken.
    pub instead_of: Option<String>,
    /// The source of the request.
    pub asked_by: RequestSource,
}

/// The source of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSource {
    /// An action of this agent.
    Agent(String),
    /// The scenario.
    Scenario,
    /// A request from outside.
    Outside,
    /// The end of a pause.
    PauseEnded,
}

/// The validation of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationResult {
    /// True if the request is valid.
    pub valid: bool,
    /// The reason if it is not.
    pub reason: Option<String>,
    /// Warnings about a valid request.
    pub warnings: Vec<String>,
}

impl ValidationResult {
    fn refused(reason: impl Into<String>) -> Self {
        Self { valid: false, reason: Some(reason.into()), warnings: Vec::new() }
    }
}

/// The verdict on a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestVerdict {
    /// The validation.
    #[serde(flatten)]
    pub result: ValidationResult,
    /// The name of the agent.
    pub name: Option<String>,
}

impl RequestVerdict {
    /// Creates a refusal.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self { result: ValidationResult::refused(reason), name: None }
    }
}

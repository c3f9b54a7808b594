//! Span attributes of a task's agent or workflow.

use opentelemetry::KeyValue;
use polity_definition::{AgentDefinition, AgentKind, LlmConfig};
use polity_drivers::http::Url;
use polity_model::digest::Digest;
use polity_model::event::{DefinitionPin, PinKind, TaskCreated};
use polity_store::Store;

use super::convention;
use super::span::SpanOperation;

/// The agent or workflow of a task, as far as its spans show it.
#[derive(Debug, Clone)]
pub(super) enum AssigneeAttributes {
    /// An agent with a model.
    Model(ModelAttributes),
    /// An agent on another server.
    Remote(Option<Url>),
    /// A workflow.
    Workflow,
    /// A CLI agent, or an agent whose definition cannot be read: a span without attributes is
    /// better than none.
    Other,
}

impl AssigneeAttributes {
    /// Reads the definition that the task pinned.
    pub(super) async fn of(created: &TaskCreated, store: &dyn Store) -> Self {
        let mut pins = created.pins.iter().filter(|pin| pin.name == created.assigned_agent);
        // A script may have the name of its agent.
        let is_assignee = |pin: &&DefinitionPin| match pin.kind {
            PinKind::Agent | PinKind::Workflow => true,
            PinKind::Script | PinKind::Step => false,
        };
        match pins.find(is_assignee).map(|pin| (pin.kind, pin.digest)) {
            Some((PinKind::Agent, digest)) => Self::of_agent(&digest, store).await,
            Some((PinKind::Workflow, _)) => Self::Workflow,
            Some((PinKind::Script | PinKind::Step, _)) | None => Self::Other,
        }
    }

    async fn of_agent(digest: &Digest, store: &dyn Store) -> Self {
        let Ok(Some(json)) = store.definition(digest).await else { return Self::Other };
        match AgentDefinition::from_canonical(&json).map(|agent| agent.kind) {
            Ok(AgentKind::Llm(llm)) => {
                Self::Model(ModelAttributes::new(&llm.llm_config, llm.temperature.get()))
            }
            Ok(AgentKind::Remote(remote)) => {
                Self::Remote(Url::parse(remote.card_url.as_str()).ok())
            }
            Ok(AgentKind::Cli(_)) | Err(_) => Self::Other,
        }
    }

    /// The operation of a work period.
    pub(super) fn operation(&self) -> SpanOperation {
        match self {
            Self::Remote(_) => SpanOperation::InvokeRemoteAgent,
            Self::Workflow => SpanOperation::InvokeWorkflow,
            Self::Model(_) | Self::Other => SpanOperation::InvokeAgent,
        }
    }

    /// The attribute that has the name of the agent or workflow.
    pub(super) fn name_attribute(&self) -> &'static str {
        match self {
            Self::Workflow => convention::WORKFLOW_NAME,
            Self::Model(_) | Self::Remote(_) | Self::Other => convention::AGENT_NAME,
        }
    }

    /// The model, if the agent has one.
    pub(super) fn model(&self) -> Option<&ModelAttributes> {
        match self {
            Self::Model(model) => Some(model),
            Self::Remote(_) | Self::Workflow | Self::Other => None,
        }
    }

    /// The attributes of every span.
    pub(super) fn attributes(&self) -> Vec<KeyValue> {
        match self {
            Self::Model(model) => model.attributes(),
            Self::Remote(server) => server_attributes(server.as_ref()),
            Self::Workflow | Self::Other => Vec::new(),
        }
    }
}

/// The address of a server.
fn server_attributes(server: Option<&Url>) -> Vec<KeyValue> {
    let Some(server) = server else { return Vec::new() };
    let host = server.host_str().unwrap_or_default().to_owned();
    let port = server.port_or_known_default().map(i64::from);
    let port = port.map(|port| KeyValue::new(convention::SERVER_PORT, port));
    std::iter::once(KeyValue::new(convention::SERVER_ADDRESS, host)).chain(port).collect()
}

/// The model of an agent, from the definition that the task pinned.
#[derive(Debug, Clone)]
pub(super) struct ModelAttributes {
    provider: &'static str,
    /// The model's identifier; for a scripted one the script, which is all the model there is.
    pub(super) name: Option<String>,
    temperature: f64,
    server: Option<Url>,
}

impl ModelAttributes {
    fn new(config: &LlmConfig, temperature: f64) -> Self {
        let model = config.model.as_ref().map(ToString::to_string);
        let script = || config.script.as_ref().map(ToString::to_string);
        let endpoint = config.endpoint.as_ref().map(ToString::to_string);
        Self {
            provider: convention::provider_name(config.provider),
            name: model.or_else(script),
            temperature,
            server: endpoint.and_then(|endpoint| Url::parse(&endpoint).ok()),
        }
    }

    /// The attributes of every span of the agent.
    fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new(convention::PROVIDER_NAME, self.provider)];
        let name = self.name.clone();
        attributes.extend(name.map(|name| KeyValue::new(convention::REQUEST_MODEL, name)));
        attributes
    }

    /// The additional attributes of a model call.
    pub(super) fn call_attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new(convention::REQUEST_TEMPERATURE, self.temperature)];
        attributes.extend(server_attributes(self.server.as_ref()));
        attributes
    }
}

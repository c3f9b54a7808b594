//! Span attributes of an agent's model.

use opentelemetry::KeyValue;
use polity_definition::{AgentDefinition, AgentKind, LlmConfig};
use polity_drivers::http::Url;
use polity_model::event::{PinKind, TaskCreated};
use polity_store::Store;

use super::convention;

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
    /// Nothing, where the agent has no model or its definition cannot be read: a span without these
    /// is better than none.
    pub(super) async fn of(created: &TaskCreated, store: &dyn Store) -> Option<Self> {
        let pin = created
            .pins
            .iter()
            .find(|pin| pin.kind == PinKind::Agent && pin.name == created.assigned_agent)?;
        let json = store.definition(&pin.digest).await.ok()??;
        match AgentDefinition::from_canonical(&json).ok()?.kind {
            AgentKind::Llm(llm) => Some(Self::from_config(&llm.llm_config, llm.temperature.get())),
            AgentKind::Cli(_) | AgentKind::Remote(_) => None,
        }
    }

    fn from_config(config: &LlmConfig, temperature: f64) -> Self {
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
    pub(super) fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new(convention::PROVIDER_NAME, self.provider)];
        let name = self.name.clone();
        attributes.extend(name.map(|name| KeyValue::new(convention::REQUEST_MODEL, name)));
        attributes
    }

    /// The additional attributes of a model call.
    pub(super) fn call_attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new(convention::REQUEST_TEMPERATURE, self.temperature)];
        if let Some(server) = &self.server {
            let host = server.host_str().unwrap_or_default().to_owned();
            attributes.push(KeyValue::new(convention::SERVER_ADDRESS, host));
            let port = server.port_or_known_default().map(i64::from);
            attributes.extend(port.map(|port| KeyValue::new(convention::SERVER_PORT, port)));
        }
        attributes
    }
}

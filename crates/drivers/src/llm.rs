//! The model driver: calls language models by provider.
//!
//! `scripted` answers from a file. All others are called over HTTP: `endpoint` resolves URL and key,
//! `client` makes the call, `format` encodes requests and decodes streams for each provider, and
//! `error` classifies failures. `reachability` asks a server for its models, which costs nothing.

mod client;
mod endpoint;
mod error;
mod format;
mod http;
mod price;
mod reachability;
mod scripted;

use polity_definition::{LlmAgent, LlmConfig, ScriptDefinition, TokenPrice};
use polity_engine::driver::{
    BoxFuture, ModelDriver, ModelFailure, ModelReply, ModelRequest, NotReady,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::{AttemptFailure, ErrorCategory};

use crate::environment::EnvSource;
use crate::keys;

pub use endpoint::key_variables;
pub use reachability::ModelReach;

use client::HttpModelClient;
use endpoint::ModelEndpoint;
use price::{PriceTable, TokenEstimate};

/// Calls the models of all supported providers.
#[derive(Debug)]
pub struct LanguageModels {
    environment: EnvSource,
    client: HttpModelClient,
    prices: PriceTable,
}

impl LanguageModels {
    /// Creates a driver that takes API keys from this environment and connects on the first call.
    pub fn new(environment: EnvSource) -> Self {
        Self { environment, client: HttpModelClient::default(), prices: PriceTable::default() }
    }
}

/// The base address that calls of a model go to; none for a scripted model.
pub fn base_address(config: &LlmConfig) -> Option<&str> {
    config.endpoint.as_ref().map(AsRef::as_ref).or_else(|| endpoint::usual_address(config.provider))
}

/// The backend that answers an agent's calls.
enum ModelBackend<'a> {
    Scripted(&'a ScriptDefinition),
    Http(ModelEndpoint<'a>),
}

impl LanguageModels {
    fn backend<'a>(
        &self,
        llm: &'a LlmAgent,
        pinned: &'a PinnedAgent,
    ) -> Result<ModelBackend<'a>, NotReady> {
        if let Some(endpoint) = ModelEndpoint::resolve(llm, &self.environment)? {
            return Ok(ModelBackend::Http(endpoint));
        }
        match &pinned.script {
            Some(script) => Ok(ModelBackend::Scripted(script)),
            None => Err(NotReady {
                message: format!("the script of agent \"{}\" is missing", pinned.agent.name),
                hint: "put it into scripts/ and run `polity check`".into(),
            }),
        }
    }
}

impl LanguageModels {
    /// Adds the cost of what a failed call has used.
    fn priced(
        &self,
        (mut failure, estimate): (ModelFailure, TokenEstimate),
        config: &LlmConfig,
    ) -> ModelFailure {
        if !failure.usage.is_zero() {
            self.prices.apply(config, &mut failure.usage, estimate);
        }
        failure
    }
}

impl ModelDriver for LanguageModels {
    fn ready(&self, pinned: &PinnedAgent) -> Result<(), NotReady> {
        match pinned.llm() {
            Some(llm) => self.backend(llm, pinned).map(|_| ()),
            None => Ok(()),
        }
    }

    fn price(&self, pinned: &PinnedAgent) -> Option<TokenPrice> {
        pinned.llm().map_or(Some(TokenPrice::FREE), |llm| price::price_for(&llm.llm_config))
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            let Some(llm) = request.pinned.llm() else {
                return Err(refused("the agent has no model".into()));
            };
            let backend = self.backend(llm, request.pinned).map_err(|not_ready| {
                refused(format!("{}; {}", not_ready.message, not_ready.hint))
            })?;
            let (mut reply, estimate) = match backend {
                ModelBackend::Scripted(script) => {
                    (scripted::call(script, request).await?, TokenEstimate::default())
                }
                ModelBackend::Http(endpoint) => {
                    let called = self.client.call(&endpoint, llm, request, &self.environment).await;
                    called.map_err(|failure| self.priced(failure, &llm.llm_config))?
                }
            };
            self.prices.apply(&llm.llm_config, &mut reply.usage, estimate);
            Ok(reply)
        })
    }
}

/// The API keys that the environment holds for an agent's provider.
pub(crate) fn api_keys(llm: &LlmAgent, environment: &EnvSource) -> Vec<String> {
    endpoint::key_variables(&llm.llm_config)
        .into_iter()
        // An unusable key is never sent.
        .filter_map(|variable| keys::load_key(environment, variable).ok().flatten())
        .map(|key| key.expose().to_owned())
        .collect()
}

fn refused(message: String) -> ModelFailure {
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message };
    ModelFailure::new(failure)
}

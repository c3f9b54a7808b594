//! Language models, by provider.
//!
//! `scripted` answers from a file. All others are called over HTTP: `target` knows whom, `call`
//! makes the call, `openai`, `anthropic` and `gemini` know what is said, and `failure` knows what
//! went wrong.

mod anthropic;
mod call;
mod failure;
mod gemini;
mod http;
mod names;
mod openai;
mod price;
mod scripted;
mod target;
mod turns;
mod wire;

use polity_definition::{LlmAgent, ScriptDefinition, TokenPrice};
use polity_engine::driver::{BoxFuture, ModelFailure, ModelReply, ModelRequest, Models, NotReady};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::{AttemptFailure, ErrorCategory};

use crate::environment::Environment;
use crate::keys;

use call::Line;
use price::Prices;
use target::Target;

/// Every provider that this program can call.
#[derive(Debug)]
pub struct LanguageModels {
    environment: Environment,
    line: Line,
    prices: Prices,
}

impl LanguageModels {
    /// Models whose keys are in this environment. Connections are set up when a call needs them.
    pub fn new(environment: Environment) -> Self {
        Self { environment, line: Line::default(), prices: Prices::default() }
    }
}

/// Who answers an agent's calls.
enum Model<'a> {
    Scripted(&'a ScriptDefinition),
    Remote(Target<'a>),
}

impl LanguageModels {
    fn model<'a>(&self, llm: &'a LlmAgent, pinned: &'a PinnedAgent) -> Result<Model<'a>, NotReady> {
        if let Some(target) = Target::of(llm, &self.environment)? {
            return Ok(Model::Remote(target));
        }
        match &pinned.script {
            Some(script) => Ok(Model::Scripted(script)),
            None => Err(NotReady {
                message: format!("the script of agent \"{}\" is missing", pinned.agent.name),
                hint: "put it into scripts/ and run `polity check`".into(),
            }),
        }
    }
}

impl Models for LanguageModels {
    fn ready(&self, pinned: &PinnedAgent) -> Result<(), NotReady> {
        match pinned.llm() {
            Some(llm) => self.model(llm, pinned).map(|_| ()),
            None => Ok(()),
        }
    }

    fn price(&self, pinned: &PinnedAgent) -> Option<TokenPrice> {
        pinned.llm().map_or(Some(TokenPrice::FREE), |llm| price::of(&llm.llm_config))
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            let Some(llm) = request.pinned.llm() else {
                return Err(refused("the agent has no model".into()));
            };
            let model = self.model(llm, request.pinned).map_err(|not_ready| {
                refused(format!("{}; {}", not_ready.message, not_ready.hint))
            })?;
            let mut reply = match model {
                Model::Scripted(script) => scripted::call(script, request).await?,
                Model::Remote(target) => {
                    self.line.call(&target, llm, request, &self.environment).await?
                }
            };
            self.prices.apply(&llm.llm_config, &mut reply.usage);
            Ok(reply)
        })
    }
}

/// The keys that an agent's calls may be made with, as far as they are set.
pub(crate) fn keys_of(llm: &LlmAgent, environment: &Environment) -> Vec<String> {
    target::key_variables(&llm.llm_config)
        .into_iter()
        // A key that cannot be used is sent to no one.
        .filter_map(|variable| keys::key(environment, variable).ok().flatten())
        .map(|key| key.expose().to_owned())
        .collect()
}

fn refused(message: String) -> ModelFailure {
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message };
    ModelFailure::new(failure)
}

//! Language models, by provider.

mod scripted;

use polity_engine::closure::Closure;
use polity_engine::driver::{BoxFuture, ModelFailure, ModelReply, ModelRequest, Models, NotReady};
use polity_model::definition::Provider;
use polity_model::failure::{ErrorCategory, Failure};

/// Every provider that this program can call.
#[derive(Debug, Clone, Copy, Default)]
pub struct LanguageModels;

impl Models for LanguageModels {
    fn ready(&self, closure: &Closure) -> Result<(), NotReady> {
        let Some(llm) = closure.llm() else { return Ok(()) };
        match llm.llm_config.provider {
            Provider::Scripted if closure.script.is_some() => Ok(()),
            Provider::Scripted => Err(NotReady {
                message: format!("the script of agent \"{}\" is missing", closure.agent.name),
                hint: "put it into scripts/ and run `polity check`".into(),
            }),
            provider @ (Provider::OpenAi
            | Provider::Anthropic
            | Provider::Gemini
            | Provider::Ollama
            | Provider::OpenAiCompatible) => Err(NotReady {
                message: format!(
                    "agent \"{}\" uses the provider {}, which this version cannot call yet",
                    closure.agent.name,
                    provider.as_str()
                ),
                hint: "use `provider: scripted` with a script".into(),
            }),
        }
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            match (self.ready(request.closure), &request.closure.script) {
                (Ok(()), Some(script)) => scripted::call(script, request).await,
                (Ok(()), None) => Err(refused("the agent has no model".into())),
                (Err(not_ready), _) => Err(refused(not_ready.message)),
            }
        })
    }
}

fn refused(message: String) -> ModelFailure {
    let failure = Failure { category: ErrorCategory::Permanent, message };
    ModelFailure::new(failure)
}

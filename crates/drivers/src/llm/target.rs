//! Whom a call goes to: the provider's address, the way it wants the key, and the key.

use std::fmt;

use polity_definition::{LlmAgent, LlmConfig, LlmProvider};
use polity_engine::driver::{AskedArguments, ModelFailure, NotReady};
use polity_model::failure::AttemptFailure;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::anthropic;
use super::failure::{Fault, Remedy};
use crate::environment::Environment;
use crate::http::shown_url;
use crate::keys::{self, Key, file_variable};
use crate::secrets::Secrets;

/// How a provider wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    OpenAi,
    Anthropic,
    Gemini,
}

/// Whom a call goes to.
pub(super) struct Target<'a> {
    pub(super) provider: LlmProvider,
    pub(super) wire: Wire,
    pub(super) model: &'a str,
    pub(super) url: Url,
    key: Option<HeldKey<'a>>,
}

struct HeldKey<'a> {
    key: Key,
    variable: &'a str,
}

impl<'a> Target<'a> {
    /// Finds out whom the agent's calls go to; nothing for a model that no one is called for.
    pub(super) fn of(
        llm: &'a LlmAgent,
        environment: &Environment,
    ) -> Result<Option<Self>, NotReady> {
        let config = &llm.llm_config;
        let Some(wire) = wire_of(config.provider) else { return Ok(None) };
        let model = config.model.as_ref().map(AsRef::as_ref).unwrap_or_default();
        let url = address(config, wire, model).map_err(|reason| NotReady {
            message: format!(
                "agent \"{}\" has an llm_config.endpoint that is no address: {reason}",
                llm.identity.name
            ),
            hint: "write it like http://127.0.0.1:8080/v1".into(),
        })?;
        let key = find_key(llm, environment)?;
        Ok(Some(Self { provider: config.provider, wire, model, url, key }))
    }

    /// The headers of a call.
    pub(super) fn headers(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        let (name, prefix) = match self.wire {
            Wire::OpenAi => (AUTHORIZATION, "Bearer "),
            Wire::Anthropic => (HeaderName::from_static("x-api-key"), ""),
            Wire::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
        };
        if let Some(held) = &self.key {
            let value = format!("{prefix}{}", held.key.expose());
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| Fault::lasting("the key cannot be sent".into()).remedy(Remedy::Key))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        match self.wire {
            Wire::Anthropic => {
                let version = HeaderValue::from_static(anthropic::VERSION);
                headers.insert(HeaderName::from_static("anthropic-version"), version);
            }
            Wire::OpenAi | Wire::Gemini => {}
        }
        Ok(headers)
    }

    /// What a model says, without the key: whoever stands in for a provider may repeat it.
    pub(super) fn without_key(&self, text: String) -> String {
        match &self.key {
            Some(held) if held.key.is_in(&text) => held.key.removed_from(&text),
            Some(_) | None => text,
        }
    }

    /// What a model calls a tool with, without the key.
    pub(super) fn arguments_without_key(&self, arguments: AskedArguments) -> AskedArguments {
        let Some(held) = &self.key else { return arguments };
        match arguments {
            AskedArguments::Object(fields) => {
                let shows_key =
                    serde_json::to_string(&fields).is_ok_and(|text| held.key.is_in(&text));
                let masked = |fields| Secrets::new([held.key.expose()]).removed_from_fields(fields);
                AskedArguments::Object(if shows_key { masked(fields) } else { fields })
            }
            AskedArguments::Unreadable { text, reason } => AskedArguments::Unreadable {
                text: self.without_key(text),
                reason: self.without_key(reason),
            },
        }
    }

    /// Says which call failed, and what to do about it. The key is nowhere in it.
    pub(super) fn failure(&self, fault: &Fault) -> ModelFailure {
        let remedy = match (fault.remedy, &self.key) {
            (Remedy::None, _) => String::new(),
            (Remedy::Endpoint, _) => "; check llm_config.endpoint".to_owned(),
            (Remedy::EndpointOrModel, _) => {
                "; check llm_config.model and llm_config.endpoint".to_owned()
            }
            (Remedy::Key, Some(held)) => format!("; check the key in {}", held.variable),
            (Remedy::Key, None) => {
                "; name the variable with the key in llm_config.api_key_env".to_owned()
            }
        };
        let message = format!("{self:?}: {}{remedy}", fault.message);
        let message = match &self.key {
            Some(held) => held.key.removed_from(&message),
            None => message,
        };
        ModelFailure {
            failure: AttemptFailure { category: fault.category, message },
            context_full: fault.context_full,
            retry_after: fault.retry_after,
            mark: None,
        }
    }
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, model {}, at {}", self.provider.as_str(), self.model, shown_url(&self.url))
    }
}

fn wire_of(provider: LlmProvider) -> Option<Wire> {
    match provider {
        LlmProvider::OpenAi | LlmProvider::Ollama | LlmProvider::OpenAiCompatible => {
            Some(Wire::OpenAi)
        }
        LlmProvider::Anthropic => Some(Wire::Anthropic),
        LlmProvider::Gemini => Some(Wire::Gemini),
        LlmProvider::Scripted => None,
    }
}

/// The address of the provider, or of whoever stands in for it. An address without a path gets the
/// usual one, and one that is already complete stays as it is.
fn address(config: &LlmConfig, wire: Wire, model: &str) -> Result<Url, String> {
    let usual = match config.provider {
        LlmProvider::OpenAi => "https://api.openai.com/v1",
        LlmProvider::Anthropic => "https://api.anthropic.com/v1",
        LlmProvider::Gemini => "https://generativelanguage.googleapis.com/v1beta",
        LlmProvider::Ollama => "http://127.0.0.1:11434/v1",
        // Definitions insist on an endpoint here.
        LlmProvider::OpenAiCompatible | LlmProvider::Scripted => "",
    };
    let base = config.endpoint.as_ref().map_or(usual, AsRef::as_ref);
    let mut url = Url::parse(base).map_err(|error| error.to_string())?;
    let path = url.path().trim_end_matches('/');
    let path = match wire {
        Wire::OpenAi if path.ends_with("/chat/completions") => path.to_owned(),
        Wire::OpenAi if path.is_empty() => "/v1/chat/completions".to_owned(),
        Wire::OpenAi => format!("{path}/chat/completions"),
        Wire::Anthropic if path.ends_with("/v1/messages") => path.to_owned(),
        Wire::Anthropic if path.ends_with("/v1") => format!("{path}/messages"),
        Wire::Anthropic => format!("{path}/v1/messages"),
        Wire::Gemini => {
            let version = if path.is_empty() { "/v1beta" } else { path };
            // A model may be given with its collection, such as tunedModels/mine.
            let collection = if model.contains('/') { "" } else { "models/" };
            format!("{version}/{collection}{model}:streamGenerateContent")
        }
    };
    url.set_path(&path);
    match wire {
        Wire::Gemini => {
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        Wire::OpenAi | Wire::Anthropic => {}
    }
    Ok(url)
}

/// The variables that may hold the key, in the order in which they are tried. Whoever needs no key
/// by nature is given one only if the agent names it.
pub(super) fn key_variables(config: &LlmConfig) -> Vec<&str> {
    if let Some(variable) = &config.api_key_env {
        return vec![variable.as_str()];
    }
    match config.provider {
        LlmProvider::OpenAi => vec!["OPENAI_API_KEY"],
        LlmProvider::Anthropic => vec!["ANTHROPIC_API_KEY"],
        LlmProvider::Gemini => vec!["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        LlmProvider::Ollama | LlmProvider::OpenAiCompatible | LlmProvider::Scripted => Vec::new(),
    }
}

fn find_key<'a>(
    llm: &'a LlmAgent,
    environment: &Environment,
) -> Result<Option<HeldKey<'a>>, NotReady> {
    let variables = key_variables(&llm.llm_config);
    let Some(first) = variables.first() else { return Ok(None) };
    let name = &llm.identity.name;
    let hint = || {
        let file = file_variable(first);
        format!("`export {first}=...`, or set {file} to the path of a file that holds the key")
    };
    for variable in &variables {
        match keys::key(environment, variable) {
            Ok(Some(key)) => return Ok(Some(HeldKey { key, variable })),
            Ok(None) => {}
            Err(unusable) => {
                let message = format!("agent \"{name}\": {}", unusable.message);
                return Err(NotReady { message, hint: hint() });
            }
        }
    }
    Err(NotReady {
        message: format!(
            "agent \"{name}\" needs a key for the provider {}: {} is not set",
            llm.llm_config.provider.as_str(),
            variables.join(" or ")
        ),
        hint: hint(),
    })
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;

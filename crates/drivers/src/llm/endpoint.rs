//! The endpoint of a call: the provider's URL, protocol, model and API key.

use std::fmt;

use polity_definition::{LlmAgent, LlmConfig, LlmProvider};
use polity_engine::driver::{AskedArguments, ModelFailure, NotReady};
use polity_model::failure::AttemptFailure;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::error::{ErrorRemedy, ModelCallError};
use super::format::anthropic;
use crate::environment::EnvSource;
use crate::http::redact_url;
use crate::keys::{self, ApiKey, file_variable};
use crate::secrets::SecretSet;

/// The request and stream format that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderProtocol {
    OpenAi,
    Anthropic,
    Gemini,
}

pub(super) struct ModelEndpoint<'a> {
    pub(super) provider: LlmProvider,
    pub(super) protocol: ProviderProtocol,
    pub(super) model: &'a str,
    pub(super) url: Url,
    key: Option<EndpointKey<'a>>,
}

struct EndpointKey<'a> {
    key: ApiKey,
    variable: &'a str,
}

impl<'a> ModelEndpoint<'a> {
    /// Resolves the agent's endpoint. Returns `None` for a scripted model, which has none.
    pub(super) fn resolve(
        llm: &'a LlmAgent,
        environment: &EnvSource,
    ) -> Result<Option<Self>, NotReady> {
        let config = &llm.llm_config;
        let Some(protocol) = protocol_for(config.provider) else { return Ok(None) };
        let model = config.model.as_ref().map(AsRef::as_ref).unwrap_or_default();
        let url = endpoint_url(config, protocol, model).map_err(|reason| NotReady {
            message: format!(
                "agent \"{}\" has an llm_config.endpoint that is no address: {reason}",
                llm.identity.name
            ),
            hint: "write it like http://127.0.0.1:8080/v1".into(),
        })?;
        let key = find_key(llm, environment)?;
        Ok(Some(Self { provider: config.provider, protocol, model, url, key }))
    }

    pub(super) fn headers(&self) -> Result<HeaderMap, ModelCallError> {
        let mut headers = HeaderMap::new();
        let (name, prefix) = match self.protocol {
            ProviderProtocol::OpenAi => (AUTHORIZATION, "Bearer "),
            ProviderProtocol::Anthropic => (HeaderName::from_static("x-api-key"), ""),
            ProviderProtocol::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
        };
        if let Some(endpoint_key) = &self.key {
            let value = format!("{prefix}{}", endpoint_key.key.expose());
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                ModelCallError::permanent("the key cannot be sent".into())
                    .with_remedy(ErrorRemedy::Key)
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        if self.protocol == ProviderProtocol::Anthropic {
            let version = HeaderValue::from_static(anthropic::API_VERSION);
            headers.insert(HeaderName::from_static("anthropic-version"), version);
        }
        Ok(headers)
    }

    /// The URL that describes the model, or lists all models. `None` for an address of another form.
    pub(super) fn models_url(&self) -> Option<Url> {
        let path = self.url.path();
        let path = match self.protocol {
            ProviderProtocol::OpenAi => {
                format!("{}/models", path.strip_suffix("/chat/completions")?)
            }
            ProviderProtocol::Anthropic => format!("{}/models", path.strip_suffix("/messages")?),
            ProviderProtocol::Gemini => path.strip_suffix(":streamGenerateContent")?.to_owned(),
        };
        let mut url = self.url.clone();
        url.set_path(&path);
        url.set_query(None);
        Some(url)
    }

    /// The variable that holds the key.
    pub(super) fn key_variable(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.variable)
    }

    /// Redacts the key in a model's text: an unofficial server may echo it.
    pub(super) fn redact_text(&self, text: String) -> String {
        match &self.key {
            Some(EndpointKey { key, .. }) if key.is_contained_in(&text) => key.redact(&text),
            Some(_) | None => text,
        }
    }

    /// Redacts the key in the arguments of a tool call.
    pub(super) fn redact_arguments(&self, arguments: AskedArguments) -> AskedArguments {
        let Some(endpoint_key) = &self.key else { return arguments };
        match arguments {
            AskedArguments::Object(fields) => {
                let shows_key = serde_json::to_string(&fields)
                    .is_ok_and(|text| endpoint_key.key.is_contained_in(&text));
                let masked =
                    |fields| SecretSet::new([endpoint_key.key.expose()]).redact_fields(fields);
                AskedArguments::Object(if shows_key { masked(fields) } else { fields })
            }
            AskedArguments::Unreadable { text, reason } => AskedArguments::Unreadable {
                text: self.redact_text(text),
                reason: self.redact_text(reason),
            },
        }
    }

    /// Describes which call failed and the fix, with the key redacted.
    pub(super) fn failure(&self, error: &ModelCallError) -> ModelFailure {
        let remedy = match (error.remedy, &self.key) {
            (ErrorRemedy::None, _) => String::new(),
            (ErrorRemedy::Endpoint, _) => "; check llm_config.endpoint".to_owned(),
            (ErrorRemedy::EndpointOrModel, _) => {
                "; check llm_config.model and llm_config.endpoint".to_owned()
            }
            (ErrorRemedy::Key, Some(endpoint_key)) => {
                format!("; check the key in {}", endpoint_key.variable)
            }
            (ErrorRemedy::Key, None) => {
                "; name the variable with the key in llm_config.api_key_env".to_owned()
            }
        };
        let message = self.redact_text(format!("{self:?}: {}{remedy}", error.message));
        ModelFailure {
            failure: AttemptFailure { category: error.category, message },
            context_full: error.context_full,
            retry_after: error.retry_after,
            is_final: false,
            mark: None,
            usage: error.usage,
        }
    }
}

impl fmt::Debug for ModelEndpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, model {}, at {}", self.provider.as_str(), self.model, redact_url(&self.url))
    }
}

fn protocol_for(provider: LlmProvider) -> Option<ProviderProtocol> {
    match provider {
        LlmProvider::OpenAi | LlmProvider::Ollama | LlmProvider::OpenAiCompatible => {
            Some(ProviderProtocol::OpenAi)
        }
        LlmProvider::Anthropic => Some(ProviderProtocol::Anthropic),
        LlmProvider::Gemini => Some(ProviderProtocol::Gemini),
        LlmProvider::Scripted => None,
    }
}

/// The base address of a provider's own API.
pub(super) fn usual_address(provider: LlmProvider) -> Option<&'static str> {
    match provider {
        LlmProvider::OpenAi => Some("https://api.openai.com/v1"),
        LlmProvider::Anthropic => Some("https://api.anthropic.com/v1"),
        LlmProvider::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
        LlmProvider::Ollama => Some("http://127.0.0.1:11434/v1"),
        // Definitions require an endpoint, or need none.
        LlmProvider::OpenAiCompatible | LlmProvider::Scripted => None,
    }
}

/// The URL of the provider, or of `llm_config.endpoint`. Adds the usual path to a URL without one;
/// a complete URL stays as it is.
fn endpoint_url(
    config: &LlmConfig,
    protocol: ProviderProtocol,
    model: &str,
) -> Result<Url, String> {
    let base = super::base_address(config).unwrap_or_default();
    let mut url = Url::parse(base).map_err(|error| error.to_string())?;
    let path = url.path().trim_end_matches('/');
    let path = match protocol {
        ProviderProtocol::OpenAi if path.ends_with("/chat/completions") => path.to_owned(),
        ProviderProtocol::OpenAi if path.is_empty() => "/v1/chat/completions".to_owned(),
        ProviderProtocol::OpenAi => format!("{path}/chat/completions"),
        ProviderProtocol::Anthropic if path.ends_with("/v1/messages") => path.to_owned(),
        ProviderProtocol::Anthropic if path.ends_with("/v1") => format!("{path}/messages"),
        ProviderProtocol::Anthropic => format!("{path}/v1/messages"),
        ProviderProtocol::Gemini => {
            let version = if path.is_empty() { "/v1beta" } else { path };
            // A model name may contain its collection, such as tunedModels/mine.
            let collection = if model.contains('/') { "" } else { "models/" };
            format!("{version}/{collection}{model}:streamGenerateContent")
        }
    };
    url.set_path(&path);
    if protocol == ProviderProtocol::Gemini {
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    Ok(url)
}

/// The variables that may hold the key, in the order they are tried. A provider that needs no key
/// gets one only if the agent names its variable.
pub fn key_variables(config: &LlmConfig) -> Vec<&str> {
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
    environment: &EnvSource,
) -> Result<Option<EndpointKey<'a>>, NotReady> {
    let variables = key_variables(&llm.llm_config);
    let Some(first) = variables.first() else { return Ok(None) };
    let name = &llm.identity.name;
    let hint = || {
        let file = file_variable(first);
        format!("`export {first}=...`, or set {file} to the path of a file that holds the key")
    };
    for variable in &variables {
        match keys::load_key(environment, variable) {
            Ok(Some(key)) => return Ok(Some(EndpointKey { key, variable })),
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
#[path = "endpoint_tests.rs"]
mod tests;

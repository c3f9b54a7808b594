//! The reachability of a model: asks its server for a list of models, which costs nothing.

use std::time::Duration;

use polity_definition::LlmAgent;
use polity_engine::driver::NotReady;
use reqwest::StatusCode;
use serde_json::Value;

use super::LanguageModels;
use super::endpoint::ModelEndpoint;
use crate::http::{build_client, read_error_body, root_cause};

/// The largest list of models that is read.
const LIST_BYTES_MAX: usize = 4 << 20;

/// The answer of a model's server. It never has text of the server, which may repeat a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelReach {
    /// The model answers from a file.
    Scripted,
    /// The server accepts the key and has the model.
    Ready,
    /// The server answers, but has no list of models.
    Unlisted,
    /// The server lists its models, and this is not one of them.
    UnknownModel,
    /// The server refuses the key, which this variable has.
    KeyRefused {
        /// The variable with the key, if one was sent.
        variable: Option<String>,
    },
    /// The server answers with another error.
    Status(u16),
    /// There is no connection to the server, or no answer in time.
    Unreachable(String),
}

impl LanguageModels {
    /// Asks the server of an agent's model for its models. Fails if a key is missing.
    pub async fn reach(&self, llm: &LlmAgent, timeout: Duration) -> Result<ModelReach, NotReady> {
        let Some(endpoint) = ModelEndpoint::resolve(llm, &self.environment)? else {
            return Ok(ModelReach::Scripted);
        };
        let asked = tokio::time::timeout(timeout, self.ask(&endpoint)).await;
        Ok(asked.unwrap_or_else(|_| {
            ModelReach::Unreachable(format!("no answer within {} s", timeout.as_secs()))
        }))
    }

    async fn ask(&self, endpoint: &ModelEndpoint<'_>) -> ModelReach {
        let Some(url) = endpoint.models_url() else { return ModelReach::Unlisted };
        let headers = match endpoint.headers() {
            Ok(headers) => headers,
            Err(error) => return ModelReach::Unreachable(error.message),
        };
        let client = match build_client(url.scheme() == "https", &self.environment) {
            Ok(client) => client,
            Err(error) => return ModelReach::Unreachable(root_cause(error)),
        };
        let mut response = match client.get(url).headers(headers).send().await {
            Ok(response) => response,
            Err(error) => return ModelReach::Unreachable(root_cause(error)),
        };
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                ModelReach::KeyRefused { variable: endpoint.key_variable().map(str::to_owned) }
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => ModelReach::Unlisted,
            status if status.is_success() => {
                let body = read_error_body(&mut response, LIST_BYTES_MAX).await;
                match lists(&body, endpoint.model) {
                    Some(false) => ModelReach::UnknownModel,
                    Some(true) | None => ModelReach::Ready,
                }
            }
            status => ModelReach::Status(status.as_u16()),
        }
    }
}

/// True if a list of models has the model; `None` if this is no list, or only its first page.
fn lists(body: &[u8], model: &str) -> Option<bool> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list["data"].as_array()?;
    let has = models.iter().any(|one| {
        // Ollama lists `llama3:latest` for `llama3`.
        let id = one["id"].as_str().unwrap_or_default();
        id == model || id.strip_suffix(":latest") == Some(model)
    });
    let is_complete = list["has_more"].as_bool() != Some(true);
    (has || is_complete).then_some(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_model_in_lists_of_known_forms() {
        for (body, expected) in [
            (r#"{"data": [{"id": "m"}, {"id": "n"}]}"#, Some(true)),
            (r#"{"data": [{"id": "m:latest"}]}"#, Some(true)),
            (r#"{"data": [{"id": "mm"}]}"#, Some(false)),
            (r#"{"data": [{"id": "mm"}], "has_more": true}"#, None),
            (r#"{"name": "models/m"}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(lists(body.as_bytes(), "m"), expected, "{body}");
        }
    }
}

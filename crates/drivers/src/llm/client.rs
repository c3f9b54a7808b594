//! The HTTP call of a model: encodes the prompt, sends it and decodes the streamed answer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use polity_definition::LlmAgent;
use polity_engine::driver::{AskedTool, ModelFailure, ModelReply, ModelRequest, TextSink};
use polity_model::usage::Usage;

use super::endpoint::{ModelEndpoint, ProviderProtocol};
use super::error::{ErrorRemedy, ModelCallError};
use super::format::anthropic::{self, AnthropicDecoder};
use super::format::gemini::{self, GeminiDecoder};
use super::format::openai::{self, OpenAiDecoder};
use super::format::tool_names::WireToolNames;
use super::format::turns::group_turns;
use super::format::{ModelAnswer, ModelPrompt, StreamDecoder, StreamState};
use super::http::{HttpTransport, ResponseStream, stream_interrupted};
use crate::environment::EnvSource;
use crate::sse::SseParser;

/// State shared by all calls of the process.
#[derive(Debug, Default)]
pub(super) struct HttpModelClient {
    http: HttpTransport,
    /// Models that have rejected a temperature before.
    without_temperature: Mutex<HashSet<String>>,
}

impl HttpModelClient {
    pub(super) async fn call(
        &self,
        endpoint: &ModelEndpoint<'_>,
        llm: &LlmAgent,
        request: ModelRequest<'_>,
        environment: &EnvSource,
    ) -> Result<ModelReply, ModelFailure> {
        let names = WireToolNames::new(request.toolbox);
        let answer = self
            .answer(endpoint, llm, &names, request, environment)
            .await
            .map_err(|error| endpoint.failure(&error))?;
        let calls = answer.calls.into_iter().map(|call| {
            let (server, tool) = names.resolve(&call.name);
            let arguments = endpoint.redact_arguments(call.arguments);
            AskedTool { server, tool, arguments, signature: call.signature }
        });
        Ok(ModelReply {
            tool_calls: calls.collect(),
            content: endpoint.redact_text(answer.content),
            usage: Usage {
                input_tokens: answer.input_tokens,
                output_tokens: answer.output_tokens,
                ..Usage::default()
            },
            is_cut: answer.is_cut,
            mark: None,
        })
    }

    async fn answer(
        &self,
        endpoint: &ModelEndpoint<'_>,
        llm: &LlmAgent,
        names: &WireToolNames<'_>,
        request: ModelRequest<'_>,
        environment: &EnvSource,
    ) -> Result<ModelAnswer, ModelCallError> {
        let turns = group_turns(request.history);
        if turns.is_empty() {
            return Err(ModelCallError::permanent("there is no message to answer".into()));
        }
        let takes_temperature = !self.is_without_temperature(endpoint.model);
        let instruction = llm.instruction();
        let mut prompt = ModelPrompt {
            model: endpoint.model,
            system: &instruction,
            temperature: takes_temperature.then(|| llm.temperature.get()),
            turns: &turns,
            tools: names,
        };
        loop {
            let body = encode_body(endpoint, &prompt).map_err(|error| {
                ModelCallError::permanent(format!("the request has no JSON: {error}"))
            })?;
            match self.http.post(&endpoint.url, endpoint.headers()?, body, environment).await {
                Ok(response) => {
                    if takes_temperature && prompt.temperature.is_none() {
                        self.note_without_temperature(endpoint.model);
                    }
                    return read_answer(endpoint.protocol, response, request.progress).await;
                }
                // Reasoning models reject a temperature. The set changes with every release, so it
                // is discovered rather than listed.
                Err(error) if prompt.temperature.is_some() && is_about_temperature(&error) => {
                    prompt.temperature = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn is_without_temperature(&self, model: &str) -> bool {
        let models = self.without_temperature.lock();
        models.unwrap_or_else(PoisonError::into_inner).contains(model)
    }

    fn note_without_temperature(&self, model: &str) {
        tracing::debug!(model, "takes no temperature");
        let models = self.without_temperature.lock();
        models.unwrap_or_else(PoisonError::into_inner).insert(model.to_owned());
    }
}

fn is_about_temperature(error: &ModelCallError) -> bool {
    matches!(error.status, Some(400 | 422)) && error.message.contains("temperature")
}

fn encode_body(
    endpoint: &ModelEndpoint<'_>,
    prompt: &ModelPrompt<'_>,
) -> serde_json::Result<Vec<u8>> {
    match endpoint.protocol {
        ProviderProtocol::OpenAi => openai::encode_body(prompt, endpoint.provider),
        ProviderProtocol::Anthropic => anthropic::encode_body(prompt),
        ProviderProtocol::Gemini => gemini::encode_body(prompt),
    }
}

/// Decodes an answer until the stream ends.
async fn read_answer(
    protocol: ProviderProtocol,
    mut response: ResponseStream,
    progress: &dyn TextSink,
) -> Result<ModelAnswer, ModelCallError> {
    let mut decoder: Box<dyn StreamDecoder> = match protocol {
        ProviderProtocol::OpenAi => Box::<OpenAiDecoder>::default(),
        ProviderProtocol::Anthropic => Box::<AnthropicDecoder>::default(),
        ProviderProtocol::Gemini => Box::<GeminiDecoder>::default(),
    };
    let mut events = SseParser::default();
    while decoder.state() != StreamState::Ended {
        let Some(chunk) = response.next().await? else {
            events.finish(|event| decoder.push_event(event.data, progress))?;
            break;
        };
        events.push(chunk.as_ref(), |event| decoder.push_event(event.data, progress))?;
    }
    match decoder.state() {
        StreamState::Ended => response.drain().await,
        StreamState::Complete => {}
        StreamState::Incomplete if events.is_empty() => {
            let empty = ModelCallError::transient("answered without a single event".into());
            return Err(empty.with_remedy(ErrorRemedy::Endpoint));
        }
        StreamState::Incomplete => return Err(stream_interrupted("the server ended it")),
    }
    decoder.finish()
}

//! The HTTP call of a model: encodes the prompt, sends it and decodes the streamed answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use polity_definition::LlmAgent;
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, ModelFailure, ModelReply, ModelRequest, TextSink,
};
use polity_model::failure::{ErrorCategory, WithheldReason};
use polity_model::usage::{Usage, estimate_tokens};
use serde_json::Value;

use super::endpoint::{ModelEndpoint, ProviderProtocol};
use super::error::ModelCallError;
use super::format::anthropic::{self, AnthropicDecoder};
use super::format::gemini::{self, GeminiDecoder};
use super::format::openai::{self, OpenAiDecoder};
use super::format::tool_names::WireToolNames;
use super::format::turns::group_turns;
use super::format::{ModelAnswer, ModelPrompt, StreamDecoder, StreamState};
use super::http::{HttpTransport, ResponseStream};
use super::price::TokenEstimate;
use crate::environment::EnvSource;
use crate::http::add_trace_context;
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
    ) -> Result<(ModelReply, TokenEstimate), (ModelFailure, TokenEstimate)> {
        let names = WireToolNames::new(request.toolbox);
        let (answer, request_bytes) = self
            .answer(endpoint, llm, &names, request, environment)
            .await
            .map_err(|error| (endpoint.failure(&error), error.estimate))?;
        let estimate = estimate_unreported(&answer, request_bytes);
        let usage = Usage {
            estimate: estimate.without_cost(),
            ..Usage::reported(answer.input_tokens, answer.output_tokens, None)
        };
        let calls = answer.calls.into_iter().map(|call| {
            let (server, tool) = names.resolve(&call.name);
            let arguments = endpoint.redact_arguments(call.arguments);
            AskedTool { server, tool, arguments, signature: call.signature }
        });
        let reply = ModelReply {
            tool_calls: calls.collect(),
            content: endpoint.redact_text(answer.content),
            usage,
            ending: answer.ending,
            stop_reason: answer.stop_reason.map(|reason| endpoint.redact_text(reason)),
            mark: None,
        };
        Ok((reply, estimate))
    }

    /// The answer, and the size of the request.
    async fn answer(
        &self,
        endpoint: &ModelEndpoint<'_>,
        llm: &LlmAgent,
        names: &WireToolNames<'_>,
        request: ModelRequest<'_>,
        environment: &EnvSource,
    ) -> Result<(ModelAnswer, usize), ModelCallError> {
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
            let body_bytes = body.len();
            let mut headers = endpoint.headers()?;
            add_trace_context(&mut headers);
            match self.http.post(&endpoint.url, headers, body, environment).await {
                Ok(response) => {
                    request.progress.progress();
                    if takes_temperature && prompt.temperature.is_none() {
                        self.note_without_temperature(endpoint.model);
                    }
                    let (protocol, progress) = (endpoint.protocol, request.progress);
                    let answer = read_answer(protocol, response, body_bytes, progress).await?;
                    return Ok((answer, body_bytes));
                }
                // Reasoning models reject a temperature. The set changes with every release, so it
                // is discovered rather than listed.
                Err(error) if prompt.temperature.is_some() && is_about_temperature(&error) => {
                    prompt.temperature = None;
                }
                // Some providers answer with an error status here, others with an empty answer.
                Err(error) if error.is_filtered => {
                    let answer = ModelAnswer {
                        ending: AnswerEnding::Withheld(WithheldReason::Filtered),
                        stop_reason: Some(error.message),
                        // The model did not read it.
                        input_tokens: Some(0),
                        output_tokens: Some(0),
                        ..ModelAnswer::default()
                    };
                    return Ok((answer, body_bytes));
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

/// Estimates the counts that the provider did not report.
fn estimate_unreported(answer: &ModelAnswer, request_bytes: usize) -> TokenEstimate {
    let written = || {
        let arguments = answer.calls.iter().map(|call| match &call.arguments {
            AskedArguments::Object(arguments) => Value::from(arguments.clone()).to_string().len(),
            AskedArguments::Unreadable { text, .. } => text.len(),
        });
        estimate_tokens(answer.content.len() + arguments.sum::<usize>())
    };
    TokenEstimate {
        input: answer.input_tokens.map_or_else(|| estimate_tokens(request_bytes), |_| 0),
        output: answer.output_tokens.map_or_else(written, |_| 0),
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

/// Reads an answer. An error has the usage that was reported before it.
async fn read_answer(
    protocol: ProviderProtocol,
    response: ResponseStream,
    request_bytes: usize,
    progress: &dyn TextSink,
) -> Result<ModelAnswer, ModelCallError> {
    let mut decoder: Box<dyn StreamDecoder> = match protocol {
        ProviderProtocol::OpenAi => Box::<OpenAiDecoder>::default(),
        ProviderProtocol::Anthropic => Box::<AnthropicDecoder>::default(),
        ProviderProtocol::Gemini => Box::<GeminiDecoder>::default(),
    };
    let counted = CountedText { sink: progress, bytes: AtomicUsize::new(0) };
    let read = decode_events(&mut *decoder, response, request_bytes, &counted).await;
    let (input, output) = decoder.tokens();
    let reported = Usage::reported(input, output, None);
    let written = estimate_tokens(counted.bytes.into_inner());
    let unreported = TokenEstimate {
        input: input.map_or_else(|| estimate_tokens(request_bytes), |_| 0),
        output: output.map_or(written, |_| 0),
    };
    // More may have been used before the end of the stream.
    let known = Usage { tokens_unknown: true, ..reported };
    let so_far =
        TokenEstimate { output: written.saturating_sub(output.unwrap_or(0)), ..unreported };
    read.map_err(|error| error.with_usage(known, so_far))?;
    decoder.finish().map_err(|error| error.with_usage(reported, unreported))
}

/// Counts the bytes of an answer as they arrive.
struct CountedText<'a> {
    sink: &'a dyn TextSink,
    bytes: AtomicUsize,
}

impl TextSink for CountedText<'_> {
    fn text(&self, piece: &str) {
        self.bytes.fetch_add(piece.len(), Ordering::Relaxed);
        self.sink.text(piece);
    }

    fn progress(&self) {
        self.sink.progress();
    }
}

/// Decodes events until the stream ends.
async fn decode_events(
    decoder: &mut dyn StreamDecoder,
    mut response: ResponseStream,
    request_bytes: usize,
    progress: &dyn TextSink,
) -> Result<(), ModelCallError> {
    let mut events = SseParser::default();
    while decoder.state() != StreamState::Ended {
        let chunk = match response.next().await {
            Err(error) if error.category == ErrorCategory::Transient && events.is_empty() => {
                return Err(error.suspecting_context(request_bytes));
            }
            chunk => chunk?,
        };
        let Some(chunk) = chunk else {
            events.finish(|event| decoder.push_event(event.data, progress))?;
            break;
        };
        progress.progress();
        events.push(chunk.as_ref(), |event| decoder.push_event(event.data, progress))?;
    }
    match decoder.state() {
        StreamState::Ended => response.drain().await,
        StreamState::Complete => {}
        StreamState::Incomplete if events.is_empty() => {
            return Err(ModelCallError::no_events(request_bytes));
        }
        StreamState::Incomplete => {
            return Err(ModelCallError::interrupted("the server ended it"));
        }
    }
    Ok(())
}

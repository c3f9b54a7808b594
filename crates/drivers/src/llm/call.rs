//! One call over HTTP, from the conversation to the answer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use polity_definition::LlmAgent;
use polity_engine::driver::{AskedTool, ModelFailure, ModelReply, ModelRequest, Progress};
use polity_model::usage::Usage;

use super::anthropic::{self, AnthropicListener};
use super::failure::{Fault, Remedy};
use super::gemini::{self, GeminiListener};
use super::http::{Http, Incoming, cut};
use super::names::ToolNames;
use super::openai::{self, OpenAiListener};
use super::target::{Target, Wire};
use super::turns::turns;
use super::wire::{Answer, Heard, Listener, Prompt};
use crate::environment::Environment;
use crate::sse::EventReader;

/// What calls share for as long as the process lives.
#[derive(Debug, Default)]
pub(super) struct Line {
    http: Http,
    /// Models that want no temperature. They are known by having refused one.
    without_temperature: Mutex<HashSet<String>>,
}

impl Line {
    /// Makes one call.
    pub(super) async fn call(
        &self,
        target: &Target<'_>,
        llm: &LlmAgent,
        request: ModelRequest<'_>,
        environment: &Environment,
    ) -> Result<ModelReply, ModelFailure> {
        let names = ToolNames::of(request.toolbox);
        let answer = self
            .answer(target, llm, &names, request, environment)
            .await
            .map_err(|fault| target.failure(&fault))?;
        let calls = answer.calls.into_iter().map(|call| {
            let (server, tool) = names.meant(&call.name);
            let arguments = target.arguments_without_key(call.arguments);
            AskedTool { server, tool, arguments, signature: call.signature }
        });
        Ok(ModelReply {
            tool_calls: calls.collect(),
            content: target.without_key(answer.content),
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
        target: &Target<'_>,
        llm: &LlmAgent,
        names: &ToolNames<'_>,
        request: ModelRequest<'_>,
        environment: &Environment,
    ) -> Result<Answer, Fault> {
        let turns = turns(request.history);
        if turns.is_empty() {
            return Err(Fault::lasting("there is no message to answer".into()));
        }
        let takes_temperature = !self.refuses_temperature(target.model);
        let instruction = llm.instruction();
        let mut prompt = Prompt {
            model: target.model,
            system: &instruction,
            temperature: takes_temperature.then(|| llm.temperature.get()),
            turns: &turns,
            tools: names,
        };
        loop {
            let body = encode(target, &prompt)
                .map_err(|error| Fault::lasting(format!("the request has no JSON: {error}")))?;
            match self.http.post(&target.url, target.headers()?, body, environment).await {
                Ok(incoming) => {
                    if takes_temperature && prompt.temperature.is_none() {
                        self.refused_temperature(target.model);
                    }
                    return listen(target.wire, incoming, request.progress).await;
                }
                // Reasoning models want to choose for themselves. Which ones do changes with every
                // release, so they are asked rather than listed.
                Err(fault) if prompt.temperature.is_some() && is_about_temperature(&fault) => {
                    prompt.temperature = None;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    fn refuses_temperature(&self, model: &str) -> bool {
        let models = self.without_temperature.lock();
        models.unwrap_or_else(PoisonError::into_inner).contains(model)
    }

    fn refused_temperature(&self, model: &str) {
        tracing::debug!(model, "takes no temperature");
        let models = self.without_temperature.lock();
        models.unwrap_or_else(PoisonError::into_inner).insert(model.to_owned());
    }
}

fn is_about_temperature(fault: &Fault) -> bool {
    matches!(fault.status, Some(400 | 422)) && fault.message.contains("temperature")
}

fn encode(target: &Target<'_>, prompt: &Prompt<'_>) -> serde_json::Result<Vec<u8>> {
    match target.wire {
        Wire::OpenAi => openai::body(prompt, target.provider),
        Wire::Anthropic => anthropic::body(prompt),
        Wire::Gemini => gemini::body(prompt),
    }
}

/// Reads an answer to its end.
async fn listen(
    wire: Wire,
    mut incoming: Incoming,
    progress: &dyn Progress,
) -> Result<Answer, Fault> {
    let mut listener: Box<dyn Listener> = match wire {
        Wire::OpenAi => Box::<OpenAiListener>::default(),
        Wire::Anthropic => Box::<AnthropicListener>::default(),
        Wire::Gemini => Box::<GeminiListener>::default(),
    };
    let mut events = EventReader::default();
    while listener.heard() != Heard::All {
        let Some(piece) = incoming.next().await? else {
            events.finish(|data| listener.hear(data, progress))?;
            break;
        };
        events.push(piece.as_ref(), |data| listener.hear(data, progress))?;
    }
    match listener.heard() {
        Heard::All => incoming.end().await,
        Heard::Enough => {}
        Heard::Part if events.is_silent() => {
            let silence = Fault::passing("answered without a single event".into());
            return Err(silence.remedy(Remedy::Endpoint));
        }
        Heard::Part => return Err(cut("the server ended it")),
    }
    listener.answer()
}

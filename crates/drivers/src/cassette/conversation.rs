//! Requests to a model without the parts that differ between runs: ids, times and secrets.

use std::fmt::Write;

use polity_definition::LlmAgent;
use polity_engine::driver::{ModelRequest, Toolbox};
use polity_model::message::{Message, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::document::{CassetteAnswer, CassetteArguments, ModelSettings};
use super::multiline::MultilineText;
use crate::secrets::SecretSet;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum CassetteMessage {
    User {
        content: MultilineText,
    },
    Assistant {
        #[serde(default, skip_serializing_if = "MultilineText::is_empty")]
        content: MultilineText,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<CassetteToolCall>,
    },
    Tool {
        /// The index of the answered call among the latest calls, from 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<usize>,
        /// The text; omitted in a file if it equals the tool's reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<MultilineText>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    System {
        content: MultilineText,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteToolCall {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    server: String,
    tool: String,
    arguments: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelQuestion {
    pub(super) agent: String,
    pub(super) settings: ModelSettings,
    pub(super) tools: Vec<String>,
    pub(super) messages: Vec<CassetteMessage>,
}

impl ModelQuestion {
    /// Builds the comparable form of a request, with secrets redacted.
    pub(super) fn from_request(
        request: &ModelRequest<'_>,
        llm: &LlmAgent,
        secrets: &SecretSet,
    ) -> Self {
        let offered = request.toolbox.offered().iter();
        Self {
            agent: request.pinned.agent.name.to_string(),
            settings: model_settings(llm, secrets),
            tools: offered.map(|tool| tool.name.to_string()).collect(),
            messages: redacted_messages(request, secrets),
        }
    }

    /// The request as text, to be compared line by line.
    pub(super) fn to_text(&self) -> String {
        let ModelSettings { provider, model, temperature, system_prompt, output_schema } =
            &self.settings;
        let mut text = format!("agent: {}\nprovider: {}\n", self.agent, provider.as_str());
        // Writing to a String cannot fail.
        if let Some(model) = model {
            let _ = writeln!(text, "model: {model}");
        }
        let _ = writeln!(text, "temperature: {}", temperature.get());
        write_field(&mut text, "system_prompt", system_prompt.as_str());
        if let Some(schema) = output_schema {
            let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
            write_field(&mut text, "output_schema", &schema);
        }
        for tool in &self.tools {
            let _ = writeln!(text, "tool offered: {tool}");
        }
        for message in &self.messages {
            message.write_to(&mut text);
        }
        // The last line break would show as an empty line.
        text.truncate(text.len() - 1);
        text
    }
}

fn model_settings(llm: &LlmAgent, secrets: &SecretSet) -> ModelSettings {
    let model = llm.llm_config.model.as_ref();
    let schema = llm.output_schema.as_ref().map(|schema| schema.json().clone());
    ModelSettings {
        provider: llm.llm_config.provider,
        model: model.map(|model| secrets.redact(model.as_ref())),
        temperature: llm.temperature,
        system_prompt: secrets.redact(llm.identity.system_prompt.as_str()).into(),
        output_schema: schema.map(|schema| secrets.redact_fields(schema)),
    }
}

fn redacted_messages(request: &ModelRequest<'_>, secrets: &SecretSet) -> Vec<CassetteMessage> {
    let text = |text: &str| MultilineText::from(secrets.redact(text));
    let mut asked: &[ToolCall] = &[];
    let redacted = request.history.iter().map(|message| match message {
        Message::User { content, .. } => CassetteMessage::User { content: text(content) },
        Message::System { content, .. } => CassetteMessage::System { content: text(content) },
        Message::Assistant { content, tool_calls, .. } => {
            asked = tool_calls;
            let calls = tool_calls.iter();
            let calls = calls.map(|call| redacted_call(call, request.toolbox, secrets));
            CassetteMessage::Assistant { content: text(content), tool_calls: calls.collect() }
        }
        Message::Tool { tool_call_id, content, is_error, .. } => CassetteMessage::Tool {
            call: asked.iter().position(|call| call.id == *tool_call_id),
            content: Some(text(content)),
            is_error: *is_error,
        },
    });
    redacted.collect()
}

fn redacted_call(call: &ToolCall, toolbox: &Toolbox, secrets: &SecretSet) -> CassetteToolCall {
    let (server, tool) = redacted_tool_name(&call.server, &call.tool, toolbox, secrets);
    CassetteToolCall {
        server,
        tool,
        arguments: secrets.redact_fields(call.arguments.clone()),
        signature: call.signature.as_ref().map(|signature| secrets.redact(signature)),
    }
}

/// The tool's name with secrets redacted, unless the tool exists: then the name must stay findable.
pub(super) fn redacted_tool_name(
    server: &str,
    tool: &str,
    toolbox: &Toolbox,
    secrets: &SecretSet,
) -> (String, String) {
    if toolbox.find(server, tool).is_some() {
        (server.to_owned(), tool.to_owned())
    } else {
        (secrets.redact(server), secrets.redact(tool))
    }
}

impl CassetteMessage {
    /// The message that an answer becomes.
    pub(super) fn from_answer(answer: &CassetteAnswer) -> Self {
        let tool_calls = answer.tool_calls.iter().map(|asked| CassetteToolCall {
            server: asked.server.clone(),
            tool: asked.tool.clone(),
            arguments: match &asked.arguments {
                CassetteArguments::Arguments(arguments) => arguments.clone(),
                // The answer to the call describes the error.
                CassetteArguments::Unreadable { .. } => Map::new(),
            },
            signature: asked.signature.clone(),
        });
        Self::Assistant { content: answer.content.clone(), tool_calls: tool_calls.collect() }
    }

    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Assistant { .. })
    }

    fn write_to(&self, text: &mut String) {
        match self {
            Self::User { content } => write_field(text, "user", content.as_str()),
            Self::System { content } => write_field(text, "system", content.as_str()),
            Self::Assistant { content, tool_calls } => {
                write_field(text, "assistant", content.as_str());
                for call in tool_calls {
                    let arguments = Value::Object(call.arguments.clone());
                    let _ = writeln!(text, "  asks for {} {arguments}", call.name());
                }
            }
            Self::Tool { call, content, is_error } => {
                let number = call.map(|call| format!(" {call}")).unwrap_or_default();
                let failed = if *is_error { " (error)" } else { "" };
                let content = content.as_ref().map(MultilineText::as_str).unwrap_or_default();
                write_field(text, &format!("tool{number}{failed}"), content);
            }
        }
    }
}

impl CassetteToolCall {
    fn name(&self) -> String {
        match self.server.as_str() {
            "" => self.tool.clone(),
            server => format!("{server}/{}", self.tool),
        }
    }
}

/// Writes a field: a single line after its name, several lines below it.
fn write_field(text: &mut String, name: &str, content: &str) {
    if content.contains('\n') {
        let _ = writeln!(text, "{name}:");
        for line in content.split('\n') {
            let _ = writeln!(text, "  {line}");
        }
    } else {
        let _ = writeln!(text, "{name}: {content}");
    }
}

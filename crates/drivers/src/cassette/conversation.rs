//! What a model is asked, without what differs from run to run: ids, times, and secrets.

use std::fmt::Write;

use polity_definition::LlmAgent;
use polity_engine::driver::{ModelRequest, Toolbox};
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::document::{Answer, Arguments, Settings};
use super::lines::Lines;
use crate::secrets::Secrets;

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum Said {
    User {
        content: Lines,
    },
    Assistant {
        #[serde(default, skip_serializing_if = "Lines::is_empty")]
        content: Lines,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<SaidCall>,
    },
    Tool {
        /// Which of the calls that were asked for last this answers, from 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<usize>,
        /// The text; in a file it is missing where it is what the tool replied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Lines>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    System {
        content: Lines,
    },
}

/// A tool that was asked for, as the conversation has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SaidCall {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    server: String,
    tool: String,
    arguments: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

/// One question to a model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    pub(super) agent: String,
    pub(super) settings: Settings,
    pub(super) tools: Vec<String>,
    pub(super) messages: Vec<Said>,
}

impl Question {
    /// What is asked, without secrets.
    pub(super) fn of(request: &ModelRequest<'_>, llm: &LlmAgent, secrets: &Secrets) -> Self {
        let offered = request.toolbox.offered().iter();
        Self {
            agent: request.pinned.agent.name.to_string(),
            settings: settings(llm, secrets),
            tools: offered.map(|tool| tool.name.to_string()).collect(),
            messages: messages(request, secrets),
        }
    }

    /// The question as text, to be compared by lines.
    pub(super) fn to_text(&self) -> String {
        let Settings { provider, model, temperature, system_prompt, output_schema } =
            &self.settings;
        let mut text = format!("agent: {}\nprovider: {}\n", self.agent, provider.as_str());
        // Writing to a String cannot fail.
        if let Some(model) = model {
            let _ = writeln!(text, "model: {model}");
        }
        let _ = writeln!(text, "temperature: {}", temperature.get());
        tell(&mut text, "system_prompt", system_prompt.as_str());
        if let Some(schema) = output_schema {
            let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
            tell(&mut text, "output_schema", &schema);
        }
        for tool in &self.tools {
            let _ = writeln!(text, "tool offered: {tool}");
        }
        for said in &self.messages {
            said.tell(&mut text);
        }
        // A line that ends the text would be shown as an empty one.
        text.truncate(text.len() - 1);
        text
    }
}

fn settings(llm: &LlmAgent, secrets: &Secrets) -> Settings {
    let model = llm.llm_config.model.as_ref();
    let schema = llm.output_schema.as_ref().map(|schema| schema.json().clone());
    Settings {
        provider: llm.llm_config.provider,
        model: model.map(|model| secrets.removed_from(model.as_ref())),
        temperature: llm.temperature,
        system_prompt: secrets.removed_from(llm.identity.system_prompt.as_str()).into(),
        output_schema: schema.map(|schema| secrets.removed_from_fields(schema)),
    }
}

fn messages(request: &ModelRequest<'_>, secrets: &Secrets) -> Vec<Said> {
    let text = |text: &str| Lines::from(secrets.removed_from(text));
    let mut asked: &[ToolCall] = &[];
    let said = |message: &Message| match message {
        Message::User { content, .. } => Said::User { content: text(content) },
        Message::System { content, .. } => Said::System { content: text(content) },
        Message::Assistant { content, tool_calls, .. } => Said::Assistant {
            content: text(content),
            tool_calls: tool_calls
                .iter()
                .map(|call| said_call(call, request.toolbox, secrets))
                .collect(),
        },
        Message::Tool { content, is_error, .. } => {
            Said::Tool { call: None, content: Some(text(content)), is_error: *is_error }
        }
    };
    request
        .history
        .iter()
        .map(|message| {
            let mut said = said(message);
            match (message, &mut said) {
                (Message::Assistant { tool_calls, .. }, _) => asked = tool_calls,
                (Message::Tool { tool_call_id, .. }, Said::Tool { call, .. }) => {
                    *call = position(asked, *tool_call_id);
                }
                (Message::User { .. } | Message::System { .. } | Message::Tool { .. }, _) => {}
            }
            said
        })
        .collect()
}

fn position(asked: &[ToolCall], id: ToolCallId) -> Option<usize> {
    asked.iter().position(|call| call.id == id)
}

fn said_call(call: &ToolCall, toolbox: &Toolbox, secrets: &Secrets) -> SaidCall {
    let (server, tool) = tool_name(&call.server, &call.tool, toolbox, secrets);
    SaidCall {
        server,
        tool,
        arguments: secrets.removed_from_fields(call.arguments.clone()),
        signature: call.signature.as_ref().map(|signature| secrets.removed_from(signature)),
    }
}

/// A tool's name as a model said it. The name of a tool that there is stays as it is, or it could
/// not be found again.
pub(super) fn tool_name(
    server: &str,
    tool: &str,
    toolbox: &Toolbox,
    secrets: &Secrets,
) -> (String, String) {
    if toolbox.find(server, tool).is_some() {
        (server.to_owned(), tool.to_owned())
    } else {
        (secrets.removed_from(server), secrets.removed_from(tool))
    }
}

impl Said {
    /// How an answer becomes a message.
    pub(super) fn of_answer(answer: &Answer) -> Self {
        let tool_calls = answer.tool_calls.iter().map(|asked| SaidCall {
            server: asked.server.clone(),
            tool: asked.tool.clone(),
            arguments: match &asked.arguments {
                Arguments::Arguments(arguments) => arguments.clone(),
                // What was wrong with them is in the answer to the call.
                Arguments::Unreadable { .. } => Map::new(),
            },
            signature: asked.signature.clone(),
        });
        Self::Assistant { content: answer.content.clone(), tool_calls: tool_calls.collect() }
    }

    pub(super) fn is_answer(&self) -> bool {
        match self {
            Self::Assistant { .. } => true,
            Self::User { .. } | Self::Tool { .. } | Self::System { .. } => false,
        }
    }

    fn tell(&self, text: &mut String) {
        match self {
            Self::User { content } => tell(text, "user", content.as_str()),
            Self::System { content } => tell(text, "system", content.as_str()),
            Self::Assistant { content, tool_calls } => {
                tell(text, "assistant", content.as_str());
                for call in tool_calls {
                    let arguments = Value::Object(call.arguments.clone());
                    let _ = writeln!(text, "  asks for {} {arguments}", call.name());
                }
            }
            Self::Tool { call, content, is_error } => {
                let number = call.map(|call| format!(" {call}")).unwrap_or_default();
                let failed = if *is_error { " (error)" } else { "" };
                let content = content.as_ref().map(Lines::as_str).unwrap_or_default();
                tell(text, &format!("tool{number}{failed}"), content);
            }
        }
    }
}

impl SaidCall {
    fn name(&self) -> String {
        match self.server.as_str() {
            "" => self.tool.clone(),
            server => format!("{server}/{}", self.tool),
        }
    }
}

/// One text on one line; one of several lines below its name.
fn tell(text: &mut String, name: &str, content: &str) {
    if content.contains('\n') {
        let _ = writeln!(text, "{name}:");
        for line in content.split('\n') {
            let _ = writeln!(text, "  {line}");
        }
    } else {
        let _ = writeln!(text, "{name}: {content}");
    }
}

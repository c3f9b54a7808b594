//! What a model server was sent, and whether a real one would have taken it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A wire format that a model server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// `OpenAI`'s chat completions.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's `streamGenerateContent`.
    Gemini,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Gemini];

    /// The format of an address. Like the real servers, this one knows its own addresses only.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let gemini = path.strip_prefix("/v1beta/models/");
        match path {
            "/v1/chat/completions" => Some(Self::OpenAi),
            "/v1/messages" => Some(Self::Anthropic),
            _ => gemini?.strip_suffix(":streamGenerateContent").map(|_| Self::Gemini),
        }
    }
}

/// A request that a model server got.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The wire format that its address stands for.
    pub wire: Wire,
    /// The path of its address.
    pub path: String,
    /// The query of its address.
    pub query: String,
    /// Its headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Value,
    /// Which connection it came over, counted from 0.
    pub connection: usize,
}

impl RecordedRequest {
    /// The key that was sent, wherever the provider wants it.
    pub fn key(&self) -> Option<&str> {
        let header = |name: &str| self.headers.get(name).map(String::as_str);
        match self.wire {
            Wire::OpenAi => header("authorization")?.strip_prefix("Bearer "),
            Wire::Anthropic => header("x-api-key"),
            Wire::Gemini => header("x-goog-api-key"),
        }
    }

    /// The names of the tools that the model may ask for.
    pub fn tool_names(&self) -> Vec<&str> {
        let (tools, name) = match self.wire {
            Wire::OpenAi => ("/tools", "/function/name"),
            Wire::Anthropic => ("/tools", "/name"),
            Wire::Gemini => ("/tools/0/functionDeclarations", "/name"),
        };
        list(&self.body, tools).iter().filter_map(|tool| tool.pointer(name)?.as_str()).collect()
    }

    /// How many answers of tools are in the conversation.
    pub fn tool_answers(&self) -> usize {
        self.exchanges().iter().map(|exchange| exchange.answered.len()).sum()
    }

    /// Why a real server would refuse the request.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(name) = self.tool_names().into_iter().find(|name| !is_allowed_name(name)) {
            return Some(format!("tool name {name:?} does not match ^[a-zA-Z0-9_-]{{1,64}}$"));
        }
        let names: BTreeSet<&str> = self.tool_names().into_iter().collect();
        if names.len() != self.tool_names().len() {
            return Some("Tool names must be unique.".to_owned());
        }
        let exchanges = self.exchanges();
        let unanswered = exchanges.iter().find(|exchange| exchange.asked != exchange.answered);
        if let Some(Exchange { asked, answered }) = unanswered {
            return Some(format!("tool calls {asked:?} must be answered, found {answered:?}"));
        }
        match self.wire {
            Wire::OpenAi => None,
            Wire::Anthropic => self.anthropic_problem(),
            Wire::Gemini => self.gemini_problem(),
        }
    }

    fn anthropic_problem(&self) -> Option<String> {
        if !self.headers.contains_key("anthropic-version") {
            return Some("anthropic-version: header is required".to_owned());
        }
        if self.body.get("max_tokens").and_then(Value::as_u64).is_none() {
            return Some("max_tokens: Field required".to_owned());
        }
        let temperature = self.body.get("temperature").and_then(Value::as_f64);
        if temperature.is_some_and(|temperature| temperature > 1.0) {
            return Some("temperature: range: 0..1".to_owned());
        }
        let messages = list(&self.body, "/messages");
        for message in messages {
            let blocks = list(message, "/content");
            let is_empty = |block: &Value| block.get("text").is_some_and(|text| text == "");
            if blocks.is_empty() || blocks.iter().any(is_empty) {
                return Some("messages: text content blocks must be non-empty".to_owned());
            }
            let first_other = blocks.iter().position(|block| block["type"] != "tool_result");
            let last_result = blocks.iter().rposition(|block| block["type"] == "tool_result");
            if last_result > first_other && first_other.is_some() {
                return Some("messages: tool_result blocks must come first".to_owned());
            }
        }
        alternation_problem(messages, "assistant")
    }

    fn gemini_problem(&self) -> Option<String> {
        if self.query != "alt=sse" {
            return Some("this server only streams events".to_owned());
        }
        alternation_problem(list(&self.body, "/contents"), "model")
    }

    /// Which calls were made, and which were answered right after that.
    fn exchanges(&self) -> Vec<Exchange> {
        let mut exchanges = vec![Exchange::default()];
        let (messages, model) = match self.wire {
            Wire::OpenAi => (list(&self.body, "/messages"), "assistant"),
            Wire::Anthropic => (list(&self.body, "/messages"), "assistant"),
            Wire::Gemini => (list(&self.body, "/contents"), "model"),
        };
        let mut answers_may_come = false;
        for message in messages {
            if message["role"] == model {
                exchanges.push(Exchange::default());
                answers_may_come = true;
            }
            let last = exchanges.last_mut().expect("there is always one");
            match self.wire {
                Wire::OpenAi => {
                    last.asked
                        .extend(list(message, "/tool_calls").iter().map(|call| text(&call["id"])));
                    if message["role"] == "tool" && answers_may_come {
                        last.answered.push(text(&message["tool_call_id"]));
                    } else if message["role"] != model {
                        // Answers come before anything else, or not at all.
                        answers_may_come = false;
                    }
                }
                Wire::Anthropic => {
                    for block in list(message, "/content") {
                        match block["type"].as_str() {
                            Some("tool_use") => last.asked.push(text(&block["id"])),
                            Some("tool_result") => last.answered.push(text(&block["tool_use_id"])),
                            _ => {}
                        }
                    }
                }
                Wire::Gemini => {
                    let identity =
                        |part: &Value| format!("{} {}", text(&part["id"]), text(&part["name"]));
                    for part in list(message, "/parts") {
                        last.asked.extend(part.get("functionCall").map(identity));
                        last.answered.extend(part.get("functionResponse").map(identity));
                    }
                }
            }
        }
        for exchange in &mut exchanges {
            exchange.asked.sort_unstable();
            exchange.answered.sort_unstable();
        }
        exchanges
    }
}

#[derive(Debug, Default)]
struct Exchange {
    asked: Vec<String>,
    answered: Vec<String>,
}

fn alternation_problem(messages: &[Value], model: &str) -> Option<String> {
    for (index, message) in messages.iter().enumerate() {
        let expected = if index % 2 == 0 { "user" } else { model };
        if message["role"] != expected {
            return Some(format!("roles must alternate: message {index} is not from {expected}"));
        }
    }
    if messages.is_empty() {
        Some("messages: at least one message is required".into())
    } else {
        None
    }
}

fn is_allowed_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

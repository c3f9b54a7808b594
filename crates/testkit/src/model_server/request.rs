//! Requests to the fake model server, and their validation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A wire format that a model server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFormat {
    /// `OpenAI`'s chat completions.
    OpenAi,
    /// `OpenAI`'s responses.
    OpenAiResponses,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's `streamGenerateContent`.
    Gemini,
}

impl WireFormat {
    /// The formats that Polity speaks.
    pub const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Gemini];

    /// The format of a path. Like the real servers, this one serves only its own paths.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let gemini = path.strip_prefix("/v1beta/models/");
        match path {
            "/v1/chat/completions" => Some(Self::OpenAi),
            "/v1/responses" => Some(Self::OpenAiResponses),
            "/v1/messages" => Some(Self::Anthropic),
            _ => gemini?.strip_suffix(":streamGenerateContent").map(|_| Self::Gemini),
        }
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The wire format of its path.
    pub wire: WireFormat,
    /// The path of its address.
    pub path: String,
    /// The query of its address.
    pub query: String,
    /// Its headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Value,
    /// The number of the connection, from 0.
    pub connection: usize,
}

impl RecordedRequest {
    /// The API key, from the place that the provider uses.
    pub fn key(&self) -> Option<&str> {
        let header = |name: &str| self.headers.get(name).map(String::as_str);
        match self.wire {
            WireFormat::OpenAi | WireFormat::OpenAiResponses => {
                header("authorization")?.strip_prefix("Bearer ")
            }
            WireFormat::Anthropic => header("x-api-key"),
            WireFormat::Gemini => header("x-goog-api-key"),
        }
    }

    /// The names of the offered tools.
    pub fn tool_names(&self) -> Vec<&str> {
        let (tools, name) = match self.wire {
            WireFormat::OpenAi => ("/tools", "/function/name"),
            WireFormat::OpenAiResponses | WireFormat::Anthropic => ("/tools", "/name"),
            WireFormat::Gemini => ("/tools/0/functionDeclarations", "/name"),
        };
        list(&self.body, tools).iter().filter_map(|tool| tool.pointer(name)?.as_str()).collect()
    }

    /// The number of tool answers in the conversation.
    pub fn tool_answers(&self) -> usize {
        self.exchanges().iter().map(|exchange| exchange.answered.len()).sum()
    }

    /// The reason why a real server would refuse the request.
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
        if let Some(CallExchange { asked, answered }) = unanswered {
            return Some(format!("tool calls {asked:?} must be answered, found {answered:?}"));
        }
        match self.wire {
            WireFormat::OpenAi | WireFormat::OpenAiResponses => None,
            WireFormat::Anthropic => self.anthropic_problem(),
            WireFormat::Gemini => self.gemini_problem(),
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

    /// The calls of the conversation and the answers right after them.
    fn exchanges(&self) -> Vec<CallExchange> {
        let mut exchanges = vec![CallExchange::default()];
        let (messages, model) = match self.wire {
            WireFormat::OpenAi | WireFormat::Anthropic => {
                (list(&self.body, "/messages"), "assistant")
            }
            WireFormat::OpenAiResponses => (list(&self.body, "/input"), "assistant"),
            WireFormat::Gemini => (list(&self.body, "/contents"), "model"),
        };
        let mut answers_may_come = false;
        for message in messages {
            let is_models = message["role"] == model;
            // An answer after anything else belongs to no call.
            let is_stray = message["role"] == "tool" && !answers_may_come;
            if is_models || is_stray {
                exchanges.push(CallExchange::default());
            }
            answers_may_come = is_models || (message["role"] == "tool" && answers_may_come);
            let last = exchanges.last_mut().expect("there is always one");
            match self.wire {
                WireFormat::OpenAi => {
                    last.asked
                        .extend(list(message, "/tool_calls").iter().map(|call| text(&call["id"])));
                    last.answered.extend(message.get("tool_call_id").map(text));
                }
                WireFormat::OpenAiResponses => match message["type"].as_str() {
                    Some("function_call") => last.asked.push(text(&message["call_id"])),
                    Some("function_call_output") => last.answered.push(text(&message["call_id"])),
                    _ => {}
                },
                WireFormat::Anthropic => {
                    for block in list(message, "/content") {
                        match block["type"].as_str() {
                            Some("tool_use") => last.asked.push(text(&block["id"])),
                            Some("tool_result") => last.answered.push(text(&block["tool_use_id"])),
                            _ => {}
                        }
                    }
                }
                WireFormat::Gemini => {
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
struct CallExchange {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(wire: WireFormat, body: Value) -> Option<String> {
        let (path, query) = (String::new(), "alt=sse".to_owned());
        let headers = BTreeMap::from([("anthropic-version".to_owned(), "1".to_owned())]);
        RecordedRequest { wire, path, query, headers, body, connection: 0 }.problem()
    }

    #[test]
    fn openai_refuses_unpaired_calls_and_answers() {
        let user = json!({"role": "user", "content": "x"});
        let asks = json!({"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]});
        let answers = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": ""});
        for (messages, is_valid) in [
            (json!([user, asks, answers("2"), answers("1"), user]), true),
            (json!([user, asks, answers("1")]), false),
            (json!([user, asks, answers("1"), user, answers("2")]), false),
            (json!([user, answers("1")]), false),
            (json!([user, asks, answers("1"), answers("3")]), false),
        ] {
            let found = problem(WireFormat::OpenAi, json!({"messages": messages}));
            assert_eq!(found.is_none(), is_valid, "{messages}: {found:?}");
        }
        let tools = json!([{"function": {"name": "files/read"}}]);
        assert!(problem(WireFormat::OpenAi, json!({"messages": [user], "tools": tools})).is_some());
    }

    #[test]
    fn responses_refuse_unpaired_calls_and_outputs() {
        let item = |kind: &str, id: &str| json!({"type": kind, "call_id": id});
        let (call, output) = (item("function_call", "1"), item("function_call_output", "1"));
        let message = json!({"type": "message", "role": "assistant", "content": []});
        for (input, is_valid) in [
            (json!([message, call, output, message]), true),
            (json!([call]), false),
            (json!([output]), false),
            (json!([call, message, output]), false),
        ] {
            let found = problem(WireFormat::OpenAiResponses, json!({"input": input}));
            assert_eq!(found.is_none(), is_valid, "{input}: {found:?}");
        }
    }

    #[test]
    fn anthropic_refuses_bad_roles_and_late_results() {
        let text = json!({"type": "text", "text": "x"});
        let user = json!({"role": "user", "content": [text]});
        let asks = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]});
        let result = json!({"type": "tool_result", "tool_use_id": "1"});
        for (messages, is_valid) in [
            (json!([user, asks, {"role": "user", "content": [result, text]}]), true),
            (json!([user, asks, {"role": "user", "content": [text, result]}]), false),
            (json!([user, asks, user]), false),
            (json!([user, user]), false),
            (json!([asks, {"role": "user", "content": [result]}]), false),
            (json!([{"role": "user", "content": []}]), false),
        ] {
            let body = json!({"max_tokens": 1, "messages": messages});
            let found = problem(WireFormat::Anthropic, body);
            assert_eq!(found.is_none(), is_valid, "{messages}: {found:?}");
        }
    }

    #[test]
    fn gemini_refuses_answers_under_another_name() {
        let user = json!({"role": "user", "parts": [{"text": "x"}]});
        let asks = json!({"role": "model", "parts": [{"functionCall": {"id": "1", "name": "a"}}]});
        let answers = |name: &str| json!({"role": "user", "parts": [{"functionResponse": {"id": "1", "name": name}}]});
        for (contents, is_valid) in [
            (json!([user, asks, answers("a")]), true),
            (json!([user, asks, answers("b")]), false),
            (json!([user, asks, user]), false),
            (json!([user, user]), false),
        ] {
            let found = problem(WireFormat::Gemini, json!({"contents": contents}));
            assert_eq!(found.is_none(), is_valid, "{contents}: {found:?}");
        }
    }
}

//! The wire format of `OpenAI`'s chat completions, which Ollama and many others speak too.

use polity_definition::LlmProvider;
use polity_engine::driver::Progress;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Fault;
use super::names::wire_name;
use super::turns::{Text, Turn};
use super::wire::{
    Answer, AnsweredCall, ArgumentsSchema, Heard, Listener, Piece, Prompt, add_text,
    arguments_from_text, parse,
};

/// The data of the event that ends a stream.
const DONE: &[u8] = b"[DONE]";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    messages: Vec<MessageBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolBody<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum MessageBody<'a> {
    System {
        content: &'a str,
    },
    User {
        content: String,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<CallBody>,
    },
    Tool {
        tool_call_id: String,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct CallBody {
    id: String,
    r#type: &'static str,
    function: FunctionCall,
}

#[derive(Serialize)]
struct FunctionCall {
    name: String,
    arguments: String,
}

#[derive(Serialize)]
struct ToolBody<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: ArgumentsSchema<'a>,
}

/// The body of a request.
pub(super) fn body(prompt: &Prompt<'_>, provider: LlmProvider) -> serde_json::Result<Vec<u8>> {
    let mut messages = vec![MessageBody::System { content: prompt.system }];
    for turn in prompt.turns {
        add_turn(&mut messages, turn, provider)?;
    }
    let tools = prompt.tools.iter().map(|(name, tool)| ToolBody {
        r#type: "function",
        function: Function {
            name,
            description: &tool.description,
            parameters: ArgumentsSchema(&tool.input_schema),
        },
    });
    serde_json::to_vec(&Body {
        model: prompt.model,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        temperature: prompt.temperature,
        messages,
        tools: tools.collect(),
    })
}

fn add_turn<'a>(
    messages: &mut Vec<MessageBody<'a>>,
    turn: &'a Turn<'a>,
    provider: LlmProvider,
) -> serde_json::Result<()> {
    match turn {
        Turn::Told { answers, texts } => {
            messages.extend(answers.iter().map(|answer| MessageBody::Tool {
                tool_call_id: answer.call.id.to_string(),
                content: answer.content,
            }));
            messages.extend(texts.iter().map(|text| match text {
                // The templates of many open models allow a system message at the beginning only.
                Text::Instruction(content) if provider == LlmProvider::OpenAi => {
                    MessageBody::System { content }
                }
                Text::Instruction(_) | Text::User(_) => {
                    MessageBody::User { content: text.for_user() }
                }
            }));
        }
        Turn::Said { texts, calls } => {
            let calls = calls.iter().map(|call| {
                let arguments = serde_json::to_string(&call.arguments)?;
                let name = wire_name(&call.server, &call.tool);
                let function = FunctionCall { name, arguments };
                Ok(CallBody { id: call.id.to_string(), r#type: "function", function })
            });
            messages.push(MessageBody::Assistant {
                content: (!texts.is_empty()).then(|| texts.join("\n\n")),
                tool_calls: calls.collect::<serde_json::Result<_>>()?,
            });
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<UsageChunk>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Piece<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Piece<'a>>,
    #[serde(borrow)]
    refusal: Option<Piece<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallPiece<'a>>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    index: Option<usize>,
    #[serde(borrow)]
    id: Option<Piece<'a>>,
    #[serde(borrow)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow)]
    name: Option<Piece<'a>>,
    #[serde(borrow)]
    arguments: Option<Piece<'a>>,
}

#[derive(Deserialize)]
struct UsageChunk {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

/// Puts an answer together.
#[derive(Default)]
pub(super) struct OpenAiListener {
    answer: Answer,
    calls: Vec<GrowingCall>,
    finish_reason: Option<String>,
    done: bool,
}

struct GrowingCall {
    index: Option<usize>,
    id: String,
    name: String,
    arguments: String,
}

impl Listener for OpenAiListener {
    fn hear(&mut self, data: &[u8], progress: &dyn Progress) -> Result<(), Fault> {
        if data.trim_ascii() == DONE {
            self.done = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = parse(data)?;
        if let Some(error) = &chunk.error {
            return Err(Fault::in_stream(error));
        }
        if let Some(usage) = chunk.usage {
            self.answer.input_tokens = usage.prompt_tokens.unwrap_or(0);
            self.answer.output_tokens = usage.completion_tokens.unwrap_or(0);
        }
        // Only one answer was asked for.
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
        if let Some(delta) = choice.delta {
            for piece in [delta.content, delta.refusal].into_iter().flatten() {
                add_text(&mut self.answer.content, &piece.0, progress);
            }
            for piece in delta.tool_calls.into_iter().flatten() {
                self.add_call(piece);
            }
        }
        if let Some(reason) = choice.finish_reason {
            self.finish_reason = Some(reason.0.into_owned());
        }
        Ok(())
    }

    fn heard(&self) -> Heard {
        match (self.done, &self.finish_reason) {
            (true, _) => Heard::All,
            (false, Some(_)) => Heard::Enough,
            (false, None) => Heard::Part,
        }
    }

    fn answer(self: Box<Self>) -> Result<Answer, Fault> {
        let mut answer = self.answer;
        answer.calls = self
            .calls
            .into_iter()
            .map(|call| AnsweredCall {
                name: call.name,
                arguments: arguments_from_text(call.arguments),
                signature: None,
            })
            .collect();
        answer.is_cut = self.finish_reason.as_deref() == Some("length");
        let is_empty = answer.content.is_empty() && answer.calls.is_empty();
        match self.finish_reason.as_deref() {
            Some("content_filter") if is_empty => Err(Fault::withheld("content_filter")),
            Some(_) | None => Ok(answer),
        }
    }
}

impl OpenAiListener {
    /// A piece belongs to the call with its index. Some servers give all calls the same index, or
    /// none; then a new id begins a new call, or a name where there are no ids either.
    fn add_call(&mut self, piece: CallPiece<'_>) {
        let id = piece.id.map(|id| id.0).unwrap_or_default();
        let names = piece.function.as_ref().is_some_and(|function| function.name.is_some());
        let begins = names && id.is_empty() && piece.index.is_none();
        let belongs = |call: &GrowingCall| {
            let same_id = id.is_empty() || call.id.is_empty() || call.id == id;
            call.index == piece.index && same_id && !begins
        };
        let position = self.calls.iter().rposition(belongs).unwrap_or_else(|| {
            let (name, arguments) = (String::new(), String::new());
            let id = id.clone().into_owned();
            self.calls.push(GrowingCall { index: piece.index, id, name, arguments });
            self.calls.len() - 1
        });
        let call = &mut self.calls[position];
        if let Some(function) = piece.function {
            // Some servers repeat the name in every piece.
            if let Some(name) = function.name.filter(|_| call.name.is_empty()) {
                call.name = name.0.into_owned();
            }
            if let Some(arguments) = function.arguments {
                call.arguments.push_str(&arguments.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use polity_engine::driver::Unheard;

    use super::*;

    fn calls(events: &[&str]) -> Vec<String> {
        let mut listener = Box::<OpenAiListener>::default();
        for event in events {
            listener.hear(event.as_bytes(), &Unheard).unwrap();
        }
        let answer = listener.answer().unwrap();
        answer.calls.into_iter().map(|call| format!("{} {:?}", call.name, call.arguments)).collect()
    }

    fn delta(tool_calls: &str) -> String {
        format!(r#"{{"choices":[{{"delta":{{"tool_calls":{tool_calls}}}}}]}}"#)
    }

    #[test]
    fn calls_are_told_apart_by_index_or_by_id() {
        let expected = [r#"a Object({"x": Number(1)})"#, "b Object({})"];
        let by_index = [
            delta(r#"[{"index":0,"id":"1","function":{"name":"a","arguments":""}}]"#),
            delta(r#"[{"index":1,"id":"2","function":{"name":"b","arguments":"{"}}]"#),
            delta(r#"[{"index":0,"function":{"arguments":"{\"x\":"}}]"#),
            delta(
                r#"[{"index":0,"function":{"arguments":"1}"}},{"index":1,"function":{"arguments":"}"}}]"#,
            ),
        ];
        let same_index = [
            delta(r#"[{"index":0,"id":"1","function":{"name":"a","arguments":"{\"x\":1}"}}]"#),
            delta(r#"[{"index":0,"id":"2","function":{"name":"b","arguments":"{}"}}]"#),
        ];
        let no_index = [
            delta(r#"[{"id":"1","function":{"name":"a","arguments":"{\"x\":"}}]"#),
            delta(r#"[{"id":"1","function":{"name":"a","arguments":"1}"}}]"#),
            delta(r#"[{"id":"2","function":{"name":"b"}}]"#),
        ];
        let nothing = [
            delta(r#"[{"function":{"name":"a","arguments":"{\"x\":1}"}}]"#),
            delta(r#"[{"function":{"name":"b","arguments":"{}"}}]"#),
        ];
        for events in [&by_index[..], &same_index, &no_index, &nothing] {
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            assert_eq!(calls(&events), expected);
        }
    }

    #[test]
    fn a_stream_is_complete_with_a_reason_and_over_with_done() {
        let mut listener = OpenAiListener::default();
        assert_eq!(listener.heard(), Heard::Part);
        let last = br#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
        listener.hear(last, &Unheard).unwrap();
        assert_eq!(listener.heard(), Heard::Enough);
        listener.hear(br#"{"choices":[],"usage":{"prompt_tokens":3}}"#, &Unheard).unwrap();
        listener.hear(b"[DONE]", &Unheard).unwrap();
        assert_eq!(listener.heard(), Heard::All);
        assert_eq!(listener.answer.input_tokens, 3);
    }
}

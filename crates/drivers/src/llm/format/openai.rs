//! The format of `OpenAI`'s chat completions, also used by Ollama and many others.

use polity_definition::LlmProvider;
use polity_engine::driver::{AnswerEnding, TextSink};
use polity_model::failure::WithheldReason;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::error::ModelCallError;
use super::tool_names::wire_name;
use super::turns::{PromptText, PromptTurn};
use super::{
    AnswerToolCall, ArgumentsSchema, ModelAnswer, ModelPrompt, StreamDecoder, StreamState,
    append_text, parse_arguments, parse_cut_arguments, parse_event, token_count,
};

/// The data of the event that ends a stream.
const DONE: &[u8] = b"[DONE]";

#[derive(Serialize)]
struct OpenAiBody<'a> {
    model: &'a str,
    stream: bool,
    stream_options: OpenAiStreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    messages: Vec<OpenAiMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OpenAiTool<'a>>,
}

#[derive(Serialize)]
struct OpenAiStreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum OpenAiMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: String,
    },
    Assistant {
        /// Empty beside calls without a text: null is allowed there, but some servers refuse it.
        content: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<OpenAiToolCall>,
    },
    Tool {
        tool_call_id: String,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct OpenAiToolCall {
    id: String,
    r#type: &'static str,
    function: OpenAiFunctionCall,
}

#[derive(Serialize)]
struct OpenAiFunctionCall {
    name: String,
    arguments: String,
}

#[derive(Serialize)]
struct OpenAiTool<'a> {
    r#type: &'static str,
    function: OpenAiFunction<'a>,
}

#[derive(Serialize)]
struct OpenAiFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: ArgumentsSchema<'a>,
}

pub(crate) fn encode_body(
    prompt: &ModelPrompt<'_>,
    provider: LlmProvider,
) -> serde_json::Result<Vec<u8>> {
    let mut messages = vec![OpenAiMessage::System { content: prompt.system }];
    for turn in prompt.turns {
        add_turn(&mut messages, turn, provider)?;
    }
    let tools = prompt.tools.iter().map(|(name, tool)| OpenAiTool {
        r#type: "function",
        function: OpenAiFunction {
            name,
            description: &tool.description,
            parameters: ArgumentsSchema(&tool.input_schema),
        },
    });
    serde_json::to_vec(&OpenAiBody {
        model: prompt.model,
        stream: true,
        stream_options: OpenAiStreamOptions { include_usage: true },
        temperature: prompt.temperature,
        messages,
        tools: tools.collect(),
    })
}

fn add_turn<'a>(
    messages: &mut Vec<OpenAiMessage<'a>>,
    turn: &'a PromptTurn<'a>,
    provider: LlmProvider,
) -> serde_json::Result<()> {
    match turn {
        PromptTurn::User { answers, texts } => {
            messages.extend(answers.iter().map(|answer| OpenAiMessage::Tool {
                tool_call_id: answer.call.id.to_string(),
                content: answer.content,
            }));
            messages.extend(texts.iter().map(|text| match text {
                // The prompt templates of many open models allow only a leading system message.
                PromptText::Instruction(content) if provider == LlmProvider::OpenAi => {
                    OpenAiMessage::System { content }
                }
                PromptText::Instruction(_) | PromptText::User(_) => {
                    OpenAiMessage::User { content: text.for_user() }
                }
            }));
        }
        PromptTurn::Assistant { texts, calls } => {
            let calls = calls.iter().map(|call| {
                let arguments = serde_json::to_string(&call.arguments)?;
                let name = wire_name(&call.server, &call.tool);
                let function = OpenAiFunctionCall { name, arguments };
                Ok(OpenAiToolCall { id: call.id.to_string(), r#type: "function", function })
            });
            messages.push(OpenAiMessage::Assistant {
                content: texts.join("\n\n"),
                tool_calls: calls.collect::<serde_json::Result<_>>()?,
            });
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct OpenAiChunk {
    choices: Option<Vec<OpenAiChoice>>,
    usage: Option<OpenAiUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct OpenAiChoice {
    delta: Option<OpenAiDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiDelta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<OpenAiCallDelta>>,
}

#[derive(Deserialize)]
struct OpenAiCallDelta {
    index: Option<usize>,
    id: Option<String>,
    function: Option<OpenAiFunctionDelta>,
}

#[derive(Deserialize)]
struct OpenAiFunctionDelta {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    #[serde(default, deserialize_with = "token_count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    completion_tokens: Option<u64>,
}

#[derive(Default)]
pub(crate) struct OpenAiDecoder {
    answer: ModelAnswer,
    calls: Vec<PartialToolCall>,
    finish_reason: Option<String>,
    /// True if the text is a refusal.
    has_refusal: bool,
    done: bool,
}

struct PartialToolCall {
    index: Option<usize>,
    id: String,
    name: String,
    arguments: String,
}

impl StreamDecoder for OpenAiDecoder {
    fn push_event(&mut self, data: &[u8], progress: &dyn TextSink) -> Result<(), ModelCallError> {
        if data.trim_ascii() == DONE {
            // A server that gives up a running answer for another request ends it this way.
            if self.finish_reason.is_none() {
                return Err(ModelCallError::interrupted("[DONE] came without a finish_reason"));
            }
            self.done = true;
            return Ok(());
        }
        let chunk: OpenAiChunk = parse_event(data)?;
        if let Some(error) = &chunk.error {
            return Err(ModelCallError::from_stream_event(error));
        }
        if let Some(usage) = chunk.usage {
            self.answer.input_tokens = usage.prompt_tokens.or(self.answer.input_tokens);
            self.answer.output_tokens = usage.completion_tokens.or(self.answer.output_tokens);
        }
        // The request asks for one choice.
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
        if let Some(delta) = choice.delta {
            self.has_refusal |= delta.refusal.as_ref().is_some_and(|piece| !piece.is_empty());
            for piece in [delta.content, delta.refusal].into_iter().flatten() {
                append_text(&mut self.answer.content, &piece, progress);
            }
            for piece in delta.tool_calls.into_iter().flatten() {
                self.add_call(piece);
            }
        }
        self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        Ok(())
    }

    fn state(&self) -> StreamState {
        match (self.done, &self.finish_reason) {
            (true, _) => StreamState::Ended,
            (false, Some(_)) => StreamState::Complete,
            (false, None) => StreamState::Incomplete,
        }
    }

    fn tokens(&self) -> (Option<u64>, Option<u64>) {
        (self.answer.input_tokens, self.answer.output_tokens)
    }

    fn finish(self: Box<Self>) -> Result<ModelAnswer, ModelCallError> {
        let mut answer = self.answer;
        answer.ending = match self.finish_reason.as_deref() {
            Some("model_context_window_exceeded")
                if answer.content.is_empty() && self.calls.is_empty() =>
            {
                return Err(ModelCallError::context_exhausted());
            }
            Some(reason) => ending_of(reason)?,
            None => AnswerEnding::Complete,
        };
        if self.has_refusal && answer.ending == AnswerEnding::Complete {
            answer.ending = AnswerEnding::Withheld(WithheldReason::Refused);
        }
        let parse = if answer.ending.is_cut() { parse_cut_arguments } else { parse_arguments };
        let calls = self.calls.into_iter().map(|call| AnswerToolCall {
            name: call.name,
            arguments: parse(call.arguments),
            signature: None,
        });
        answer.calls = calls.collect();
        answer.stop_reason = self.finish_reason;
        Ok(answer)
    }
}

/// The ending that a `finish_reason` stands for. Compatible servers have words of their own.
fn ending_of(finish_reason: &str) -> Result<AnswerEnding, ModelCallError> {
    match finish_reason.to_lowercase().as_str() {
        "" | "stop" | "stop_sequence" | "stop_token" | "eos" | "eos_token" | "end" | "end_turn"
        | "complete" | "completed" | "done" | "finished" | "tool_calls" | "tool_call"
        | "tool_use" | "function_call" => Ok(AnswerEnding::Complete),
        "content_filter" | "sensitive" => Ok(AnswerEnding::Withheld(WithheldReason::Filtered)),
        "refusal" => Ok(AnswerEnding::Withheld(WithheldReason::Refused)),
        "error" | "abort" | "network_error" | "insufficient_system_resource" => {
            Err(ModelCallError::broken_off(finish_reason))
        }
        // A token limit, a full context window, or a reason that nobody knows yet: the answer may
        // lack its end.
        _ => Ok(AnswerEnding::Truncated),
    }
}

impl OpenAiDecoder {
    /// Adds a delta to the call with its index. Some servers give all calls the same index, or
    /// none: then a new id starts a call, or a name if there are no ids.
    fn add_call(&mut self, piece: OpenAiCallDelta) {
        let id = piece.id.unwrap_or_default();
        let names = piece.function.as_ref().is_some_and(|function| function.name.is_some());
        let begins = names && id.is_empty() && piece.index.is_none();
        let belongs = |call: &PartialToolCall| {
            let same_id = id.is_empty() || call.id.is_empty() || call.id == id;
            call.index == piece.index && same_id && !begins
        };
        let position = self.calls.iter().rposition(belongs).unwrap_or_else(|| {
            let (name, arguments) = (String::new(), String::new());
            let id = id.clone();
            self.calls.push(PartialToolCall { index: piece.index, id, name, arguments });
            self.calls.len() - 1
        });
        let call = &mut self.calls[position];
        if let Some(function) = piece.function {
            // Some servers repeat the name in every delta.
            if let Some(name) = function.name.filter(|_| call.name.is_empty()) {
                call.name = name;
            }
            call.arguments.extend(function.arguments);
        }
    }
}

#[cfg(test)]
mod tests {
    use polity_engine::driver::NullTextSink;

    use super::*;

    fn calls(events: &[&str]) -> Vec<String> {
        let mut decoder = Box::<OpenAiDecoder>::default();
        for event in events {
            decoder.push_event(event.as_bytes(), &NullTextSink).unwrap();
        }
        let answer = decoder.finish().unwrap();
        answer.calls.into_iter().map(|call| format!("{} {:?}", call.name, call.arguments)).collect()
    }

    fn delta(tool_calls: &str) -> String {
        format!(r#"{{"choices":[{{"delta":{{"tool_calls":{tool_calls}}}}}]}}"#)
    }

    #[test]
    fn separates_calls_by_index_or_id() {
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
    fn answer_with_an_unknown_finish_reason_is_not_complete() {
        for (reason, ending) in [
            ("stop", AnswerEnding::Complete),
            ("COMPLETE", AnswerEnding::Complete),
            ("eos", AnswerEnding::Complete),
            ("tool_calls", AnswerEnding::Complete),
            ("length", AnswerEnding::Truncated),
            ("model_context_window_exceeded", AnswerEnding::Truncated),
            ("repetition", AnswerEnding::Truncated),
            ("content_filter", AnswerEnding::Withheld(WithheldReason::Filtered)),
        ] {
            assert_eq!(ending_of(reason).unwrap(), ending, "{reason}");
        }
        assert!(ending_of("error").is_err());
        let mut decoder = Box::<OpenAiDecoder>::default();
        let last = br#"{"choices":[{"finish_reason":"model_context_window_exceeded"}]}"#;
        decoder.push_event(last, &NullTextSink).unwrap();
        assert!(decoder.finish().unwrap_err().context_full);
    }

    #[test]
    fn finish_reason_completes_and_done_ends_the_stream() {
        let mut decoder = OpenAiDecoder::default();
        assert_eq!(decoder.state(), StreamState::Incomplete);
        let last = br#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
        decoder.push_event(last, &NullTextSink).unwrap();
        assert_eq!(decoder.state(), StreamState::Complete);
        decoder
            .push_event(br#"{"choices":[],"usage":{"prompt_tokens":3}}"#, &NullTextSink)
            .unwrap();
        decoder.push_event(b"[DONE]", &NullTextSink).unwrap();
        assert_eq!(decoder.state(), StreamState::Ended);
        assert_eq!(decoder.answer.input_tokens, Some(3));
    }
}

//! The format of Anthropic's Messages API.

use std::collections::BTreeMap;

use polity_engine::driver::{AnswerEnding, TextSink};
use polity_model::failure::WithheldReason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::error::ModelCallError;
use super::tool_names::wire_name;
use super::turns::PromptTurn;
use super::{
    AnswerToolCall, ArgumentsSchema, ModelAnswer, ModelPrompt, StreamDecoder, StreamState,
    append_text, parse_arguments, parse_cut_arguments, parse_event, token_count,
};

/// The `anthropic-version` that this module implements.
pub(crate) const API_VERSION: &str = "2023-06-01";

/// The token limit of one answer. The API requires a limit, and every current model supports this
/// one.
const ANSWER_TOKENS_MAX: u32 = 32_000;

/// The highest temperature that the API accepts; definitions allow up to 2.
const TEMPERATURE_MAX: f64 = 1.0;

#[derive(Serialize)]
struct AnthropicBody<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    system: &'a str,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: &'static str,
    content: Vec<AnthropicBlock<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock<'a> {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: &'a Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    #[serde(untagged)]
    Thought(AnthropicThought),
}

/// A block of reasoning. The API wants it back unchanged together with the calls that follow it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicThought {
    Thinking { thinking: String, signature: String },
    RedactedThinking { data: String },
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: ArgumentsSchema<'a>,
}

pub(crate) fn encode_body(prompt: &ModelPrompt<'_>) -> serde_json::Result<Vec<u8>> {
    let tools = prompt.tools.iter().map(|(name, tool)| AnthropicTool {
        name,
        description: &tool.description,
        input_schema: ArgumentsSchema(&tool.input_schema),
    });
    serde_json::to_vec(&AnthropicBody {
        model: prompt.model,
        max_tokens: ANSWER_TOKENS_MAX,
        stream: true,
        temperature: prompt.temperature.map(|temperature| temperature.min(TEMPERATURE_MAX)),
        system: prompt.system,
        messages: prompt.turns.iter().map(message).collect(),
        tools: tools.collect(),
    })
}

fn message<'a>(turn: &'a PromptTurn<'a>) -> AnthropicMessage<'a> {
    match turn {
        PromptTurn::User { answers, texts } => {
            let results = answers.iter().map(|answer| AnthropicBlock::ToolResult {
                tool_use_id: answer.call.id.to_string(),
                content: answer.content,
                is_error: answer.is_error,
            });
            let texts = texts.iter().map(|text| AnthropicBlock::Text { text: text.for_user() });
            AnthropicMessage { role: "user", content: results.chain(texts).collect() }
        }
        PromptTurn::Assistant { texts, calls } => {
            let mut content = Vec::with_capacity(texts.len() + calls.len() + 1);
            // Thinking blocks precede the text, in the order in which they were streamed.
            let mut thoughts = calls.iter().map(|call| decode_thoughts(call.signature.as_deref()));
            content.extend(thoughts.next().into_iter().flatten());
            content
                .extend(texts.iter().map(|text| AnthropicBlock::Text { text: (*text).to_owned() }));
            for (index, call) in calls.iter().enumerate() {
                if index > 0 {
                    content.extend(thoughts.next().into_iter().flatten());
                }
                content.push(AnthropicBlock::ToolUse {
                    id: call.id.to_string(),
                    name: wire_name(&call.server, &call.tool),
                    input: &call.arguments,
                });
            }
            AnthropicMessage { role: "assistant", content }
        }
    }
}

fn decode_thoughts<'a>(
    signature: Option<&str>,
) -> impl Iterator<Item = AnthropicBlock<'a>> + use<'a> {
    let thoughts: Vec<AnthropicThought> =
        signature.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    thoughts.into_iter().map(AnthropicBlock::Thought)
}

#[derive(Deserialize)]
struct AnthropicEvent {
    r#type: String,
    index: Option<u32>,
    message: Option<AnthropicMessageStart>,
    content_block: Option<AnthropicBlockStart>,
    delta: Option<AnthropicDelta>,
    usage: Option<AnthropicUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct AnthropicMessageStart {
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are the provider's")]
struct AnthropicUsage {
    #[serde(default, deserialize_with = "token_count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct AnthropicBlockStart {
    r#type: String,
    text: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct AnthropicDelta {
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Default)]
pub(crate) struct AnthropicDecoder {
    answer: ModelAnswer,
    blocks: BTreeMap<u32, PartialBlock>,
    stop_reason: Option<String>,
    stopped: bool,
}

enum PartialBlock {
    Call { name: String, input: Option<Value>, arguments: String },
    Thought(AnthropicThought),
}

impl StreamDecoder for AnthropicDecoder {
    fn push_event(&mut self, data: &[u8], progress: &dyn TextSink) -> Result<(), ModelCallError> {
        let event: AnthropicEvent = parse_event(data)?;
        if let Some(error) = &event.error {
            return Err(ModelCallError::from_stream_event(error));
        }
        let index = event.index.unwrap_or_default();
        if let Some(usage) = event.message.and_then(|message| message.usage).or(event.usage) {
            self.update_usage(&usage);
        }
        if let Some(block) = event.content_block {
            if let Some(text) = &block.text {
                append_text(&mut self.answer.content, text, progress);
            }
            if let Some(block) = start_block(block) {
                self.blocks.insert(index, block);
            }
        }
        if let Some(delta) = event.delta {
            if let Some(text) = &delta.text {
                append_text(&mut self.answer.content, text, progress);
            }
            if let Some(block) = self.blocks.get_mut(&index) {
                extend_block(block, &delta);
            }
            self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
        }
        if event.r#type == "message_stop" {
            if self.stop_reason.is_none() {
                return Err(ModelCallError::interrupted("message_stop came without a stop_reason"));
            }
            self.stopped = true;
        }
        Ok(())
    }

    fn state(&self) -> StreamState {
        if self.stopped { StreamState::Ended } else { StreamState::Incomplete }
    }

    fn tokens(&self) -> (Option<u64>, Option<u64>) {
        (self.answer.input_tokens, self.answer.output_tokens)
    }

    fn finish(self: Box<Self>) -> Result<ModelAnswer, ModelCallError> {
        let mut answer = self.answer;
        let is_empty = answer.content.is_empty() && self.blocks.is_empty();
        answer.ending = match self.stop_reason.as_deref() {
            Some("end_turn" | "stop_sequence" | "tool_use") | None => AnswerEnding::Complete,
            Some("refusal") => AnswerEnding::Withheld(WithheldReason::Refused),
            Some("model_context_window_exceeded") if is_empty => {
                return Err(ModelCallError::context_exhausted());
            }
            Some("max_tokens" | "model_context_window_exceeded") => AnswerEnding::Truncated,
            // `pause_turn`, after which a long turn can be continued, and reasons of later versions.
            Some(_) => AnswerEnding::Paused,
        };
        let is_cut = answer.ending.is_cut();
        let mut thoughts = Vec::new();
        for block in self.blocks.into_values() {
            match block {
                PartialBlock::Thought(thought) => thoughts.push(thought),
                PartialBlock::Call { name, input, arguments } => {
                    let arguments = match input {
                        _ if is_cut => parse_cut_arguments(arguments),
                        // Without deltas, the block start held the whole input.
                        Some(input) if arguments.is_empty() => parse_arguments(input.to_string()),
                        Some(_) | None => parse_arguments(arguments),
                    };
                    answer.calls.push(AnswerToolCall {
                        name,
                        arguments,
                        signature: encode_thoughts(&std::mem::take(&mut thoughts)),
                    });
                }
            }
        }
        answer.stop_reason = self.stop_reason;
        Ok(answer)
    }
}

impl AnthropicDecoder {
    /// Takes the newest counts, which are totals. Cache reads and writes are reported separately
    /// from other input.
    fn update_usage(&mut self, usage: &AnthropicUsage) {
        if let Some(input) = usage.input_tokens {
            let cached = [usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
            let cached = cached.into_iter().flatten().fold(0, u64::saturating_add);
            self.answer.input_tokens = Some(input.saturating_add(cached));
        }
        self.answer.output_tokens = usage.output_tokens.or(self.answer.output_tokens);
    }
}

fn start_block(block: AnthropicBlockStart) -> Option<PartialBlock> {
    match block.r#type.as_str() {
        "tool_use" => Some(PartialBlock::Call {
            name: block.name.unwrap_or_default(),
            input: block.input,
            arguments: String::new(),
        }),
        "thinking" => Some(PartialBlock::Thought(AnthropicThought::Thinking {
            thinking: block.thinking.unwrap_or_default(),
            signature: block.signature.unwrap_or_default(),
        })),
        "redacted_thinking" => Some(PartialBlock::Thought(AnthropicThought::RedactedThinking {
            data: block.data.unwrap_or_default(),
        })),
        _ => None,
    }
}

fn extend_block(block: &mut PartialBlock, delta: &AnthropicDelta) {
    let add = |text: &mut String, piece: &Option<String>| text.extend(piece.as_deref());
    match block {
        PartialBlock::Call { arguments, .. } => add(arguments, &delta.partial_json),
        PartialBlock::Thought(AnthropicThought::Thinking { thinking, signature }) => {
            add(thinking, &delta.thinking);
            add(signature, &delta.signature);
        }
        PartialBlock::Thought(AnthropicThought::RedactedThinking { .. }) => {}
    }
}

/// The thinking blocks before a call as JSON, to be stored with the call.
fn encode_thoughts(thoughts: &[AnthropicThought]) -> Option<String> {
    if thoughts.is_empty() { None } else { serde_json::to_string(thoughts).ok() }
}

#[cfg(test)]
mod tests {
    use polity_engine::driver::{AskedArguments, NullTextSink};
    use serde_json::json;

    use super::*;

    fn decode(events: &[Value]) -> Result<ModelAnswer, ModelCallError> {
        let mut decoder = Box::<AnthropicDecoder>::default();
        for event in events {
            decoder.push_event(event.to_string().as_bytes(), &NullTextSink)?;
        }
        decoder.finish()
    }

    fn stop(reason: &str) -> Value {
        json!({"type": "message_delta", "delta": {"stop_reason": reason}})
    }

    #[test]
    fn ignores_unknown_events_and_blocks() {
        let events = [
            json!({"type": "ping"}),
            json!({"type": "new_event", "delta": {"type": "new_delta", "new": 1}}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "server_tool_use", "id": "x", "name": "search"}}),
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": "{"}}),
            stop("end_turn"),
        ];
        let stop_reason = Some("end_turn".to_owned());
        assert_eq!(decode(&events), Ok(ModelAnswer { stop_reason, ..ModelAnswer::default() }));
    }

    #[test]
    fn reads_arguments_from_block_start() {
        let block = json!({"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}});
        let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
        let answer = decode(&[start, stop("tool_use")]).unwrap();
        let expected = json!({"x": 1}).as_object().unwrap().clone();
        assert_eq!(answer.calls[0].arguments, AskedArguments::Object(expected));
    }

    #[test]
    fn stop_reason_decides_the_ending() {
        for (reason, ending) in [
            ("end_turn", AnswerEnding::Complete),
            ("stop_sequence", AnswerEnding::Complete),
            ("tool_use", AnswerEnding::Complete),
            ("max_tokens", AnswerEnding::Truncated),
            ("pause_turn", AnswerEnding::Paused),
            ("a_new_reason", AnswerEnding::Paused),
            ("refusal", AnswerEnding::Withheld(WithheldReason::Refused)),
        ] {
            assert_eq!(decode(&[stop(reason)]).unwrap().ending, ending, "{reason}");
        }
        assert!(decode(&[stop("model_context_window_exceeded")]).unwrap_err().context_full);
    }

    #[test]
    fn text_before_a_full_context_window_is_kept_as_a_cut_answer() {
        let start = json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": "half"}});
        let answer = decode(&[start, stop("model_context_window_exceeded")]).unwrap();
        assert_eq!((answer.content.as_str(), answer.ending), ("half", AnswerEnding::Truncated));
    }

    #[test]
    fn call_without_arguments_in_a_cut_answer_is_unreadable() {
        let block = json!({"type": "tool_use", "id": "t", "name": "a", "input": {}});
        let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
        let answer = decode(&[start, stop("max_tokens")]).unwrap();
        assert!(matches!(answer.calls[0].arguments, AskedArguments::Unreadable { .. }));
    }

    #[test]
    fn later_usage_replaces_earlier() {
        let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 5,
            "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1}}});
        let delta = json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}});
        let answer = decode(&[start, delta]).unwrap();
        assert_eq!((answer.input_tokens, answer.output_tokens), (Some(10), Some(9)));
    }
}

//! The wire format of Anthropic's messages.

use std::collections::BTreeMap;

use polity_engine::driver::Progress;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::failure::Fault;
use super::names::wire_name;
use super::turns::Turn;
use super::wire::{
    Answer, AnsweredCall, ArgumentsSchema, Heard, Listener, Piece, Prompt, add_text,
    arguments_from_text, parse,
};

/// The version of the API that this module speaks.
pub(super) const VERSION: &str = "2023-06-01";

/// The most tokens that one answer may have. The API asks for a number, and every current model
/// can write that many.
const ANSWER_TOKENS_MAX: u32 = 32_000;

/// The highest temperature that the API accepts; definitions allow up to 2.
const TEMPERATURE_MAX: f64 = 1.0;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    system: &'a str,
    messages: Vec<MessageBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolBody<'a>>,
}

#[derive(Serialize)]
struct MessageBody<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
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
    Thought(Thought),
}

/// A block of reasoning. The API wants it back unchanged together with the calls that follow it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thought {
    Thinking { thinking: String, signature: String },
    RedactedThinking { data: String },
}

#[derive(Serialize)]
struct ToolBody<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: ArgumentsSchema<'a>,
}

/// The body of a request.
pub(super) fn body(prompt: &Prompt<'_>) -> serde_json::Result<Vec<u8>> {
    let tools = prompt.tools.iter().map(|(name, tool)| ToolBody {
        name,
        description: &tool.description,
        input_schema: ArgumentsSchema(&tool.input_schema),
    });
    serde_json::to_vec(&Body {
        model: prompt.model,
        max_tokens: ANSWER_TOKENS_MAX,
        stream: true,
        temperature: prompt.temperature.map(|temperature| temperature.min(TEMPERATURE_MAX)),
        system: prompt.system,
        messages: prompt.turns.iter().map(message).collect(),
        tools: tools.collect(),
    })
}

fn message<'a>(turn: &'a Turn<'a>) -> MessageBody<'a> {
    match turn {
        Turn::Told { answers, texts } => {
            let results = answers.iter().map(|answer| Block::ToolResult {
                tool_use_id: answer.call.id.to_string(),
                content: answer.content,
                is_error: answer.is_error,
            });
            let texts = texts.iter().map(|text| Block::Text { text: text.for_user() });
            MessageBody { role: "user", content: results.chain(texts).collect() }
        }
        Turn::Said { texts, calls } => {
            let mut content = Vec::with_capacity(texts.len() + calls.len() + 1);
            // What the model thought comes before what it said, as it did when it came.
            let mut thoughts = calls.iter().map(|call| thoughts_of(call.signature.as_deref()));
            content.extend(thoughts.next().into_iter().flatten());
            content.extend(texts.iter().map(|text| Block::Text { text: (*text).to_owned() }));
            for (index, call) in calls.iter().enumerate() {
                if index > 0 {
                    content.extend(thoughts.next().into_iter().flatten());
                }
                content.push(Block::ToolUse {
                    id: call.id.to_string(),
                    name: wire_name(&call.server, &call.tool),
                    input: &call.arguments,
                });
            }
            MessageBody { role: "assistant", content }
        }
    }
}

fn thoughts_of<'a>(signature: Option<&str>) -> impl Iterator<Item = Block<'a>> + use<'a> {
    let thoughts: Vec<Thought> =
        signature.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    thoughts.into_iter().map(Block::Thought)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Piece<'a>,
    index: Option<u32>,
    message: Option<MessageStart>,
    #[serde(borrow)]
    content_block: Option<BlockStart<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    usage: Option<UsageEvent>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<UsageEvent>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are the provider's")]
struct UsageEvent {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    #[serde(borrow)]
    r#type: Piece<'a>,
    #[serde(borrow)]
    text: Option<Piece<'a>>,
    #[serde(borrow)]
    name: Option<Piece<'a>>,
    input: Option<Value>,
    #[serde(borrow)]
    thinking: Option<Piece<'a>>,
    #[serde(borrow)]
    signature: Option<Piece<'a>>,
    #[serde(borrow)]
    data: Option<Piece<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Option<Piece<'a>>,
    #[serde(borrow)]
    partial_json: Option<Piece<'a>>,
    #[serde(borrow)]
    thinking: Option<Piece<'a>>,
    #[serde(borrow)]
    signature: Option<Piece<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Piece<'a>>,
}

/// Puts an answer together.
#[derive(Default)]
pub(super) struct AnthropicListener {
    answer: Answer,
    blocks: BTreeMap<u32, GrowingBlock>,
    stop_reason: Option<String>,
    stopped: bool,
}

enum GrowingBlock {
    Call { name: String, input: Option<Value>, arguments: String },
    Thought(Thought),
}

impl Listener for AnthropicListener {
    fn hear(&mut self, data: &[u8], progress: &dyn Progress) -> Result<(), Fault> {
        let event: Event<'_> = parse(data)?;
        if let Some(error) = &event.error {
            return Err(Fault::in_stream(error));
        }
        let index = event.index.unwrap_or_default();
        if let Some(usage) = event.message.and_then(|message| message.usage).or(event.usage) {
            self.count(&usage);
        }
        if let Some(block) = event.content_block {
            if let Some(text) = &block.text {
                add_text(&mut self.answer.content, &text.0, progress);
            }
            if let Some(block) = begin(block) {
                self.blocks.insert(index, block);
            }
        }
        if let Some(delta) = event.delta {
            if let Some(text) = &delta.text {
                add_text(&mut self.answer.content, &text.0, progress);
            }
            if let Some(block) = self.blocks.get_mut(&index) {
                grow(block, &delta);
            }
            if let Some(reason) = delta.stop_reason {
                self.stop_reason = Some(reason.0.into_owned());
            }
        }
        self.stopped |= event.r#type.0 == "message_stop";
        Ok(())
    }

    fn heard(&self) -> Heard {
        if self.stopped { Heard::All } else { Heard::Part }
    }

    fn answer(self: Box<Self>) -> Result<Answer, Fault> {
        let mut answer = self.answer;
        let mut thoughts = Vec::new();
        for block in self.blocks.into_values() {
            match block {
                GrowingBlock::Thought(thought) => thoughts.push(thought),
                GrowingBlock::Call { name, input, arguments } => {
                    // Where nothing was streamed, the block had it all when it began.
                    let arguments = match input {
                        Some(input) if arguments.is_empty() => input.to_string(),
                        Some(_) | None => arguments,
                    };
                    answer.calls.push(AnsweredCall {
                        name,
                        arguments: arguments_from_text(arguments),
                        signature: signature(&std::mem::take(&mut thoughts)),
                    });
                }
            }
        }
        answer.is_cut = self.stop_reason.as_deref() == Some("max_tokens");
        let is_empty = answer.content.is_empty() && answer.calls.is_empty();
        match self.stop_reason.as_deref() {
            Some("refusal") if is_empty => Err(Fault::withheld("refusal")),
            Some("model_context_window_exceeded") => Err(Fault::context_full(
                "the answer does not fit into the model's context window any more",
            )),
            Some(_) | None => Ok(answer),
        }
    }
}

impl AnthropicListener {
    /// Later counts replace earlier ones: they are sums. What was read from or written to the cache
    /// is counted beside the rest.
    fn count(&mut self, usage: &UsageEvent) {
        if let Some(input) = usage.input_tokens {
            let cached = [usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
            let cached = cached.into_iter().flatten().fold(0, u64::saturating_add);
            self.answer.input_tokens = input.saturating_add(cached);
        }
        if let Some(output) = usage.output_tokens {
            self.answer.output_tokens = output;
        }
    }
}

fn begin(block: BlockStart<'_>) -> Option<GrowingBlock> {
    let text =
        |piece: Option<Piece<'_>>| piece.map(|piece| piece.0.into_owned()).unwrap_or_default();
    match &*block.r#type.0 {
        "tool_use" => Some(GrowingBlock::Call {
            name: text(block.name),
            input: block.input,
            arguments: String::new(),
        }),
        "thinking" => Some(GrowingBlock::Thought(Thought::Thinking {
            thinking: text(block.thinking),
            signature: text(block.signature),
        })),
        "redacted_thinking" => {
            Some(GrowingBlock::Thought(Thought::RedactedThinking { data: text(block.data) }))
        }
        _ => None,
    }
}

fn grow(block: &mut GrowingBlock, delta: &Delta<'_>) {
    let add = |text: &mut String, piece: &Option<Piece<'_>>| {
        if let Some(piece) = piece {
            text.push_str(&piece.0);
        }
    };
    match block {
        GrowingBlock::Call { arguments, .. } => add(arguments, &delta.partial_json),
        GrowingBlock::Thought(Thought::Thinking { thinking, signature }) => {
            add(thinking, &delta.thinking);
            add(signature, &delta.signature);
        }
        GrowingBlock::Thought(Thought::RedactedThinking { .. }) => {}
    }
}

/// What came before a call, as it is kept with the call.
fn signature(thoughts: &[Thought]) -> Option<String> {
    if thoughts.is_empty() { None } else { serde_json::to_string(thoughts).ok() }
}

#[cfg(test)]
mod tests {
    use polity_engine::driver::{AskedArguments, Unheard};
    use serde_json::json;

    use super::*;

    fn listen(events: &[Value]) -> Result<Answer, Fault> {
        let mut listener = Box::<AnthropicListener>::default();
        for event in events {
            listener.hear(event.to_string().as_bytes(), &Unheard)?;
        }
        listener.answer()
    }

    fn stop(reason: &str) -> Value {
        json!({"type": "message_delta", "delta": {"stop_reason": reason}})
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        let events = [
            json!({"type": "ping"}),
            json!({"type": "new_event", "delta": {"type": "new_delta", "new": 1}}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "server_tool_use", "id": "x", "name": "search"}}),
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": "{"}}),
            stop("end_turn"),
        ];
        assert_eq!(listen(&events), Ok(Answer::default()));
    }

    #[test]
    fn arguments_may_come_with_the_beginning_of_a_call() {
        let block = json!({"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}});
        let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
        let answer = listen(&[start, stop("tool_use")]).unwrap();
        let expected = json!({"x": 1}).as_object().unwrap().clone();
        assert_eq!(answer.calls[0].arguments, AskedArguments::Object(expected));
    }

    #[test]
    fn answers_that_were_withheld_or_found_no_room_are_failures() {
        let refused = listen(&[stop("refusal")]).unwrap_err();
        assert_eq!(refused.message, "the provider withheld the answer: refusal");
        assert!(listen(&[stop("model_context_window_exceeded")]).unwrap_err().context_full);
        assert!(listen(&[stop("max_tokens")]).is_ok());
    }

    #[test]
    fn later_counts_replace_earlier_ones() {
        let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 5,
            "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1}}});
        let delta = json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}});
        let answer = listen(&[start, delta]).unwrap();
        assert_eq!((answer.input_tokens, answer.output_tokens), (10, 9));
    }
}

//! Encodings of turns and errors in the providers' formats.

use serde_json::{Value, json};

use super::request::{RecordedRequest, WireFormat};
use super::responses;
use super::turn::{ModelCall, ModelEnding, ModelFault, ModelTurn, UsageForm};

/// Splits a text in two, so that everything arrives in more than one piece.
pub(super) fn halves(text: &str) -> [&str; 2] {
    let middle = (text.len() / 2..=text.len()).find(|at| text.is_char_boundary(*at));
    let (first, second) = text.split_at(middle.unwrap_or(text.len()));
    [first, second]
}

/// The events of a complete reply.
pub(super) fn events(wire: WireFormat, turn: &ModelTurn) -> Vec<String> {
    match wire {
        WireFormat::OpenAi => openai(turn),
        WireFormat::OpenAiResponses => responses::events(turn),
        WireFormat::Anthropic => anthropic(turn),
        WireFormat::Gemini => gemini(turn),
    }
}

/// The number of trailing events that only close the reply.
pub(super) fn closing_events(wire: WireFormat) -> usize {
    match wire {
        WireFormat::OpenAi => 3,
        WireFormat::Anthropic => 2,
        WireFormat::OpenAiResponses | WireFormat::Gemini => 1,
    }
}

/// The final event without a reason for the end.
pub(super) fn end_without_reason(wire: WireFormat) -> Option<String> {
    match wire {
        WireFormat::OpenAi => Some("data: [DONE]\n\n".to_owned()),
        WireFormat::Anthropic => Some(data(&json!({"type": "message_stop"}))),
        WireFormat::OpenAiResponses | WireFormat::Gemini => None,
    }
}

/// The usage object of a reply, in the form that the turn asks for.
fn usage<const N: usize>(turn: &ModelTurn, counts: [(&str, u64); N]) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "tests use small counts")]
    let float = |count: u64| count as f64;
    let object = |number: &dyn Fn(u64) -> Value| {
        counts.iter().map(|(name, count)| ((*name).to_owned(), number(*count))).collect()
    };
    match turn.usage_form {
        UsageForm::Integers => object(&|count| json!(count)),
        UsageForm::Floats => object(&|count| json!(float(count))),
        UsageForm::Missing => Value::Null,
    }
}

pub(super) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn openai(turn: &ModelTurn) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        data(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null}))
    };
    let part = |delta: Value| chunk(delta, Value::Null);
    let mut events = vec![part(json!({"role": "assistant", "content": ""}))];
    for piece in halves(&turn.text) {
        let kind = if turn.ending == ModelEnding::Refused { "refusal" } else { "content" };
        events.push(part(json!({kind: piece})));
    }
    for (index, call) in turn.calls.iter().enumerate() {
        events.push(part(json!({"tool_calls": [{"index": index, "id": format!("call_{index}"),
            "type": "function", "function": {"name": call.name, "arguments": ""}}]})));
    }
    // Interleaves the pieces of all calls, as parallel calls may arrive.
    for half in 0..2 {
        for (index, call) in turn.calls.iter().enumerate() {
            events.push(part(json!({"tool_calls": [{"index": index,
                "function": {"arguments": halves(&call.arguments)[half]}}]})));
        }
    }
    events.push(chunk(json!({}), json!(openai_reason(turn))));
    events.push(data(&json!({"id": "chatcmpl-1", "choices": [], "usage": openai_usage(turn)})));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn openai_reason(turn: &ModelTurn) -> &'static str {
    match turn.ending {
        ModelEnding::Truncated => "length",
        ModelEnding::Filtered => "content_filter",
        // A refusal is a text of its own kind.
        ModelEnding::Complete | ModelEnding::Refused if turn.calls.is_empty() => "stop",
        ModelEnding::Complete | ModelEnding::Refused => "tool_calls",
    }
}

fn openai_usage(turn: &ModelTurn) -> Value {
    let total = turn.input_tokens + turn.output_tokens;
    let (input, output) = (turn.input_tokens, turn.output_tokens);
    usage(turn, [("prompt_tokens", input), ("completion_tokens", output), ("total_tokens", total)])
}

/// A complete reply as one document, for `OpenAI` clients that request no stream.
pub(super) fn openai_document(turn: &ModelTurn) -> Value {
    let calls = turn.calls.iter().enumerate();
    let calls: Vec<_> = calls
        .map(|(index, call)| {
            json!({"id": format!("call_{index}"), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": turn.text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": openai_reason(turn)});
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [choice], "usage": openai_usage(turn)})
}

fn anthropic(turn: &ModelTurn) -> Vec<String> {
    let event = |value: Value| {
        let kind = value["type"].as_str().unwrap_or_default();
        format!("event: {kind}\n{}", data(&value))
    };
    // Half of the input counts as cached.
    let cached = turn.input_tokens / 2;
    let mut events = vec![event(json!({"type": "message_start", "message": {"id": "msg_1",
        "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": null,
        "usage": usage(turn, [("input_tokens", turn.input_tokens - cached),
            ("cache_creation_input_tokens", 0), ("cache_read_input_tokens", cached),
            ("output_tokens", 1)])}}))];
    events.push(event(json!({"type": "ping"})));
    let mut index = 0;
    let mut block = |events: &mut Vec<String>, start: Value, deltas: Vec<Value>| {
        events.push(event(
            json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        for delta in deltas {
            events.push(event(
                json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
        }
        events.push(event(json!({"type": "content_block_stop", "index": index})));
        index += 1;
    };
    let thought = |call: &ModelCall| call.signature.clone();
    if let Some(signature) = turn.calls.iter().find_map(thought) {
        let deltas = vec![
            json!({"type": "thinking_delta", "thinking": "Let me "}),
            json!({"type": "thinking_delta", "thinking": "think."}),
            json!({"type": "signature_delta", "signature": signature}),
        ];
        block(&mut events, json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    if !turn.text.is_empty() {
        let deltas = halves(&turn.text).map(|text| json!({"type": "text_delta", "text": text}));
        block(&mut events, json!({"type": "text", "text": ""}), deltas.to_vec());
    }
    for (number, call) in turn.calls.iter().enumerate() {
        let start = json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": call.name, "input": {}});
        let deltas = halves(&call.arguments)
            .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(&mut events, start, deltas.to_vec());
    }
    let reason = match turn.ending {
        ModelEnding::Truncated => "max_tokens",
        // The API has no other word for a filter.
        ModelEnding::Refused | ModelEnding::Filtered => "refusal",
        ModelEnding::Complete if turn.calls.is_empty() => "end_turn",
        ModelEnding::Complete => "tool_use",
    };
    events.push(event(json!({"type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": usage(turn, [("output_tokens", turn.output_tokens)])})));
    events.push(event(json!({"type": "message_stop"})));
    events
}

fn gemini(turn: &ModelTurn) -> Vec<String> {
    let chunk = |parts: Vec<Value>, finish: Option<&str>| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        // Half of the output counts as thoughts.
        let thoughts = turn.output_tokens / 2;
        let counts = [
            ("promptTokenCount", turn.input_tokens),
            ("thoughtsTokenCount", thoughts),
            ("candidatesTokenCount", turn.output_tokens - thoughts),
        ];
        data(&json!({"candidates": [candidate], "modelVersion": "m",
            "usageMetadata": usage(turn, counts)}))
    };
    let thought = json!({"text": "Let me think.", "thought": true});
    let mut events = vec![chunk(vec![thought], None)];
    for piece in halves(&turn.text) {
        events.push(chunk(vec![json!({"text": piece})], None));
    }
    for call in &turn.calls {
        let mut part = json!({"functionCall": {"name": call.name}});
        if !call.arguments.is_empty() {
            // Arguments that are not JSON can only be sent as text here.
            part["functionCall"]["args"] = serde_json::from_str(&call.arguments)
                .unwrap_or_else(|_| Value::String(call.arguments.clone()));
        }
        if let Some(signature) = &call.signature {
            part["thoughtSignature"] = json!(signature);
        }
        events.push(chunk(vec![part], None));
    }
    let reason = match turn.ending {
        ModelEnding::Complete => "STOP",
        ModelEnding::Truncated => "MAX_TOKENS",
        // The API has no word for a refusal by the model.
        ModelEnding::Refused | ModelEnding::Filtered => "PROHIBITED_CONTENT",
    };
    events.push(chunk(vec![json!({"text": ""})], Some(reason)));
    events
}

/// An error in the provider's format.
pub(super) fn error(wire: WireFormat, status: u16, message: &str) -> Value {
    let kind = match (wire, status) {
        (WireFormat::OpenAi | WireFormat::OpenAiResponses, 500..=599) => "server_error",
        (WireFormat::OpenAi | WireFormat::OpenAiResponses, 429) => "rate_limit_exceeded",
        (WireFormat::OpenAi | WireFormat::OpenAiResponses, _) => "invalid_request_error",
        (WireFormat::Anthropic, 529) => "overloaded_error",
        (WireFormat::Anthropic, 500..=599) => "api_error",
        (WireFormat::Anthropic, 429) => "rate_limit_error",
        (WireFormat::Anthropic, 401) => "authentication_error",
        (WireFormat::Anthropic, _) => "invalid_request_error",
        (WireFormat::Gemini, 500..=599) => "UNAVAILABLE",
        (WireFormat::Gemini, 401) => "UNAUTHENTICATED",
        (WireFormat::Gemini, 403) => "PERMISSION_DENIED",
        (WireFormat::Gemini, 429) => "RESOURCE_EXHAUSTED",
        (WireFormat::Gemini, _) => "INVALID_ARGUMENT",
    };
    match wire {
        WireFormat::OpenAi | WireFormat::OpenAiResponses => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
        }
        WireFormat::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
        }
        WireFormat::Gemini => {
            json!({"error": {"code": status, "message": message, "status": kind}})
        }
    }
}

/// The status and body of a reply that fails before its first event.
pub(super) fn failure(fault: &ModelFault, request: &RecordedRequest) -> Option<(u16, Value)> {
    let wire = request.wire;
    let (status, message) = match fault {
        ModelFault::Status { status, message, .. } => (*status, message.clone()),
        ModelFault::ContextFull => {
            let message = match wire {
                WireFormat::OpenAi | WireFormat::OpenAiResponses => {
                    "This model's maximum context length is 8 tokens."
                }
                WireFormat::Anthropic => "prompt is too long: 9 tokens > 8 maximum",
                WireFormat::Gemini => {
                    "The input token count (9) exceeds the maximum number of tokens allowed (8)."
                }
            };
            (400, message.to_owned())
        }
        ModelFault::Filtered => {
            let message = "The prompt was filtered.";
            let error = json!({"message": message, "type": null, "code": "content_filter"});
            return Some((400, json!({"error": error})));
        }
        ModelFault::EchoKey => {
            (401, format!("Incorrect API key provided: {}.", request.key().unwrap_or_default()))
        }
        ModelFault::NoTemperature if has_temperature(request) => {
            (400, "Unsupported value: 'temperature' does not support 0.7 with this model.".into())
        }
        ModelFault::NoTemperature
        | ModelFault::Cut
        | ModelFault::Unfinished
        | ModelFault::EndWithoutReason
        | ModelFault::NoEvents
        | ModelFault::InvalidJson
        | ModelFault::ErrorInStream
        | ModelFault::Page
        | ModelFault::Endless => return None,
    };
    Some((status, error(wire, status, &message)))
}

fn has_temperature(request: &RecordedRequest) -> bool {
    let places = ["/temperature", "/generationConfig/temperature"];
    places.iter().any(|place| request.body.pointer(place).is_some())
}

//! `OpenAI`'s Responses API: a reply is a list of items, streamed as they grow.

use serde_json::{Value, json};

use super::answer::{data, halves};
use super::turn::{ModelCall, ModelTurn};

/// The events of a complete reply.
pub(super) fn events(turn: &ModelTurn) -> Vec<String> {
    let mut stream = ResponseEvents::default();
    stream.event("response.created", json!({"response": response(turn, "in_progress", &[])}));
    let mut items = Vec::new();
    if !turn.text.is_empty() || turn.calls.is_empty() {
        items.push(message(&mut stream, &turn.text));
    }
    for call in &turn.calls {
        items.push(function_call(&mut stream, items.len(), call));
    }
    stream.event("response.completed", json!({"response": response(turn, "completed", &items)}));
    stream.events
}

/// Numbered events.
#[derive(Default)]
struct ResponseEvents {
    events: Vec<String>,
}

impl ResponseEvents {
    fn event(&mut self, kind: &str, mut value: Value) {
        value["type"] = json!(kind);
        value["sequence_number"] = json!(self.events.len());
        self.events.push(format!("event: {kind}\n{}", data(&value)));
    }
}

fn response(turn: &ModelTurn, status: &str, items: &[Value]) -> Value {
    let usage = (status == "completed").then(|| {
        json!({"input_tokens": turn.input_tokens, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": turn.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.input_tokens + turn.output_tokens})
    });
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m",
        "error": null, "incomplete_details": null, "output": items, "usage": usage})
}

fn message(stream: &mut ResponseEvents, text: &str) -> Value {
    let item = |status: &str, content: &[Value]| {
        json!({"id": "msg_0", "type": "message", "status": status, "role": "assistant",
            "content": content})
    };
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let at = |more: (&str, Value)| {
        let mut value = json!({"item_id": "msg_0", "output_index": 0, "content_index": 0});
        value[more.0] = more.1;
        value
    };
    let added = json!({"output_index": 0, "item": item("in_progress", &[])});
    stream.event("response.output_item.added", added);
    stream.event("response.content_part.added", at(("part", part(""))));
    for piece in halves(text) {
        stream.event("response.output_text.delta", at(("delta", json!(piece))));
    }
    stream.event("response.output_text.done", at(("text", json!(text))));
    stream.event("response.content_part.done", at(("part", part(text))));
    let item = item("completed", &[part(text)]);
    stream.event("response.output_item.done", json!({"output_index": 0, "item": item}));
    item
}

fn function_call(stream: &mut ResponseEvents, index: usize, call: &ModelCall) -> Value {
    let id = format!("fc_{index}");
    let item = |status: &str, arguments: &str| {
        json!({"id": id, "type": "function_call", "status": status, "name": call.name,
            "call_id": format!("call_{index}"), "arguments": arguments})
    };
    let added = json!({"output_index": index, "item": item("in_progress", "")});
    stream.event("response.output_item.added", added);
    for piece in halves(&call.arguments) {
        let delta = json!({"item_id": id, "output_index": index, "delta": piece});
        stream.event("response.function_call_arguments.delta", delta);
    }
    let done = json!({"item_id": id, "output_index": index, "arguments": call.arguments});
    stream.event("response.function_call_arguments.done", done);
    let item = item("completed", &call.arguments);
    stream.event("response.output_item.done", json!({"output_index": index, "item": item}));
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_grow_until_complete() {
        let turn =
            ModelTurn::calls([ModelCall::new("read", r#"{"path": "a"}"#)]).saying("Let me see.");
        let events: Vec<Value> = events(&turn)
            .iter()
            .map(|event| serde_json::from_str(event.split_once("data: ").unwrap().1).unwrap())
            .collect();
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], index);
        }
        let grown = |kind: &str| -> String {
            let pieces = events.iter().filter(|event| event["type"] == kind);
            pieces.map(|event| event["delta"].as_str().unwrap()).collect()
        };
        assert_eq!(grown("response.output_text.delta"), "Let me see.");
        assert_eq!(grown("response.function_call_arguments.delta"), r#"{"path": "a"}"#);
        let response = &events.last().unwrap()["response"];
        assert_eq!(response["status"], "completed");
        assert_eq!(response["output"][0]["content"][0]["text"], "Let me see.");
        assert_eq!(response["output"][1]["call_id"], "call_1");
        assert_eq!(response["usage"]["total_tokens"], 15);
    }
}

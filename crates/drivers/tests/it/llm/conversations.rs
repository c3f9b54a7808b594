//! Encoded requests.

use std::sync::Arc;

use polity_definition::AgentDefinition;
use polity_model::message::{Message, ToolCall};
use polity_testkit::model_server::{ModelCall, ModelFault, ModelServer, ModelTurn, WireFormat};
use serde_json::{Value, json};

use super::harness::{ModelHarness, answer, assistant, call, system, user};

/// A conversation with two calls in one turn, an instruction among their results, and an empty
/// answer.
fn conversation() -> (Vec<Message>, [String; 2]) {
    let mut one = call(1, "files/read", &json!({"path": "a"}));
    one.signature = Some("sig-1".to_owned());
    let two = call(2, "files/write.all", &json!({}));
    let ids = [one.id.to_string(), two.id.to_string()];
    let messages = vec![
        user("Copy a."),
        assistant("", &[]),
        user("Please."),
        assistant("Reading.", &[one.clone(), two.clone()]),
        answer(&two, "written"),
        system("Hurry."),
        answer(&one, ""),
        assistant("Done.", &[]),
        user("Thanks."),
    ];
    (messages, ids)
}

async fn sent(provider: &str, server: &ModelServer, messages: &[Message]) -> Value {
    ModelHarness::at(provider, &server.url()).call(messages).await.unwrap();
    server.requests().remove(0).body
}

const INSTRUCTION: &str = "[Instruction from the system that runs you]\nHurry.";

#[tokio::test]
async fn openai_results_directly_follow_their_calls() {
    for provider in ["openai", "openai_compatible", "ollama"] {
        let server = ModelServer::with([]);
        let (messages, [one, two]) = conversation();
        let body = sent(provider, &server, &messages).await;
        let instruction = match provider {
            "openai" => json!({"role": "system", "content": "Hurry."}),
            _ => json!({"role": "user", "content": INSTRUCTION}),
        };
        let write = body["messages"][3]["tool_calls"][1]["function"]["name"].clone();
        let expected = json!([
            {"role": "system", "content": "Greet everyone."},
            {"role": "user", "content": "Copy a."},
            {"role": "user", "content": "Please."},
            {"role": "assistant", "content": "Reading.", "tool_calls": [
                {"id": one, "type": "function",
                    "function": {"name": "files__read", "arguments": "{\"path\":\"a\"}"}},
                {"id": two, "type": "function", "function": {"name": write, "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": two, "content": "written"},
            {"role": "tool", "tool_call_id": one, "content": ""},
            instruction,
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "Thanks."},
        ]);
        assert_eq!(body["messages"], expected);
        assert_eq!(body["model"], "m-1");
        assert_eq!(body["temperature"], 0.5);
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        let tool = json!({"type": "function", "function": {"name": "files__read",
            "description": "does files/read", "parameters": schema()}});
        assert_eq!(body["tools"][0], tool);
        // The offered name equals the name in the conversation.
        assert_eq!(body["tools"][1]["function"]["name"], write);
    }
}

#[tokio::test]
async fn anthropic_results_share_one_message() {
    let server = ModelServer::with([]);
    let (mut messages, [one, two]) = conversation();
    let thoughts = json!([{"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"}]);
    sign(&mut messages, &thoughts.to_string());
    let body = sent("anthropic", &server, &messages).await;
    let write = body["messages"][1]["content"][4]["name"].clone();
    let expected = json!([
        {"role": "user", "content": [
            {"type": "text", "text": "Copy a."}, {"type": "text", "text": "Please."}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": one, "name": "files__read", "input": {"path": "a"}},
            {"type": "tool_use", "id": two, "name": write, "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": two, "content": "written"},
            {"type": "tool_result", "tool_use_id": one, "content": ""},
            {"type": "text", "text": INSTRUCTION}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]);
    assert_eq!(body["messages"], expected);
    assert_eq!(body["system"], "Greet everyone.");
    assert_eq!(body["tools"][0]["input_schema"], schema());
    assert_eq!(body["tools"][1]["name"], write);
}

#[tokio::test]
async fn gemini_results_have_names_and_signatures() {
    let server = ModelServer::with([]);
    let (messages, [one, two]) = conversation();
    let body = sent("gemini", &server, &messages).await;
    let write = body["contents"][1]["parts"][2]["functionCall"]["name"].clone();
    let expected = json!([
        {"role": "user", "parts": [{"text": "Copy a."}, {"text": "Please."}]},
        {"role": "model", "parts": [
            {"text": "Reading."},
            {"functionCall": {"id": one, "name": "files__read", "args": {"path": "a"}},
                "thoughtSignature": "sig-1"},
            {"functionCall": {"id": two, "name": write, "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": two, "name": write, "response": {"output": "written"}}},
            {"functionResponse": {"id": one, "name": "files__read", "response": {"output": ""}}},
            {"text": INSTRUCTION}]},
        {"role": "model", "parts": [{"text": "Done."}]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ]);
    assert_eq!(body["contents"], expected);
    assert_eq!(body["systemInstruction"], json!({"parts": [{"text": "Greet everyone."}]}));
    assert_eq!(body["generationConfig"], json!({"temperature": 0.5}));
    let declarations = &body["tools"][0]["functionDeclarations"];
    assert_eq!(declarations[0]["parametersJsonSchema"], schema());
    assert_eq!(declarations[1]["name"], write);
}

/// Compatible servers reject the structured-output fields of a single provider, so the schema is
/// part of the instruction.
#[tokio::test]
async fn every_provider_gets_the_output_schema() {
    for provider in ["openai", "openai_compatible", "ollama", "anthropic", "gemini"] {
        let server = ModelServer::with([]);
        let mut harness = ModelHarness::at(provider, &server.url());
        let mut agent: Value =
            serde_json::from_str(&harness.pinned.agent.canonical_json()).unwrap();
        agent["output_schema"] = json!({"type": "object", "required": ["name"]});
        let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
        harness.pinned.agent = Arc::new(agent);
        harness.hello().await.unwrap();
        let body = server.requests().remove(0).body;
        let instruction = match provider {
            "anthropic" => &body["system"],
            "gemini" => &body["systemInstruction"]["parts"][0]["text"],
            _ => &body["messages"][0]["content"],
        };
        assert_eq!(
            instruction,
            "Greet everyone.\n\nYour final answer must be JSON that fits this JSON Schema, and \
             nothing else: no other words, no Markdown.\n\
             {\"required\":[\"name\"],\"type\":\"object\"}",
            "{provider}"
        );
    }
}

#[tokio::test]
async fn keys_go_into_headers_and_nowhere_else() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([]);
        ModelHarness::new(wire, &server).hello().await.unwrap();
        let request = server.requests().remove(0);
        assert_eq!(request.key(), Some(super::harness::KEY), "{wire:?}");
        assert!(!request.query.contains(super::harness::KEY) && !request.path.contains("sk-"));
    }
    for provider in ["ollama", "openai_compatible"] {
        let server = ModelServer::with([]);
        ModelHarness::at(provider, &server.url()).hello().await.unwrap();
        assert_eq!(server.requests().remove(0).key(), None, "{provider}");
    }
}

#[tokio::test]
async fn omits_tools_of_an_agent_without_any() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([]);
        let mut harness = ModelHarness::new(wire, &server);
        harness.toolbox = super::harness::toolbox(&[]);
        harness.hello().await.unwrap();
        assert_eq!(server.requests().remove(0).body.get("tools"), None, "{wire:?}");
    }
}

#[tokio::test]
async fn remembers_models_that_reject_a_temperature() {
    for wire in WireFormat::ALL {
        let server =
            ModelServer::answering(|_| ModelTurn::fault(ModelFault::NoTemperature).saying("hi"));
        let harness = ModelHarness::new(wire, &server);
        for _ in 0..2 {
            assert_eq!(harness.hello().await.unwrap().content, "hi", "{wire:?}");
        }
        assert_eq!(server.requests().len(), 3, "{wire:?}");
    }
}

/// Tool rounds in which each answer goes back into the conversation.
#[tokio::test]
async fn tool_rounds_produce_valid_conversations() {
    for wire in WireFormat::ALL {
        let server = ModelServer::answering(|request| {
            if request.tool_answers() >= 6 {
                return ModelTurn::text("finished");
            }
            let calls = [r#"{"path": "a"}"#, "{broken", "{}"];
            let call = |arguments: &&str| ModelCall::new("files__read", arguments).signed("sig");
            ModelTurn::calls(calls[..2].iter().map(call))
        });
        let harness = ModelHarness::new(wire, &server);
        let mut messages = vec![user("Read everything.")];
        let mut number = 0;
        let content = loop {
            let reply = harness.call(&messages).await.unwrap();
            if reply.tool_calls.is_empty() {
                break reply.content;
            }
            let calls: Vec<ToolCall> = reply
                .tool_calls
                .iter()
                .map(|asked| {
                    number += 1;
                    let name = format!("{}/{}", asked.server, asked.tool);
                    let signature = asked.signature.clone();
                    ToolCall { signature, ..call(number, &name, &json!({})) }
                })
                .collect();
            messages.push(assistant(&reply.content, &calls));
            messages.extend(calls.iter().map(|call| answer(call, "ok")));
        };
        assert_eq!(content, "finished", "{wire:?}");
        assert_eq!(server.requests().len(), 4, "{wire:?}");
    }
}

fn sign(messages: &mut [Message], new: &str) {
    for message in messages {
        if let Message::Assistant { tool_calls, .. } = message {
            let signed = tool_calls.iter_mut().filter(|call| call.signature.is_some());
            signed.for_each(|call| call.signature = Some(new.to_owned()));
        }
    }
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"path": {"type": "string"}}})
}

#[tokio::test]
async fn marks_tool_errors_where_the_format_can() {
    let asked = call(1, "files/read", &json!({"path": "a"}));
    let messages =
        [user("Read a."), assistant("", std::slice::from_ref(&asked)), answer(&asked, "error: no")];
    let body = sent("anthropic", &ModelServer::with([]), &messages).await;
    assert_eq!(body["messages"][2]["content"][0]["is_error"], true);
    let body = sent("gemini", &ModelServer::with([]), &messages).await;
    let response = &body["contents"][2]["parts"][0]["functionResponse"]["response"];
    assert_eq!(response, &json!({"error": "error: no"}));
}

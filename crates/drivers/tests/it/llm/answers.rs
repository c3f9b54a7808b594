//! Decoded answers.

use polity_engine::driver::{AskedArguments, AskedTool};
use polity_testkit::model_server::{ModelCall, ModelServer, ModelTurn, WireFormat};
use serde_json::json;

use super::harness::{KEY, ModelHarness};

fn asked(server: &str, tool: &str, arguments: &serde_json::Value) -> AskedTool {
    AskedTool {
        server: server.to_owned(),
        tool: tool.to_owned(),
        arguments: AskedArguments::Object(arguments.as_object().unwrap().clone()),
        signature: None,
    }
}

#[tokio::test]
async fn streams_text_with_usage_and_cost() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([ModelTurn::text("Grüße, \"Ada\" 👋!\n").usage(1000, 200)]);
        let harness = ModelHarness::new(wire, &server);
        let reply = harness.hello().await.unwrap();
        assert_eq!(reply.content, "Grüße, \"Ada\" 👋!\n", "{wire:?}");
        assert_eq!(reply.tool_calls, []);
        assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (1000, 200), "{wire:?}");
        assert_eq!(reply.usage.cost.pico_usd(), 1000 * 1_000_000 + 200 * 2_000_000);
        let pieces = harness.pieces.0.lock().unwrap();
        assert_eq!(pieces.len(), 2, "{wire:?}: {pieces:?}");
        assert_eq!(pieces.concat(), reply.content);
    }
}

#[tokio::test]
async fn decodes_parallel_tool_calls() {
    for wire in WireFormat::ALL {
        let server = ModelServer::answering(|request| {
            let names = request.tool_names();
            ModelTurn::calls([
                ModelCall::new(names[0], r#"{"path": "ä.txt", "deep": {"a": [1, null]}}"#),
                ModelCall::new(names[0], ""),
                ModelCall::new(names[1], "{}"),
            ])
            .saying("Let me look.")
        });
        let reply = ModelHarness::new(wire, &server).hello().await.unwrap();
        assert_eq!(reply.content, "Let me look.");
        let expected = [
            asked("files", "read", &json!({"path": "ä.txt", "deep": {"a": [1, null]}})),
            asked("files", "read", &json!({})),
            asked("files", "write.all", &json!({})),
        ];
        assert_eq!(reply.tool_calls, expected, "{wire:?}");
    }
}

#[tokio::test]
async fn redacts_key_echoed_by_the_model() {
    for wire in WireFormat::ALL {
        let server = ModelServer::answering(|request| {
            let name = request.tool_names()[0].to_owned();
            let object = json!({"path": format!("of {KEY}"), "deep": [{"key": KEY}]}).to_string();
            let unreadable = format!("[\"{KEY}\"]");
            ModelTurn::calls([ModelCall::new(&name, &object), ModelCall::new(&name, &unreadable)])
                .saying(&format!("It is {KEY}."))
        });
        let reply = ModelHarness::new(wire, &server).hello().await.unwrap();
        assert_eq!(reply.content, "It is ***.", "{wire:?}");
        let masked = json!({"path": "of ***", "deep": [{"key": "***"}]});
        assert_eq!(reply.tool_calls[0], asked("files", "read", &masked), "{wire:?}");
        assert!(!format!("{:?}", reply.tool_calls[1]).contains(KEY), "{wire:?}");
    }
}

#[tokio::test]
async fn passes_on_invalid_names_and_arguments() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([ModelTurn::calls([
            ModelCall::new("shell__run", "{}"),
            ModelCall::new("run", r#"{"path": "#),
            ModelCall::new("files__read", "[1]"),
        ])]);
        let calls = ModelHarness::new(wire, &server).hello().await.unwrap().tool_calls;
        assert_eq!(calls[0], asked("shell", "run", &json!({})), "{wire:?}");
        assert_eq!((calls[1].server.as_str(), calls[1].tool.as_str()), ("", "run"));
        for (call, expected) in [(&calls[1], r#"{"path": "#), (&calls[2], "[1]")] {
            match &call.arguments {
                AskedArguments::Unreadable { text, reason } => {
                    assert_eq!(text, expected, "{wire:?}");
                    assert!(!reason.is_empty());
                }
                AskedArguments::Object(_) => panic!("{wire:?}: {call:?}"),
            }
        }
    }
}

#[tokio::test]
async fn accepts_empty_answer() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([ModelTurn::empty()]);
        let harness = ModelHarness::new(wire, &server);
        let reply = harness.hello().await.unwrap();
        assert_eq!((reply.content.as_str(), reply.tool_calls.len()), ("", 0), "{wire:?}");
        assert_eq!(harness.pieces.0.lock().unwrap().len(), 0);
    }
}

#[tokio::test]
async fn keeps_signatures_with_their_calls() {
    for (wire, expected) in [
        (WireFormat::OpenAi, None),
        (
            WireFormat::Anthropic,
            Some(r#"[{"type":"thinking","thinking":"Let me think.","signature":"sig-1"}]"#),
        ),
        (WireFormat::Gemini, Some("sig-1")),
    ] {
        let server = ModelServer::with([ModelTurn::calls([
            ModelCall::new("files__read", "{}").signed("sig-1"),
            ModelCall::new("files__read", "{}"),
        ])]);
        let calls = ModelHarness::new(wire, &server).hello().await.unwrap().tool_calls;
        assert_eq!(calls[0].signature.as_deref(), expected, "{wire:?}");
        assert_eq!(calls[1].signature, None, "{wire:?}");
    }
}

#[tokio::test]
async fn reuses_the_connection_for_sequential_calls() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([]);
        let harness = ModelHarness::new(wire, &server);
        for _ in 0..3 {
            harness.hello().await.unwrap();
        }
        let connections: Vec<usize> =
            server.requests().iter().map(|request| request.connection).collect();
        assert_eq!(connections, [0, 0, 0], "{wire:?}");
    }
}

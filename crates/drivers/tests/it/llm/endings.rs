//! The ends of answers: whole, cut, refused, filtered, broken off.

use std::sync::atomic::Ordering;

use polity_engine::driver::{AnswerEnding, AskedArguments};
use polity_model::failure::{ErrorCategory, WithheldReason};
use polity_testkit::model_server::{
    ModelCall, ModelEnding, ModelFault, ModelServer, ModelTurn, WireFormat,
};
use polity_testkit::raw_http::RawHttpServer;
use serde_json::json;

use super::harness::{ModelHarness, answer, assistant, call, user};

const REFUSED: AnswerEnding = AnswerEnding::Withheld(WithheldReason::Refused);
const FILTERED: AnswerEnding = AnswerEnding::Withheld(WithheldReason::Filtered);

#[tokio::test]
async fn ending_is_known_in_every_format() {
    use ModelEnding::{Complete, Filtered, Refused, Truncated};
    use WireFormat::{Anthropic, Gemini, OpenAi};
    for (wire, scripted, ending, reason) in [
        (OpenAi, Complete, AnswerEnding::Complete, "stop"),
        (OpenAi, Truncated, AnswerEnding::Truncated, "length"),
        (OpenAi, Refused, REFUSED, "stop"),
        (OpenAi, Filtered, FILTERED, "content_filter"),
        (Anthropic, Complete, AnswerEnding::Complete, "end_turn"),
        (Anthropic, Truncated, AnswerEnding::Truncated, "max_tokens"),
        (Anthropic, Refused, REFUSED, "refusal"),
        (Gemini, Complete, AnswerEnding::Complete, "STOP"),
        (Gemini, Truncated, AnswerEnding::Truncated, "MAX_TOKENS"),
        (Gemini, Filtered, FILTERED, "PROHIBITED_CONTENT"),
    ] {
        for text in ["Half a sente", ""] {
            let turn = ModelTurn::text(text).ending(scripted);
            // A refusal in this format is a kind of text.
            let ending = match (wire, ending) {
                (OpenAi, REFUSED) if text.is_empty() => AnswerEnding::Complete,
                _ => ending,
            };
            let reply = ModelHarness::new(wire, &ModelServer::with([turn])).hello().await.unwrap();
            assert_eq!((reply.content.as_str(), reply.ending), (text, ending), "{wire:?} {reason}");
            assert_eq!(reply.stop_reason.as_deref(), Some(reason), "{wire:?}");
            assert_eq!(reply.usage.output_tokens, 5, "it was paid for: {wire:?} {reason}");
        }
    }
}

/// Servers that give up a running answer for another request end it this way.
#[tokio::test]
async fn end_without_reason_is_a_broken_stream() {
    for wire in WireFormat::ALL {
        for fault in [ModelFault::EndWithoutReason, ModelFault::Unfinished, ModelFault::Cut] {
            for text in ["half an answer", ""] {
                let turn = ModelTurn::fault(fault.clone()).saying(text);
                let server = ModelServer::with([turn]);
                let failure = ModelHarness::new(wire, &server).failure().await;
                let what = format!("{wire:?} {fault:?} {text:?}: {failure:?}");
                assert_eq!(failure.failure.category, ErrorCategory::Transient, "{what}");
                let words = "the stream ended before the answer was complete";
                assert!(failure.failure.message.contains(words), "{what}");
                assert!(!failure.context_full, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn stream_without_events_is_blamed_on_the_context_if_the_request_is_long() {
    for wire in WireFormat::ALL {
        let server = ModelServer::answering(|_| ModelTurn::fault(ModelFault::NoEvents));
        let mut harness = ModelHarness::new(wire, &server);
        harness.toolbox = super::harness::toolbox(&[]);
        let short = harness.failure().await;
        assert_eq!((short.failure.category, short.context_full), (ErrorCategory::Transient, false));
        let message = &short.failure.message;
        assert!(message.ends_with("; check llm_config.endpoint"), "{wire:?}: {message}");

        let long = harness.call(&[user(&"word ".repeat(2000))]).await.unwrap_err();
        assert_eq!((long.failure.category, long.context_full), (ErrorCategory::Transient, true));
        let message = &long.failure.message;
        assert!(message.ends_with("exceeds their context window"), "{wire:?}: {message}");
        assert!(!message.contains("llm_config.endpoint"), "{wire:?}: {message}");
    }
}

/// The answer filled the context window: what was said and used counts.
#[tokio::test]
async fn full_context_window_keeps_text_and_usage() {
    for text in ["half an answer", ""] {
        let events = [
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 11}}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"text": text}}),
            json!({"type": "message_delta", "usage": {"output_tokens": 6},
                "delta": {"stop_reason": "model_context_window_exceeded"}}),
            json!({"type": "message_stop"}),
        ];
        let body = events.map(|event| format!("data: {event}\n\n")).concat();
        let server = RawHttpServer::start(move |_, response| {
            response.send(200, &[("content-type", "text/event-stream")], &body)
        });
        let harness = ModelHarness::at("anthropic", &server.url(""));
        let usage = match harness.hello().await {
            Ok(reply) => {
                assert_eq!((reply.content.as_str(), reply.ending), (text, AnswerEnding::Truncated));
                reply.usage
            }
            Err(failure) => {
                assert!(failure.context_full && text.is_empty(), "{failure:?}");
                failure.usage
            }
        };
        assert_eq!((usage.input_tokens, usage.output_tokens), (11, 6), "{text:?}");
        assert!(!usage.tokens_unknown, "{text:?}");
    }
}

/// A call whose arguments had not begun is not a call without arguments.
#[tokio::test]
async fn cut_call_is_unreadable() {
    for wire in [WireFormat::OpenAi, WireFormat::Anthropic] {
        let calls =
            [ModelCall::new("files__read", "{\"path\": \"a\"}"), ModelCall::new("files__read", "")];
        let turn = ModelTurn::calls(calls).ending(ModelEnding::Truncated);
        let reply = ModelHarness::new(wire, &ModelServer::with([turn])).hello().await.unwrap();
        let [whole, cut] = &reply.tool_calls[..] else { panic!("{wire:?}: {reply:?}") };
        assert!(matches!(whole.arguments, AskedArguments::Object(_)), "{wire:?}: {whole:?}");
        assert!(matches!(cut.arguments, AskedArguments::Unreadable { .. }), "{wire:?}: {cut:?}");
    }
}

/// Azure reports its filter with an error status.
#[tokio::test]
async fn filter_with_an_error_status_is_a_filtered_answer() {
    let server = ModelServer::with([ModelTurn::fault(ModelFault::Filtered)]);
    let reply = ModelHarness::new(WireFormat::OpenAi, &server).hello().await.unwrap();
    assert_eq!((reply.content.as_str(), reply.ending), ("", FILTERED));
    assert_eq!(reply.stop_reason.as_deref(), Some("status 400: The prompt was filtered."));
}

/// Servers with strict templates answer null with an error.
#[tokio::test]
async fn calls_without_text_have_an_empty_content() {
    for provider in ["openai", "openai_compatible", "ollama"] {
        let server = ModelServer::with([]);
        let asked = call(1, "files/read", &json!({"path": "a"}));
        let messages =
            [user("Read a."), assistant("", std::slice::from_ref(&asked)), answer(&asked, "1")];
        ModelHarness::at(provider, &server.url()).call(&messages).await.unwrap();
        let body = server.requests().remove(0).body;
        assert_eq!(body["messages"][2]["content"], "", "{provider}: {body}");
    }
}

/// The idle time of a call starts again with everything that arrives, also without text.
#[tokio::test]
async fn everything_that_arrives_keeps_the_call_alive() {
    for wire in WireFormat::ALL {
        let turn = ModelTurn::calls([ModelCall::new("files__read", "{\"path\": \"a\"}")]);
        let server = ModelServer::with([turn]);
        let harness = ModelHarness::new(wire, &server);
        harness.hello().await.unwrap();
        assert_eq!(harness.pieces.0.lock().unwrap().len(), 0, "{wire:?}");
        assert!(harness.pieces.1.load(Ordering::SeqCst) > 1, "{wire:?}");
    }
}

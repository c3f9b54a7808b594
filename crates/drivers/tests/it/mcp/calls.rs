//! One call of one tool.

use std::time::Duration;

use polity_model::failure::ErrorCategory;
use polity_testkit::mcp::fixture_server;
use serde_json::json;

use super::harness::{McpHarness, wait_until};

#[tokio::test]
async fn a_tool_answers_in_text_and_in_json() {
    let harness = McpHarness::fixture(&[]);
    let reply = harness.call("test/add", json!({"a": 1, "b": 2})).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.is_error), ("3", false));
    assert_eq!(reply.structured, Some(json!({"sum": 3})));
    let odd = harness.call("test/echo", json!({"text": "half a pair"})).await.unwrap();
    assert_eq!(odd.content, "a\u{fffd}b");
    let reply = harness.call("test/fail", json!({})).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.is_error), ("it cannot be done", true));
}

#[tokio::test]
async fn an_unknown_tool_is_refused_for_good_and_nothing_was_done() {
    let harness = McpHarness::fixture(&[]);
    let failure = harness.call("test/nothing", json!({})).await.unwrap_err();
    assert!(!failure.maybe_done);
    assert_eq!(failure.failure.category, ErrorCategory::Permanent);
    assert!(failure.failure.message.contains("Unknown tool: nothing (-32602)"), "{failure:?}");
}

#[tokio::test]
async fn many_first_callers_start_one_server() {
    let harness = McpHarness::fixture(&["--slow-start", "0.3"]);
    let calls = (0..20).map(|number| {
        let harness = &harness;
        async move { harness.text("test/echo", json!({"text": number.to_string()})).await }
    });
    let said = futures_util::future::join_all(calls).await;
    assert_eq!(said, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn a_first_caller_without_patience_does_not_stop_the_start() {
    let harness = McpHarness::fixture(&["--slow-start", "0.3"]);
    let first = harness.text("test/echo", json!({"text": "first"}));
    assert!(tokio::time::timeout(Duration::from_millis(50), first).await.is_err());
    assert_eq!(harness.text("test/echo", json!({"text": "second"})).await, "second");
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn a_call_that_no_one_waits_for_is_cancelled() {
    let harness = McpHarness::fixture(&[]);
    {
        let sleeping = harness.call("test/sleep", json!({"seconds": 1000}));
        tokio::select! {
            reply = sleeping => panic!("{reply:?}"),
            () = wait_until("it sleeps", || harness.logged("sleeping") == 1) => {}
        }
    }
    wait_until("it was woken", || harness.logged("woken") == 1).await;
    assert_eq!(harness.logged("cancelled"), 1);
    assert_eq!(harness.text("test/echo", json!({"text": "still here"})).await, "still here");
}

#[tokio::test]
async fn a_long_result_is_cut_and_the_connection_holds() {
    let servers = [fixture_server("test", &["--log", "log"])];
    let harness = McpHarness::with(servers, |options| options.output_bytes_max = 1000);
    let text = harness.text("test/big", json!({"bytes": 52_428_800})).await;
    let mark = "\n[truncated: 52428800 bytes, of which one tool result may have 1000]";
    assert_eq!(text, "x".repeat(1000) + mark);
    assert_eq!(harness.text("test/echo", json!({"text": "fine"})).await, "fine");
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn what_a_server_asks_of_its_client_is_refused_or_declined() {
    let harness = McpHarness::fixture(&[]);
    assert_eq!(harness.text("test/ask", json!({})).await, "-32601 -32601 decline");
}

#[tokio::test]
async fn a_tool_that_asks_for_input_fails_for_good() {
    let harness = McpHarness::fixture(&["--modern"]);
    let failure = harness.call("test/input", json!({})).await.unwrap_err();
    assert_eq!((failure.failure.category, failure.maybe_done), (ErrorCategory::Permanent, false));
    assert!(failure.failure.message.contains("asks for input"), "{failure:?}");
}

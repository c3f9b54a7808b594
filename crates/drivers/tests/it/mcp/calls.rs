//! Single tool calls.

use std::time::Duration;

use polity_model::failure::ErrorCategory;
use polity_testkit::mcp::fixture_server;
use serde_json::json;

use super::harness::McpHarness;
use crate::waiting::wait_until;

#[tokio::test]
async fn returns_text_and_structured_results() {
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
async fn unknown_tool_is_a_permanent_failure_without_effect() {
    let harness = McpHarness::fixture(&[]);
    let failure = harness.call("test/nothing", json!({})).await.unwrap_err();
    assert!(!failure.maybe_done);
    assert_eq!(failure.failure.category, ErrorCategory::Permanent);
    assert!(failure.failure.message.contains("Unknown tool: nothing (-32602)"), "{failure:?}");
}

#[tokio::test]
async fn concurrent_first_calls_start_one_server() {
    let harness = McpHarness::fixture(&["--slow-start", "0.3"]);
    let calls = (0..20).map(|number| {
        let harness = &harness;
        async move { harness.echo(&number.to_string()).await }
    });
    let echoes = futures_util::future::join_all(calls).await;
    assert_eq!(echoes, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn start_continues_after_the_first_caller_gives_up() {
    let harness = McpHarness::fixture(&["--slow-start", "0.3"]);
    let first = harness.echo("first");
    assert!(tokio::time::timeout(Duration::from_millis(50), first).await.is_err());
    assert_eq!(harness.echo("second").await, "second");
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn dropped_call_is_cancelled_on_the_server() {
    let harness = McpHarness::fixture(&[]);
    {
        let sleeping = harness.call("test/sleep", json!({"seconds": 1000}));
        tokio::select! {
            reply = sleeping => panic!("{reply:?}"),
            () = wait_until("it sleeps", || harness.logged("sleeping") == 1) => {}
        }
    }
    wait_until("it has been woken", || harness.logged("woken") == 1).await;
    assert_eq!(harness.logged("cancelled"), 1);
    assert_eq!(harness.echo("still here").await, "still here");
}

#[tokio::test]
async fn truncates_long_result_and_keeps_the_connection() {
    let servers = [fixture_server("test", &["--log", "log"])];
    let harness = McpHarness::with(servers, |options| options.output_bytes_max = 1000);
    let text = harness.text("test/big", json!({"bytes": 52_428_800})).await;
    let mark = "\n[truncated: 52428800 bytes, of which one tool result may have 1000]";
    assert_eq!(text, "x".repeat(1000) + mark);
    assert_eq!(harness.echo("fine").await, "fine");
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn refuses_or_declines_server_requests() {
    let harness = McpHarness::fixture(&[]);
    assert_eq!(harness.text("test/ask", json!({})).await, "-32601 -32601 decline");
}

#[tokio::test]
async fn tool_that_requests_input_fails_permanently() {
    let harness = McpHarness::fixture(&["--modern"]);
    let failure = harness.call("test/input", json!({})).await.unwrap_err();
    assert_eq!((failure.failure.category, failure.maybe_done), (ErrorCategory::Permanent, false));
    assert!(failure.failure.message.contains("asks for input"), "{failure:?}");
}

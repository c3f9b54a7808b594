//! Servers that die, hang or print invalid messages.

use std::time::Duration;

use polity_model::failure::ErrorCategory;
use polity_testkit::mcp::{fixture_server, stdio_server};
use serde_json::json;

use super::harness::McpHarness;
use crate::waiting::{TEST_TIMEOUT, is_alive, kill, wait_until};

#[tokio::test]
async fn restarts_server_that_dies_during_a_call() {
    let harness = McpHarness::fixture(&[]);
    let failure = harness.call("test/die", json!({})).await.unwrap_err();
    assert_eq!((failure.failure.category, failure.maybe_done), (ErrorCategory::Transient, true));
    insta::assert_snapshot!(failure.failure.message, @r#"
    MCP server "test" was lost during the call of test/die; it ended with exit status: 3; its last words on stderr:
    I am dying
    "#);
    assert_eq!(harness.echo("again").await, "again");
    assert_eq!(harness.logged("started"), 2);
}

#[tokio::test]
async fn restarts_server_killed_between_calls() {
    let harness = McpHarness::fixture(&[]);
    harness.echo("hello").await;
    kill(harness.pids(1)[0]);
    // A call right after the kill may still use the old connection and fail.
    let began = std::time::Instant::now();
    while harness.call("test/echo", json!({"text": "again"})).await.is_err() {
        assert!(began.elapsed() < TEST_TIMEOUT);
    }
    assert_eq!(harness.logged("started"), 2);
}

#[tokio::test]
async fn delays_restarts_of_a_server_that_always_dies() {
    let harness = McpHarness::fixture(&["--exit-at-once"]);
    let mut last = String::new();
    for _ in 0..50 {
        let failure = harness.refusal("test/*").await;
        assert_eq!(failure.category, ErrorCategory::Transient, "{failure}");
        last = failure.message;
    }
    assert!(harness.logged("started") < 10, "{} starts", harness.logged("started"));
    assert!(last.contains("times in a row and is not started again before"), "{last}");
    assert!(last.contains("exit status: 4"), "{last}");
    assert!(last.ends_with("its last words on stderr:\nno configuration"), "{last}");
}

#[tokio::test]
async fn ends_server_that_never_answers() {
    let silent = stdio_server("test", "sh", &["-c", "echo started $$ > log; exec sleep 1000"]);
    let harness =
        McpHarness::with([silent], |options| options.start_timeout = Duration::from_millis(700));
    let failure = harness.refusal("test/*").await;
    assert_eq!(failure.category, ErrorCategory::Transient);
    insta::assert_snapshot!(failure.message, @r#"MCP server "test" did not answer within 0.7 seconds"#);
    let pid = harness.pids(1)[0];
    wait_until("the process has ended", || !is_alive(pid)).await;
}

#[tokio::test]
async fn ignores_noise_on_stdout() {
    let harness = McpHarness::fixture(&["--garbage"]);
    assert_eq!(harness.echo("hello").await, "hello");
}

#[tokio::test]
async fn failed_handshake_error_shows_stdout_noise() {
    let talker = stdio_server("talker", "sh", &["-c", "echo Usage: talker FILE; echo; exit 2"]);
    let failure = McpHarness::new([talker]).refusal("talker/*").await;
    insta::assert_snapshot!(failure.message, @r#"MCP server "talker" cannot be reached: it closed the connection during the handshake; it printed a line on stdout that is no MCP message: Usage: talker FILE; it ended with exit status: 2"#);
}

#[tokio::test]
async fn falls_back_to_initialize_if_the_probe_is_ignored() {
    let harness = McpHarness::fixture(&["--deaf-to-probe"]);
    assert_eq!(harness.tools.protocol_version("test").await.unwrap(), "2025-11-25");
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn retries_slow_server_of_the_newer_lifecycle() {
    let harness = McpHarness::fixture(&["--modern", "--slow-start", "2.5"]);
    assert_eq!(harness.tools.protocol_version("test").await.unwrap(), "2026-07-28");
    assert_eq!(harness.echo("hello").await, "hello");
}

#[tokio::test]
async fn shutdown_ends_all_servers_and_prevents_starts() {
    let names = ["one", "two", "three"];
    let harness = McpHarness::new(names.map(|name| fixture_server(name, &["--log", "log"])));
    for name in names {
        harness.text(&format!("{name}/echo"), json!({"text": name})).await;
    }
    let pids = harness.pids(3);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    harness.tools.shutdown().await;
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    let failure = harness.call("one/echo", json!({})).await.unwrap_err();
    assert!(failure.failure.message.contains("is being shut down"), "{failure:?}");
    assert_eq!(harness.logged("started"), 3);
}

#[tokio::test]
async fn shutdown_aborts_a_start_in_progress() {
    let harness = McpHarness::fixture(&["--never-answer"]);
    let listing = harness.refusal("test/*");
    let shutting_down = async {
        wait_until("the server is being started", || harness.logged("started") == 1).await;
        harness.tools.shutdown().await;
    };
    let (failure, ()) = tokio::join!(listing, shutting_down);
    assert!(failure.message.contains("is being shut down"), "{failure}");
    let pid = harness.pids(1)[0];
    wait_until("the process has ended", || !is_alive(pid)).await;
}

#[tokio::test]
async fn dropping_the_driver_ends_its_servers() {
    let harness = McpHarness::fixture(&[]);
    harness.echo("hello").await;
    let pid = harness.pids(1)[0];
    assert!(is_alive(pid));
    drop(harness);
    wait_until("the process has ended", || !is_alive(pid)).await;
}

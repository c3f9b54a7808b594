//! Building toolboxes from server listings.

use std::time::{Duration, Instant};

use polity_definition::McpServerDefinition;
use polity_engine::driver::ToolSpec;
use polity_model::failure::ErrorCategory;
use polity_testkit::mcp::{fixture, fixture_server, server, stdio_server};
use serde_json::{Value, json};

use super::harness::{McpHarness, names};
use crate::waiting::{TEST_TIMEOUT, wait_until};

#[tokio::test]
async fn lists_all_pages_without_invalid_names() {
    let harness = McpHarness::fixture(&[]);
    let toolbox = harness.toolbox(&["test/*"]).await.unwrap();
    let all = "echo add sleep fail die big spawn count count_slowly bad_output ask grow input";
    let all: Vec<_> = all.split(' ').map(|name| format!("test/{name}")).collect();
    assert_eq!(names(&toolbox), all);
}

#[tokio::test]
async fn patterns_select_each_tool_once() {
    let harness = McpHarness::fixture(&[]);
    let toolbox = harness.toolbox(&["test/add", "test/echo", "test/add"]).await.unwrap();
    assert_eq!(names(&toolbox), ["test/add", "test/echo"]);
    assert!(toolbox.find("test", "fail").is_none());
}

#[tokio::test]
async fn settings_override_the_server_about_idempotence() {
    let config = json!({"command": "python3", "args": [fixture()]});
    let settings = json!({
        "count": {"idempotent": true, "timeout_seconds": 7},
        "sleep": {"idempotent": false},
        "echo": {"timeout_seconds": 300},
    });
    let harness = McpHarness::new([server("test", "stdio", &config, &settings)]);
    let toolbox = harness.toolbox(&["test/*"]).await.unwrap();
    let tool = |name: &str| toolbox.find("test", name).unwrap();
    for (name, repeatable) in
        [("echo", true), ("sleep", false), ("count", true), ("fail", false), ("add", false)]
    {
        assert_eq!(tool(name).repeatable, repeatable, "{name}");
    }
    assert_eq!(tool("count").timeout, Duration::from_secs(7));
    assert_eq!(tool("echo").timeout, Duration::from_mins(5));
    assert_eq!(tool("echo").description, "Says it again.");
}

#[tokio::test]
async fn checks_arguments_and_results_against_schemas() {
    let harness = McpHarness::fixture(&[]);
    let toolbox = harness.toolbox(&["test/*"]).await.unwrap();
    let add: &ToolSpec = toolbox.find("test", "add").unwrap();
    let check = |arguments: Value| add.check_arguments(arguments.as_object().unwrap());
    assert_eq!(check(json!({"a": 1, "b": 2.5})), Ok(()));
    let refusal = check(json!({"a": "1", "b": 2}));
    assert_eq!(refusal, Err("/a: \"1\" is a string, expected number".to_owned()));
    let bad = harness.call("test/bad_output", json!({})).await.unwrap();
    let bad_output = toolbox.find("test", "bad_output").unwrap();
    let refusal = bad_output.check_result(&bad.structured.unwrap());
    assert_eq!(refusal, Err("/sum: \"one\" is a string, expected number".to_owned()));
    let echo = toolbox.find("test", "echo").unwrap();
    assert_eq!(echo.check_result(&json!("anything")), Ok(()));
}

#[tokio::test]
async fn missing_fallback_tools_do_not_fail_the_listing() {
    let main = server_with_fallbacks(&["spare/echo", "broken/echo", "spare/nothing"]);
    let broken = fixture_server("broken", &["--exit-at-once"]);
    let harness = McpHarness::new([main, fixture_server("spare", &[]), broken]);
    let toolbox = harness.toolbox(&["main/fail"]).await.unwrap();
    assert_eq!(names(&toolbox), ["main/fail"]);
    assert!(toolbox.find("spare", "echo").is_some());
    assert!(toolbox.find("broken", "echo").is_none());
    assert!(toolbox.find("spare", "nothing").is_none());
    let fallbacks: Vec<_> =
        toolbox.offered()[0].fallback_tools.iter().map(ToString::to_string).collect();
    assert_eq!(fallbacks, ["spare/echo", "broken/echo", "spare/nothing"]);
}

/// A server whose tool `fail` has these fallback tools.
fn server_with_fallbacks(fallbacks: &[&str]) -> McpServerDefinition {
    let config = json!({"command": "python3", "args": [fixture()]});
    server("main", "stdio", &config, &json!({"fail": {"fallback_tools": fallbacks}}))
}

#[tokio::test]
async fn hanging_fallback_servers_do_not_fail_the_listing() {
    let hanging =
        ["one", "two"].map(|name| fixture_server(name, &["--log", "log", "--never-answer"]));
    let servers = hanging.into_iter().chain([server_with_fallbacks(&["one/echo", "two/echo"])]);
    let harness = McpHarness::with(servers, |options| {
        options.reserve_timeout = Duration::from_secs(2);
    });
    for _ in 0..3 {
        let toolbox = harness.toolbox(&["main/fail"]).await.unwrap();
        assert_eq!(names(&toolbox), ["main/fail"]);
        assert!(toolbox.find("one", "echo").is_none());
    }
    assert_eq!(harness.logged("started"), 2);
}

#[tokio::test]
async fn slow_fallback_server_becomes_available_later() {
    let slow = fixture_server("slow", &["--log", "log", "--slow-start", "0.5"]);
    let harness = McpHarness::with([slow, server_with_fallbacks(&["slow/echo"])], |options| {
        options.reserve_timeout = Duration::from_millis(100);
    });
    let began = Instant::now();
    let mut toolboxes = 0;
    while harness.toolbox(&["main/fail"]).await.unwrap().find("slow", "echo").is_none() {
        toolboxes += 1;
        assert!(began.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(toolboxes > 0);
    assert_eq!(harness.logged("started"), 1);
}

#[tokio::test]
async fn unknown_tool_or_server_error_suggests_a_name() {
    let harness = McpHarness::fixture(&[]);
    let failure = harness.refusal("test/ecco").await;
    assert_eq!(failure.category, ErrorCategory::Permanent);
    insta::assert_snapshot!(failure.message, @r#"MCP server "test" has no tool "ecco"; did you mean "test/echo"? It has: echo, add, sleep, fail, die, big, spawn, count, count_slowly, bad_output, ask, grow, input"#);
    let failure = harness.refusal("tset/echo").await;
    assert_eq!(failure.category, ErrorCategory::Permanent);
    assert!(failure.message.contains("config/mcp_servers.yaml"), "{failure}");
    assert!(failure.message.contains("did you mean \"test\"?"), "{failure}");
}

#[tokio::test]
async fn errors_name_the_missing_variable_or_program() {
    let config = json!({"command": "python3", "env": {"API_KEY": "${NO_SUCH_KEY}"}});
    let harness = McpHarness::new([
        server("keyless", "stdio", &config, &json!({})),
        stdio_server("gone", "no-such-program", &[]),
    ]);
    for (server, named) in [("keyless", "NO_SUCH_KEY"), ("gone", "no-such-program")] {
        let failure = harness.refusal(&format!("{server}/x")).await;
        assert_eq!(failure.category, ErrorCategory::Permanent, "{failure}");
        assert!(failure.message.contains(named) && failure.message.contains(server), "{failure}");
    }
}

#[tokio::test]
async fn lists_changed_tools_again() {
    let harness = McpHarness::fixture(&[]);
    assert!(harness.toolbox(&["test/*"]).await.unwrap().find("test", "grown").is_none());
    harness.text("test/grow", json!({})).await;
    // The notification and the result arrive at about the same time.
    let began = std::time::Instant::now();
    while harness.toolbox(&["test/grown"]).await.is_err() {
        assert!(began.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    wait_until("one process was started", || harness.logged("started") == 1).await;
}

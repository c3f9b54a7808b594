//! Servers that send more than memory can hold.

use polity_drivers::mcp::MESSAGE_BYTES_MAX;
use polity_model::failure::ErrorCategory;
use polity_testkit::mcp::{server, stdio_server};
use polity_testkit::raw_http::{RawHttpServer, RawRequest, RawResponse};
use serde_json::{Map, Value, json};

use super::harness::McpHarness;
use super::streamable_server::{EVENTS, JSON, definition, start, tool};
use crate::waiting::wait_until;

/// The beginning of a result without an end.
const RESULT: &[u8] =
    br#"{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": ""#;

/// Data that may be on its way when a connection is closed.
const IN_FLIGHT_BYTES: u64 = 32 << 20;

const LIMIT: &str =
    "the server sent a message of more than 67108864 bytes, the most that an MCP message may have";

/// Waits until the client has closed the one endless body, and checks how much it accepted.
async fn assert_bounded(server: &RawHttpServer, bytes_max: u64) {
    wait_until("the client has closed the connection", || server.ended_bodies() == 1).await;
    let sent = server.sent_bytes();
    assert!(sent < bytes_max + IN_FLIGHT_BYTES, "{sent} bytes were accepted");
}

/// A server whose tool answers without end.
fn endless(
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    beginning: &'static [u8],
) -> RawHttpServer {
    let answer = move |request: &RawRequest, response: &mut RawResponse<'_>| {
        if request.rpc_method() != "tools/call" {
            return Ok(false);
        }
        response.start(status, headers)?;
        response.write(beginning)?;
        response.write_forever(b'a').map(|()| true)
    };
    start(|| "one".to_owned(), answer)
}

#[tokio::test]
async fn endless_json_body_fails_the_call_at_the_limit() {
    let server = endless(200, &JSON, RESULT);
    let harness = McpHarness::new([definition(&server)]);
    let failure = harness.call("test/echo", json!({})).await.unwrap_err();
    assert_eq!((failure.failure.category, failure.maybe_done), (ErrorCategory::Permanent, true));
    assert_eq!(failure.failure.message, format!("the call of test/echo failed: {LIMIT}"));
    assert_bounded(&server, MESSAGE_BYTES_MAX as u64).await;
}

#[tokio::test]
async fn endless_event_fails_the_call_at_the_limit() {
    let server = endless(200, &EVENTS, b"id: 1\ndata: x\n\ndata: {");
    let harness = McpHarness::new([definition(&server)]);
    let failure = harness.call("test/echo", json!({})).await.unwrap_err();
    assert_eq!(failure.failure.message, format!("the call of test/echo failed: {LIMIT}"));
    assert_bounded(&server, MESSAGE_BYTES_MAX as u64).await;
    // The event is not asked for again.
    assert!(server.requests().iter().all(|request| request.header("last-event-id").is_none()));
}

#[tokio::test]
async fn endless_error_body_is_read_only_at_its_beginning() {
    for status in [400, 500] {
        let server = endless(status, &JSON, b"{");
        let harness = McpHarness::new([definition(&server)]);
        let failure = harness.call("test/echo", json!({})).await.unwrap_err().failure;
        assert!(failure.message.contains(&status.to_string()), "{failure}");
        assert!(failure.message.len() < 1000, "{}", failure.message.len());
        assert_bounded(&server, 64 * 1024).await;
    }
}

#[tokio::test]
async fn endless_handshake_fails_at_the_limit() {
    let answer = |_: &RawRequest, response: &mut RawResponse<'_>| {
        response.start(200, &JSON)?;
        response.write(RESULT)?;
        response.write_forever(b'a').map(|()| true)
    };
    let server = start(|| "one".to_owned(), answer);
    let message = McpHarness::new([definition(&server)]).refusal("test/*").await.message;
    assert!(message.contains(LIMIT), "{message}");
    assert!(server.sent_bytes() < 2 * MESSAGE_BYTES_MAX as u64 + IN_FLIGHT_BYTES);
}

#[tokio::test]
async fn endless_event_over_sse_loses_the_connection() {
    let server = RawHttpServer::start(|request, response| {
        if request.method == "POST" {
            return response.send(202, &[], "");
        }
        response.start(200, &EVENTS)?;
        response.write(b"event: endpoint\ndata: /message\n\nevent: message\ndata: ")?;
        response.write_forever(b'a')
    });
    let config = json!({"url": server.url("/sse")});
    let harness = McpHarness::new([server_of(&config)]);
    let message = harness.refusal("test/*").await.message;
    assert!(message.contains(LIMIT), "{message}");
    assert_bounded(&server, MESSAGE_BYTES_MAX as u64).await;
}

fn server_of(config: &Value) -> polity_definition::McpServerDefinition {
    server("test", "sse", config, &json!({}))
}

#[tokio::test]
async fn endless_line_on_stdout_loses_the_connection() {
    let endless = stdio_server("test", "sh", &["-c", "yes | tr -d '\\n'"]);
    let message = McpHarness::new([endless]).refusal("test/*").await.message;
    assert!(message.contains(LIMIT), "{message}");
}

#[tokio::test]
async fn message_of_too_many_values_fails_the_call() {
    for headers in [&JSON, &EVENTS] {
        let answer = move |request: &RawRequest, response: &mut RawResponse<'_>| {
            if request.rpc_method() != "tools/call" {
                return Ok(false);
            }
            let id = &request.json()["id"];
            let zeros = "0,".repeat(1_000_000);
            let result = format!(r#"{{"content": [], "structuredContent": {{"a": [{zeros}0]}}}}"#);
            let body = format!(r#"{{"jsonrpc": "2.0", "id": {id}, "result": {result}}}"#);
            let is_json = headers == &JSON;
            let body = if is_json { body } else { format!("data: {body}\n\n") };
            response.send(200, headers, &body).map(|()| true)
        };
        let server = start(|| "one".to_owned(), answer);
        let harness = McpHarness::new([definition(&server)]);
        let message = harness.call("test/echo", json!({})).await.unwrap_err().failure.message;
        let limit = "a message of more than 1000000 JSON values, the most that an MCP message may";
        assert!(message.contains(limit), "{message}");
    }
}

#[tokio::test]
async fn endless_pages_of_tools_fail_the_listing() {
    let answer = |request: &RawRequest, response: &mut RawResponse<'_>| {
        if request.rpc_method() != "tools/list" {
            return Ok(false);
        }
        let tools: Vec<_> = (0..2000)
            .map(|number| tool(&format!("t{number}"), json!({"required": ["a", "b", "c"]})))
            .collect();
        let result = json!({"tools": tools, "nextCursor": "more"});
        let id = request.json()["id"].clone();
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        response.send(200, &JSON, &body).map(|()| true)
    };
    let server = start(|| "one".to_owned(), answer);
    let failure = McpHarness::new([definition(&server)]).refusal("test/*").await;
    assert_eq!(failure.category, ErrorCategory::Permanent);
    assert_eq!(
        failure.message,
        "MCP server \"test\" lists tools of more than 250000 JSON values, the most that all tools \
         of a server may have"
    );
    assert!(server.count_rpc("tools/list") < 30);
}

#[tokio::test]
async fn tool_with_a_schema_that_unfolds_without_bound_is_listed_without_checks() {
    // Two references to the next of 29 levels.
    let level = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/l{}", number + 1)});
        (format!("l{number}"), json!({"anyOf": [next.clone(), next]}))
    };
    let mut levels: Map<String, Value> = (0..29).map(level).collect();
    levels.insert("l29".to_owned(), json!({"type": "string"}));
    let bomb = tool("bomb", json!({"$ref": "#/$defs/l0", "$defs": levels}));
    let answer = move |request: &RawRequest, response: &mut RawResponse<'_>| {
        if request.rpc_method() != "tools/list" {
            return Ok(false);
        }
        let id = request.json()["id"].clone();
        let result = json!({"tools": [bomb]});
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        response.send(200, &JSON, &body).map(|()| true)
    };
    let server = start(|| "one".to_owned(), answer);
    let toolbox = McpHarness::new([definition(&server)]).toolbox(&["test/*"]).await.unwrap();
    let tool = toolbox.find("test", "bomb").unwrap();
    assert_eq!(tool.check_arguments(&Map::new()), Ok(()));
}

#[tokio::test]
async fn compressed_bodies_are_neither_requested_nor_inflated() {
    // The beginning of a gzip stream: a client that inflates it fails in another way.
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let answer = |request: &RawRequest, response: &mut RawResponse<'_>| {
        if request.rpc_method() != "tools/call" {
            return Ok(false);
        }
        response.start(200, &[JSON[0], ("content-encoding", "gzip")])?;
        response.write(&HEAD).map(|()| true)
    };
    let server = start(|| "one".to_owned(), answer);
    let harness = McpHarness::new([definition(&server)]);
    let message = harness.call("test/echo", json!({})).await.unwrap_err().failure.message;
    assert!(message.contains("it is not a JSON-RPC message"), "{message}");
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.header("accept-encoding").is_none()));
}

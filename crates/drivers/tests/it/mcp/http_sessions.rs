//! Streamable HTTP sessions that the server loses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polity_model::failure::ErrorCategory;
use polity_testkit::raw_http::{RawRequest, RawResponse};
use serde_json::{Value, json};

use super::harness::McpHarness;
use super::streamable_server::{EVENTS, JSON, definition, start};

/// The session of a server that forgets them: each `lose` starts another.
#[derive(Clone, Default)]
struct CurrentSession(Arc<AtomicUsize>);

impl CurrentSession {
    fn id(&self) -> String {
        format!("session-{}", self.0.load(Ordering::SeqCst))
    }

    fn lose(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// True if a request belongs to a session that was lost.
    fn is_lost(&self, request: &RawRequest) -> bool {
        request.header("mcp-session-id").is_some_and(|id| id != self.id())
    }
}

#[tokio::test]
async fn call_in_a_lost_session_is_repeated_in_a_new_one() {
    // The answers to a request in an unknown session: as the specification says, and as servers do.
    let refusals = [
        (404, ""),
        (404, r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"gone"}}"#),
        (400, r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"gone"}}"#),
        (400, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"gone"}}"#),
    ];
    for (status, body) in refusals {
        let session = CurrentSession::default();
        let (current, lost) = (session.clone(), session.clone());
        let server = start(
            move || current.id(),
            move |request, response| {
                if lost.is_lost(request) {
                    return response.send(status, &JSON, body).map(|()| true);
                }
                Ok(false)
            },
        );
        let harness = McpHarness::new([definition(&server)]);
        assert_eq!(harness.echo("before").await, "before");
        session.lose();
        assert_eq!(harness.echo("after").await, "after", "{status} {body}");
        assert_eq!(server.count_rpc("initialize"), 2, "{status} {body}");
        assert_eq!(server.count_rpc("tools/call"), 3, "{status} {body}");
    }
}

#[tokio::test]
async fn call_whose_stream_cannot_be_resumed_fails_and_the_next_one_opens_a_session() {
    for status in [404, 400] {
        let session = CurrentSession::default();
        let (current, lost) = (session.clone(), session.clone());
        let server = start(
            move || current.id(),
            move |request: &RawRequest, response: &mut RawResponse<'_>| {
                if lost.is_lost(request) {
                    return response.send(status, &[], "").map(|()| true);
                }
                if request.json()["params"]["arguments"]["text"] != "cut" {
                    return Ok(false);
                }
                // An event with an id asks the client to resume the stream after it. Then the server
                // restarts, without its sessions.
                response.start(200, &EVENTS)?;
                response.write(b"id: 1\nretry: 10\ndata:\n\n")?;
                lost.lose();
                Ok(true)
            },
        );
        let harness = McpHarness::new([definition(&server)]);
        let failure = harness.call("test/echo", json!({"text": "cut"})).await.unwrap_err();
        assert_eq!(
            (failure.failure.category, failure.maybe_done),
            (ErrorCategory::Transient, true),
            "the server may have done it: {failure:?}"
        );
        let message = &failure.failure.message;
        assert!(!failure.timed_out, "{message}");
        assert!(message.contains("it does not know the session any more"), "{message}");
        let resumed = |request: &RawRequest| request.header("last-event-id") == Some("1");
        assert_eq!(server.requests().iter().filter(|request| resumed(request)).count(), 1);
        assert_eq!(harness.echo("again").await, "again");
        assert_eq!(server.count_rpc("initialize"), 2);
    }
}

#[tokio::test]
async fn call_on_a_server_that_stays_away_fails() {
    // Each attempt to resume the stream fails, as it does while a server is down.
    let server = start(
        || "one".to_owned(),
        |request, response| {
            if request.header("last-event-id").is_some() {
                return response.send(503, &[], "").map(|()| true);
            }
            if request.json()["params"]["arguments"]["text"] != "cut" {
                return Ok(false);
            }
            response.start(200, &EVENTS)?;
            response.write(b"id: 1\nretry: 1\ndata:\n\n").map(|()| true)
        },
    );
    let harness = McpHarness::new([definition(&server)]);
    let failure = harness.call("test/echo", json!({"text": "cut"})).await.unwrap_err();
    assert!(failure.maybe_done && !failure.timed_out, "{failure:?}");
    let message = failure.failure.message;
    assert!(message.contains("its stream could not be opened 5 times in a row"), "{message}");
    assert_eq!(harness.echo("again").await, "again");
}

#[tokio::test]
async fn cut_stream_is_resumed_after_its_last_event() {
    let asked = Mutex::new(Value::Null);
    let server = start(
        || "one".to_owned(),
        move |request, response| {
            if request.header("last-event-id") == Some("7") {
                let result = json!({"content": [{"type": "text", "text": "whole"}]});
                let id = asked.lock().unwrap().clone();
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                response.start(200, &EVENTS)?;
                return response.write(format!("data: {answer}\n\n").as_bytes()).map(|()| true);
            }
            if request.rpc_method() != "tools/call" {
                return Ok(false);
            }
            *asked.lock().unwrap() = request.json()["id"].clone();
            response.start(200, &EVENTS)?;
            response.write(b"id: 7\nretry: 1\ndata:\n\n").map(|()| true)
        },
    );
    let harness = McpHarness::new([definition(&server)]);
    assert_eq!(harness.echo("x").await, "whole");
    assert_eq!(server.count_rpc("tools/call"), 1);
}

#[tokio::test]
async fn answer_to_another_request_fails_the_call() {
    let server = start(
        || "one".to_owned(),
        |request, response| {
            if request.rpc_method() != "tools/call" {
                return Ok(false);
            }
            let body = r#"{"jsonrpc": "2.0", "id": 4711, "result": {"content": []}}"#;
            response.send(200, &JSON, body).map(|()| true)
        },
    );
    let harness = McpHarness::new([definition(&server)]);
    let failure = harness.call("test/echo", json!({})).await.unwrap_err();
    assert!(failure.maybe_done, "{failure:?}");
    assert!(failure.failure.message.contains("it answers another request"), "{failure:?}");
}

/// Such a server may answer over the stream that a client opens with GET, but this one has none.
#[tokio::test]
async fn call_that_is_accepted_without_an_answer_fails_at_once() {
    let server = start(
        || "session".to_owned(),
        |request, response| {
            if request.rpc_method() != "tools/call" {
                return Ok(false);
            }
            response.send(202, &[], "").map(|()| true)
        },
    );
    let harness = McpHarness::new([definition(&server)]);
    let failed = harness.call("test/echo", json!({"text": "x"})).await.unwrap_err();
    let message = format!("{failed:?}");
    assert!(message.contains("the server offers no stream"), "{message}");
}

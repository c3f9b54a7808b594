//! Requests that a web page, a scanner or a broken client would send. None gives a 500.

use std::io::{Read, Write};

use serde_json::json;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

#[test]
fn dns_rebinding_and_foreign_pages_are_refused_on_every_route() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let token = &server.token;
    for path in
        ["/", "/healthz", "/api/v1/tasks", "/api/v1/events", "/api/openapi.json", "/metrics"]
    {
        let evil = format!(
            "GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        server.send_raw(&evil).expect_problem(421, "wrong_host");
        let absolute = format!(
            "GET http://evil.example{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            server.address()
        );
        server.send_raw(&absolute).expect_problem(421, "wrong_host");
        let page = server.send("GET", path, "Origin: http://evil.example\r\n", "");
        page.expect_problem(403, "foreign_origin");
        assert_eq!(page.header("access-control-allow-origin"), None);
    }
}

#[test]
fn bodies_of_other_types_and_shapes_are_refused() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let good = r#"{"agent": "greeter", "input": "Ada"}"#;
    for (kind, body, status, code) in [
        ("text/plain", good, 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", "agent=greeter", 415, "unsupported_media_type"),
        ("multipart/form-data; boundary=x", good, 415, "unsupported_media_type"),
        ("application/json", "{", 400, "bad_request"),
        ("application/json", "[]", 422, "invalid_request"),
        ("application/json", r#"{"agent": "greeter", "input": 1}"#, 422, "invalid_request"),
        ("application/json", r#"{"agent": "greeter"}"#, 422, "invalid_request"),
        ("application/json", r#"{"input": "x"}"#, 422, "invalid_request"),
        (
            "application/json",
            r#"{"agent": "greeter", "input": "x", "tool": 1}"#,
            422,
            "invalid_request",
        ),
        ("application/json", r#"{"agent": "greter", "input": "x"}"#, 404, "unknown_agent"),
        ("application/json", r#"{"agent": "../etc/passwd", "input": "x"}"#, 404, "unknown_agent"),
        ("application/json", r#"{"agent": "greeter", "input": ""}"#, 422, "usage"),
    ] {
        let headers = format!("Content-Type: {kind}\r\n");
        let answer = server.send("POST", "/api/v1/tasks", &headers, body);
        answer.expect_problem(status, code);
    }
    let encoded = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
    server
        .send("POST", "/api/v1/tasks", encoded, good)
        .expect_problem(415, "unsupported_media_type");
    assert_eq!(home.tasks().len(), 0);
}

#[test]
fn large_bodies_are_refused_by_their_limit() {
    let home = HomeSandbox::new();
    home.write("polity.yaml", "limits: {input_bytes: 1000}\n");
    let server = ServerProcess::start(&home);
    let long = json!({"agent": "greeter", "input": "x".repeat(2000)});
    server.post("/api/v1/tasks", &long).expect_problem(413, "limit_input_bytes");
    let huge = json!({"agent": "greeter", "input": "x".repeat(3 << 20)});
    server.post("/api/v1/tasks", &huge).expect_problem(413, "body_too_large");
}

#[test]
fn ids_cursors_and_queries_that_make_no_sense_are_refused() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    for (path, status) in [
        ("/api/v1/tasks/x", 404),
        ("/api/v1/tasks/00000000-0000-4000-8000-000000000000", 404),
        ("/api/v1/tasks/..%2f..%2fetc%2fpasswd", 404),
        ("/api/v1/executions/last", 404),
        ("/api/v1/agents/..%2fgreeter", 404),
        ("/api/v1/nothing", 404),
        ("/api/v1/tasks?limit=0", 422),
        ("/api/v1/tasks?limit=x", 422),
        ("/api/v1/tasks?limit=100000", 422),
        ("/api/v1/tasks?status=done", 422),
        ("/api/v1/tasks?cursor=abc", 404),
        ("/api/v1/tasks?color=red", 422),
        ("/api/v1/cost?by=colour", 422),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
    }
    server.send("DELETE", "/api/v1/tasks", "", "").expect_problem(405, "method_not_allowed");
    let wait = server.post("/api/v1/tasks?wait=1h", &json!({"agent": "greeter", "input": "x"}));
    assert_eq!(wait.expect_problem(422, "invalid_request")["field"], "wait");
}

#[test]
fn slow_client_is_disconnected() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let mut stream = server.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x").unwrap();
    let mut rest = Vec::new();
    // The server closes the connection; others are served meanwhile.
    assert_eq!(server.send_with("GET", "/healthz", "", "").status, 200);
    stream.read_to_end(&mut rest).unwrap();
}

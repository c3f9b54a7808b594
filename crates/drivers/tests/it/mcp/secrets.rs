//! Redaction of secrets in results and errors.

use std::net::{Ipv4Addr, TcpListener};

use polity_definition::McpServerDefinition;
use polity_drivers::EnvSource;
use polity_testkit::mcp::{environment, fixture, server};
use serde_json::json;

use super::harness::McpHarness;

const SECRET: &str = "sk-very-secret";

/// The fixture with a secret that it repeats in its errors.
fn echoing_server(args: &[&str]) -> McpHarness {
    let fixture = fixture();
    let args = [&[fixture.to_str().unwrap(), "--tell-secret"], args].concat();
    let env = json!({"SECRET": "${POLITY_SECRET}"});
    let config = json!({"command": "python3", "args": args, "env": env});
    McpHarness::with([server("test", "stdio", &config, &json!({}))], |options| {
        options.environment = EnvSource::new(|name| match name {
            "POLITY_SECRET" => Some(SECRET.to_owned()),
            _ => environment(name),
        });
    })
}

#[tokio::test]
async fn start_failure_contains_no_secret() {
    let harness = echoing_server(&["--exit-at-once"]);
    let mut failure = harness.refusal("test/*").await;
    insta::assert_snapshot!(failure.message, @r#"
    MCP server "test" cannot be reached: it closed the connection during the handshake; it printed a line on stdout that is no MCP message: The secret is ***; it ended with exit status: 4; its last words on stderr:
    no configuration ***
    "#);
    // Later reports of the same failure are redacted too.
    while !failure.message.contains("times in a row") {
        failure = harness.refusal("test/*").await;
    }
    assert!(failure.message.contains("no configuration ***"), "{failure}");
    assert!(!failure.message.contains(SECRET), "{failure}");
}

#[tokio::test]
async fn call_outcomes_contain_no_secret() {
    let harness = echoing_server(&[]);
    let refused = harness.call("test/nothing", json!({})).await.unwrap_err().failure;
    insta::assert_snapshot!(refused.message, @"the call of test/nothing failed: Unknown tool: nothing *** (-32602)");
    assert_eq!(harness.echo(SECRET).await, "***");
    let lost = harness.call("test/die", json!({})).await.unwrap_err().failure;
    assert!(lost.message.ends_with("its last words on stderr:\nI am dying ***"), "{lost}");
}

fn server_at(transport: &str, url: &str) -> McpServerDefinition {
    server("far", transport, &json!({"url": url}), &json!({}))
}

#[tokio::test]
async fn connect_error_shows_url_without_secret_parts() {
    for transport in ["sse", "streamable_http"] {
        let url = "http://user:secret@127.0.0.1:9/mcp?apiKey=secret#secret";
        let message = McpHarness::new([server_at(transport, url)]).refusal("far/*").await.message;
        assert!(message.starts_with("MCP server \"far\" cannot be reached: "), "{message}");
        assert!(message.ends_with(" (at http://127.0.0.1:9/mcp)"), "{message}");
        assert!(!message.contains("secret") && !message.contains("for url"), "{message}");
    }
}

#[tokio::test]
async fn error_status_shows_url_without_secret_parts() {
    for transport in ["sse", "streamable_http"] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                use std::io::{Read, Write};
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
            }
        });
        let url = format!("http://user:secret@127.0.0.1:{port}/mcp?apiKey=secret");
        let message = McpHarness::new([server_at(transport, &url)]).refusal("far/*").await.message;
        assert!(message.contains("403"), "{message}");
        assert!(!message.contains("secret") && !message.contains("for url"), "{message}");
    }
}

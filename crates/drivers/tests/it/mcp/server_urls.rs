//! Variables in the address of a server.

use polity_drivers::EnvSource;
use polity_testkit::mcp::{environment, server};
use serde_json::json;

use super::harness::McpHarness;
use super::streamable_server::start;

const SECRET: &str = "very secret/token";

fn harness(transport: &str, url: &str, values: Vec<(&'static str, String)>) -> McpHarness {
    let definition = server("test", transport, &json!({"url": url}), &json!({}));
    McpHarness::with([definition], |options| {
        options.environment = EnvSource::new(move |name| {
            let value = values.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| value.clone()).or_else(|| environment(name))
        });
    })
}

#[tokio::test]
async fn variables_in_the_url_are_filled_in() {
    let server = start(|| "one".to_owned(), |_, _| Ok(false));
    let base = server.url("");
    let url = "${MCP_BASE}/mcp?key=${MCP_KEY}";
    let values = vec![("MCP_BASE", base), ("MCP_KEY", "k1".to_owned())];
    let harness = harness("streamable_http", url, values);
    assert_eq!(harness.echo("hello").await, "hello");
    assert!(server.requests().iter().all(|request| request.path == "/mcp?key=k1"));
}

#[tokio::test]
async fn missing_variable_in_the_url_is_named() {
    for transport in ["sse", "streamable_http"] {
        let harness = harness(transport, "http://127.0.0.1:9/${NOT_SET}", Vec::new());
        let message = harness.refusal("test/*").await.message;
        assert_eq!(
            message,
            "MCP server \"test\" needs the environment variable NOT_SET, which is not set (it is \
             named in its url)"
        );
        let values = vec![("MCP_URL", "not an address".to_owned())];
        let message =
            self::harness(transport, "${MCP_URL}", values).refusal("test/*").await.message;
        assert!(message.contains("is not an address that starts with http://"), "{message}");
        assert!(!message.contains("not an address once"), "{message}");
    }
}

#[tokio::test]
async fn variables_of_the_url_do_not_appear_in_errors() {
    for transport in ["sse", "streamable_http"] {
        let values = vec![("MCP_TOKEN", SECRET.to_owned())];
        let harness = harness(transport, "http://127.0.0.1:9/${MCP_TOKEN}/mcp", values);
        let message = harness.refusal("test/*").await.message;
        assert!(message.ends_with("(at http://127.0.0.1:9/***/mcp)"), "{message}");
    }
}

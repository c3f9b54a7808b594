use serde_json::{Value, json};

use super::*;

const CARD: &str = "https://h/.well-known/agent-card.json";

fn select_interface(card: Value, token: Option<&str>) -> Result<A2aInterface, String> {
    let card: AgentCard = serde_json::from_value(card).unwrap();
    card.select_interface(&Url::parse(CARD).unwrap(), token).map_err(|error| error.to_string())
}

fn offer(url: &str, binding: &str, version: &str) -> Value {
    json!({"url": url, "protocolBinding": binding, "protocolVersion": version})
}

fn card_1(offers: &[Value]) -> Value {
    json!({"name": "x", "supportedInterfaces": offers, "capabilities": {"streaming": true}})
}

#[test]
fn selects_the_preferred_interface_of_every_card_version() {
    let rpc_1 = offer("https://h/rpc", "JSONRPC", "1.0");
    let rest_1 = offer("https://h/rest", "HTTP+JSON", "1.0.1");
    let rpc_03 = offer("https://h/old", "JSONRPC", "0.3");
    let grpc = offer("h:1", "GRPC", "1.0");
    let mut hybrid = card_1(&[rest_1.clone(), rpc_1.clone()]);
    hybrid["url"] = json!("https://h/old");
    hybrid["protocolVersion"] = json!("0.3.0");
    let pure_03 = json!({"protocolVersion": "0.3.0", "url": "https://h/rest",
        "preferredTransport": "HTTP+JSON",
        "additionalInterfaces": [{"url": "https://h/old", "transport": "JSONRPC"}]});
    for (card, binding, path) in [
        (
            card_1(&[grpc.clone(), rest_1.clone(), rpc_03.clone(), rpc_1]),
            A2aBinding::JsonRpc1,
            "/rpc",
        ),
        (card_1(&[rpc_03.clone(), rest_1]), A2aBinding::HttpJson1, "/rest"),
        (card_1(&[grpc, rpc_03]), A2aBinding::JsonRpc03, "/old"),
        (hybrid, A2aBinding::JsonRpc1, "/rpc"),
        (pure_03, A2aBinding::JsonRpc03, "/old"),
        (json!({"url": "https://h/old"}), A2aBinding::JsonRpc03, "/old"),
    ] {
        let interface = select_interface(card.clone(), None).unwrap();
        assert_eq!((interface.binding, interface.url.path()), (binding, path), "{card}");
    }
}

#[test]
fn unsupported_bindings_error_lists_supported_ones() {
    let card = card_1(&[offer("h:1", "GRPC", "1.0"), offer("https://h/", "HTTP+JSON", "0.3")]);
    let error = select_interface(card, None).unwrap_err();
    assert!(error.contains("offers GRPC 1.0, HTTP+JSON 0.3"), "{error}");
    assert!(error.contains("JSONRPC 1.0, HTTP+JSON 1.0, JSONRPC 0.3"), "{error}");
    // An interface with an invalid URL is unusable, whatever its binding.
    let error = select_interface(card_1(&[offer("nowhere", "JSONRPC", "1.0")]), None).unwrap_err();
    assert!(error.contains("offers JSONRPC 1.0 at \"nowhere\", which is no address"), "{error}");
}

#[test]
fn token_goes_only_to_the_card_origin() {
    let other = offer("https://other/rpc", "JSONRPC", "1.0");
    let own = offer("https://h/rest", "HTTP+JSON", "1.0");
    let token = Some("TOKEN");
    let error = select_interface(card_1(std::slice::from_ref(&other)), token).unwrap_err();
    assert!(error.contains("https://other/rpc") && error.contains("TOKEN"), "{error}");
    assert_eq!(select_interface(card_1(&[other.clone(), own]), token).unwrap().url.path(), "/rest");
    assert_eq!(select_interface(card_1(&[other]), None).unwrap().url.path(), "/rpc");
    // Another port is another origin.
    let error =
        select_interface(card_1(&[offer("https://h:8443/", "JSONRPC", "1.0")]), token).unwrap_err();
    assert!(error.contains("another origin"), "{error}");
}

#[test]
fn rejects_downgrade_from_tls() {
    let error =
        select_interface(card_1(&[offer("http://h/", "JSONRPC", "1.0")]), None).unwrap_err();
    assert!(error.contains("has no TLS"), "{error}");
}

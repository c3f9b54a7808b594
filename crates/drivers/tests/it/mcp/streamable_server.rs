//! A streamable HTTP server of the older lifecycle, whose answers a test replaces.

use std::io;

use polity_definition::McpServerDefinition;
use polity_testkit::mcp::server;
use polity_testkit::raw_http::{RawHttpServer, RawRequest, RawResponse};
use serde_json::{Value, json};

/// The headers of a JSON answer.
pub(crate) const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// The headers of a stream.
pub(crate) const EVENTS: [(&str, &str); 1] = [("content-type", "text/event-stream")];

/// Starts a server. `answer` returns false for requests that it leaves to the default answers: a
/// handshake with the session that `session` names, and one tool, `echo`.
pub(crate) fn start(
    session: impl Fn() -> String + Send + Sync + 'static,
    answer: impl Fn(&RawRequest, &mut RawResponse<'_>) -> io::Result<bool> + Send + Sync + 'static,
) -> RawHttpServer {
    RawHttpServer::start(move |request, response| {
        if answer(request, response)? {
            return Ok(());
        }
        let session = session();
        let reply = |response: &mut RawResponse<'_>, headers: &[(&str, &str)], result: Value| {
            let id = request.json()["id"].clone();
            let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
            response.send(200, &[&JSON, headers].concat(), &body)
        };
        match request.rpc_method().as_str() {
            "server/discover" => {
                let error = json!({"code": -32601, "message": "unknown method"});
                let id = request.json()["id"].clone();
                let body = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
                response.send(200, &JSON, &body)
            }
            "initialize" => {
                let info = json!({"name": "test", "version": "1"});
                let result = json!({"protocolVersion": "2025-06-18", "serverInfo": info,
                    "capabilities": {"tools": {}}});
                reply(response, &[("mcp-session-id", &session)], result)
            }
            "tools/list" => reply(response, &[], json!({"tools": [tool("echo", json!({}))]})),
            "tools/call" => {
                let text = request.json()["params"]["arguments"]["text"].clone();
                reply(response, &[], json!({"content": [{"type": "text", "text": text}]}))
            }
            _ if request.method == "GET" => response.send(405, &[], ""),
            _ => response.send(202, &[], ""),
        }
    })
}

/// A tool whose arguments have this schema, as a server lists it.
pub(crate) fn tool(name: &str, schema: Value) -> Value {
    let mut schema = schema;
    schema["type"] = json!("object");
    json!({"name": name, "description": "A tool.", "inputSchema": schema})
}

/// The definition of the server.
pub(crate) fn definition(server_at: &RawHttpServer) -> McpServerDefinition {
    server("test", "streamable_http", &json!({"url": server_at.url("/mcp")}), &json!({}))
}

//! Charts and tools over HTTP.

use serde_json::{Value, json};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;
use crate::tools;

#[test]
fn charts_are_listed_shown_drawn_and_fired() {
    let home = HomeSandbox::society();
    let server = ServerProcess::start(&home);
    let listed = server.get("/api/v1/charts").expect(200);
    assert_eq!(listed["items"], home.get(&["chart", "list"]));
    let shown = server.get("/api/v1/charts/social").expect(200);
    assert_eq!(shown, home.get(&["chart", "show", "social"]));
    for format in ["svg", "mermaid", "dot", "scxml"] {
        let drawn = server.get(&format!("/api/v1/charts/social/graph?format={format}"));
        let expected = home.polity(&["chart", "graph", "social", "--format", format]).exits(0);
        assert_eq!((drawn.status, &drawn.body), (200, &expected.out), "{format}");
    }
    let fire = |body: &Value| server.post("/api/v1/charts/social/fire", body);
    let fired = fire(&json!({"trigger": "feed_ready"})).expect(200);
    assert_eq!(fired, json!({"from": "idle", "to": "scrolling"}));
    let reply = json!({"trigger": "compose_done", "state": "composing", "fields": {"pending_action": "reply"}});
    let args =
        ["--state", "composing", "--trigger", "compose_done", "--set", "pending_action=reply"];
    let expected = home.get(&[&["chart", "fire", "social"], &args[..]].concat());
    assert_eq!(fire(&reply).expect(200), expected);
    for body in [
        json!({"trigger": "sleep"}),
        json!({"trigger": "decides", "state": "asleep"}),
        json!({"trigger": "decides", "fields": {"mood": 1}}),
        json!({"trigger": "decides", "fields": {"engagement_threshold": 2}}),
    ] {
        fire(&body).expect_problem(422, "usage");
    }
    fire(&json!({"trigger": "decides", "seed": -1})).expect_problem(422, "invalid_request");
    let unknown = server.get("/api/v1/charts/socail").expect_problem(404, "not_found");
    assert_eq!(unknown["hint"], "did you mean \"social\"?");
    server.get("/api/v1/charts/..%2f..%2fpolity").expect_problem(404, "not_found");
}

#[test]
fn tools_are_listed_and_called_by_unlimited_tokens_only() {
    let home = tools::home("", "{}", &[]);
    let limited =
        home.get(&["token", "create", "limited", "--scope", "run,read", "--agent", "worker"]);
    let mut server = ServerProcess::start(&home);
    let listed = server.get("/api/v1/tools").expect(200);
    assert_eq!(listed["items"], home.get(&["tool", "list"]));
    assert_eq!(listed["problems"], json!([]));
    assert_eq!(server.get("/api/v1/tools?server=kit").expect(200), listed);
    let called = server.post("/api/v1/tools/kit/echo/call", &json!({"arguments": {"text": "hi"}}));
    let (mut expected, _) = home.json(&["tool", "call", "kit/echo", "--arg", "text=hi"]);
    let mut called = called.expect(200);
    for answer in [&mut called, &mut expected] {
        answer.as_object_mut().unwrap().remove("duration_ms").unwrap();
    }
    assert_eq!(called, expected);
    let call = |path: &str, body: &Value| server.post(&format!("/api/v1/tools/{path}/call"), body);
    call("kit/nothing", &json!({})).expect_problem(404, "not_found");
    call("nobody/echo", &json!({})).expect_problem(404, "not_found");
    call("kit/add", &json!({"arguments": {"a": "x", "b": 2}})).expect_problem(422, "usage");
    call("kit/add", &json!({"arguments": [1]})).expect_problem(422, "invalid_request");
    server.get("/api/v1/tools?server=nobody").expect_problem(404, "not_found");
    server.token = limited["token"].as_str().unwrap().to_owned();
    server.get("/api/v1/tools").expect_problem(403, "forbidden");
    server.post("/api/v1/tools/kit/echo/call", &json!({})).expect_problem(403, "forbidden");
    server.get("/api/v1/simulations").expect_problem(403, "forbidden");
}

#[test]
fn unreachable_tool_server_hides_no_other_and_gives_no_500() {
    let home = HomeSandbox::bare();
    home.write(
        "config/mcp_servers.yaml",
        "servers:\n  - {name: gone, transport: stdio, config: {command: /no/such/program}}\n",
    );
    let server = ServerProcess::start(&home);
    let listed = server.get("/api/v1/tools").expect(200);
    assert_eq!(listed["items"], json!([]));
    assert_eq!(listed["problems"][0]["code"], "tools_unavailable");
    server.post("/api/v1/tools/gone/any/call", &json!({})).expect_problem(502, "tools_unavailable");
}

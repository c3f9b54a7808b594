//! `Idempotency-Key` on every route that starts work.

use std::thread;

use serde_json::json;

use super::client::{HttpAnswer, ServerProcess};
use crate::sandbox::HomeSandbox;

fn send(server: &ServerProcess<'_>, path: &str, key: &str, body: &str) -> HttpAnswer {
    let headers = format!("Content-Type: application/json\r\nIdempotency-Key: {key}\r\n");
    server.send("POST", path, &headers, body)
}

#[test]
fn routes_that_start_work_document_the_key() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let document = server.send_with("GET", "/api/openapi.json", "", "").expect(200);
    for path in [
        "/api/v1/tasks",
        "/api/v1/tasks/{task_id}/fork",
        "/api/v1/tasks/{task_id}/retry",
        "/api/v1/executions",
        "/api/v1/simulations",
    ] {
        let parameters = document["paths"][path]["post"]["parameters"].to_string();
        assert!(parameters.contains("Idempotency-Key"), "{path}");
    }
    for key in ["", &"k".repeat(256)] {
        let body = r#"{"agent": "greeter", "input": "x"}"#;
        let refused = send(&server, "/api/v1/tasks", key, body);
        let problem = refused.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], "Idempotency-Key", "{key}");
    }
}

#[test]
fn retry_is_replayed_for_its_key_only() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("broken", "test -e ok || exit 3; echo fine", ", max_retries: 0");
    let server = ServerProcess::start(&home);
    let failed = server.post("/api/v1/tasks?wait=60s", &json!({"agent": "broken", "input": "x"}));
    home.write("ok", "");
    let failed = failed.expect(200);
    let retry = format!("/api/v1/tasks/{}/retry?wait=60s", failed["id"].as_str().unwrap());
    let first = send(&server, &retry, "a", "{}");
    assert_eq!(first.expect(200)["result"], "fine");
    let again = send(&server, &retry, "a", "{}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(200), first.expect(200));
    send(&server, &retry, "a", r#"{"max_tokens": 9}"#)
        .expect_problem(422, "idempotency_key_reused");
    send(&server, &retry, "b", "{}").expect_problem(409, "conflict");
    server.post(&retry, &json!({})).expect_problem(409, "conflict");
}

#[test]
fn running_request_is_refused_or_attached_to() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("slow", "until test -e go; do sleep 0.05; done; echo done", "");
    let server = ServerProcess::start(&home);
    let body = r#"{"agent": "slow", "input": "x"}"#;
    thread::scope(|scope| {
        let waiting = || send(&server, "/api/v1/tasks?wait=120s", "k", body);
        let first = scope.spawn(waiting);
        home.wait_until("the task", || (home.tasks().len() == 1).then_some(()));
        send(&server, "/api/v1/tasks", "k", body).expect_problem(409, "request_in_progress");
        let attached = scope.spawn(waiting);
        // The attached request does not start the work a second time.
        home.wait_until("the program", || {
            let active = server.get("/api/v1/executions?active=true").expect(200);
            (active["items"][0]["state"] == "running").then_some(())
        });
        home.write("go", "");
        let (first, attached) = (first.join().unwrap(), attached.join().unwrap());
        assert_eq!(first.expect(200), attached.expect(200));
        assert_eq!(home.tasks().len(), 1);
    });
}

#[test]
fn key_outlives_its_agent_and_the_retention_policy() {
    let home = HomeSandbox::new();
    home.write("config/retention_policy.yaml", "default_days: 0\n");
    let server = ServerProcess::start(&home);
    let body = r#"{"agent": "greeter", "input": "Ada", "retention_days": 0}"#;
    let first = send(&server, "/api/v1/tasks?wait=60s", "k", body).expect(200);
    server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "x"})).expect(200);
    let plan = home.get(&["gc", "--dry-run"]);
    assert!(plan.to_string().contains("Idempotency-Key"), "{plan}");
    home.polity(&["gc"]).exits(0);
    let left = home.tasks();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["id"], first["id"]);
    // The stored answer needs neither the definition nor a server that takes new work.
    std::fs::remove_file(home.file("agents/greeter.yaml")).unwrap();
    home.wait_until("the removal", || {
        (server.get("/api/v1/agents/greeter").status == 404).then_some(())
    });
    let again = send(&server, "/api/v1/tasks?wait=60s", "k", body);
    assert_eq!(again.expect(200), first);
}

//! Tasks, reviews and agents over HTTP.

use serde_json::{Value, json};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

#[test]
fn task_is_submitted_waited_for_listed_and_shown() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let done = server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "Ada"}));
    let task = done.expect(200);
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!("Hello, Ada.")));
    let id = task["id"].as_str().unwrap();
    assert_eq!(done.header("location"), Some(&*format!("/api/v1/tasks/{id}")));
    assert_eq!(server.get(&format!("/api/v1/tasks/{id}")).expect(200), task);
    // The command line sees the same task.
    assert_eq!(home.get(&["task", "show", id]), task);
    let trace = server.get(&format!("/api/v1/tasks/{id}/trace")).expect(200);
    assert_eq!(trace, home.get(&["task", "trace", id]));
    let checkpoints = server.get(&format!("/api/v1/tasks/{id}/checkpoints")).expect(200);
    assert_eq!(checkpoints["items"], home.get(&["task", "checkpoints", id]));

    for _ in 0..4 {
        server
            .post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "Bob"}))
            .expect(200);
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page =
            server.get(&format!("/api/v1/tasks?limit=2&status=completed{cursor}")).expect(200);
        found.extend(page["items"].as_array().unwrap().iter().map(|task| task["id"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let listed: Vec<Value> = home.tasks().iter().map(|task| task["id"].clone()).collect();
    assert_eq!(found, listed);
    let foreign = server.get(&format!("/api/v1/tasks?limit=2{cursor}"));
    assert_eq!(foreign.expect_problem(404, "unknown_cursor")["field"], "cursor");
}

#[test]
fn repeated_request_with_a_key_starts_one_task() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let headers = "Content-Type: application/json\r\nIdempotency-Key: order-1\r\n";
    let send = |server: &ServerProcess<'_>, body: &str| {
        server.send("POST", "/api/v1/tasks?wait=60s", headers, body)
    };
    let first = send(&server, r#"{"agent": "greeter", "input": "Ada"}"#);
    assert_eq!(first.header("idempotent-replayed"), None);
    let again = send(&server, r#"{"input":"Ada","agent":"greeter"}"#);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(200), first.expect(200));
    send(&server, r#"{"agent": "greeter", "input": "Eve"}"#)
        .expect_problem(422, "idempotency_key_reused");
    let fork = format!("/api/v1/tasks/{}/fork?wait=60s", first.expect(200)["id"].as_str().unwrap());
    let forks = [(); 2].map(|()| server.send("POST", &fork, headers, r#"{"from": 0}"#).expect(200));
    assert_eq!(forks[0]["id"], forks[1]["id"]);
    server
        .send("POST", &fork, headers, r#"{"from": 0, "definitions": "current"}"#)
        .expect_problem(422, "idempotency_key_reused");
    // The key outlives the server.
    server.kill();
    let server = ServerProcess::start(&home);
    assert_eq!(
        send(&server, r#"{"agent": "greeter", "input": "Ada"}"#).expect(200),
        first.expect(200)
    );
    assert_eq!(home.tasks().len(), 2);
}

#[test]
fn review_is_answered_and_the_task_continues() {
    let home = HomeSandbox::bare();
    home.write(
        "workflows/gate.yaml",
        "name: gate
entry_point: ask
nodes:
  ask: {type: human, question: \"Publish {{ input }}?\"}
  done: {type: condition, expression: \"'ok'\"}
edges: [{from: ask, to: {approve: done, reject: done, modify: done}}]
",
    );
    let server = ServerProcess::start(&home);
    let task = server.post("/api/v1/tasks?wait=60s", &json!({"workflow": "gate", "input": "it"}));
    let task = task.expect(200);
    assert_eq!(task["status"], "awaiting_human");
    let id = task["id"].as_str().unwrap();
    let reviews = server.get("/api/v1/reviews").expect(200);
    assert_eq!(reviews["items"][0]["question"], "Publish it?");
    assert_eq!(server.get(&format!("/api/v1/reviews/{id}")).expect(200), reviews["items"][0]);
    let answer = format!("/api/v1/reviews/{id}/answer");
    server.post(&answer, &json!({"action": "skip_with"})).expect_problem(422, "invalid_request");
    let other = "00000000-0000-4000-8000-000000000000";
    server
        .post(&answer, &json!({"action": "approve", "checkpoint_id": other}))
        .expect_problem(404, "not_found");
    server.post(&answer, &json!({"action": "approve", "message": "go"}));
    home.wait_for_status("completed");
    server.post(&answer, &json!({"action": "approve"})).expect_problem(409, "conflict");
}

#[test]
fn tasks_are_cancelled_retried_and_forked() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("slow", "exec sleep 600", "");
    home.write_shell_agent("broken", "test -e ok || exit 3; echo fine", ", max_retries: 0");
    let server = ServerProcess::start(&home);
    let slow = server.post("/api/v1/tasks", &json!({"agent": "slow", "input": "x"})).expect(202);
    let slow = slow["id"].as_str().unwrap();
    home.wait_until("the program", || {
        let active = server.get("/api/v1/executions?active=true").expect(200);
        (active["items"][0]["state"] == "running").then_some(())
    });
    let status = server.get("/api/v1/agents/slow/status").expect(200);
    assert_eq!(status["running"], 1);
    server.post(&format!("/api/v1/tasks/{slow}/cancel"), &json!({}));
    let ended = server.get(&format!("/api/v1/tasks/{slow}?wait=60s")).expect(200);
    assert_eq!(ended["status"], "cancelled");
    server
        .post(&format!("/api/v1/tasks/{slow}/cancel"), &json!({}))
        .expect_problem(409, "conflict");

    let failed = server.post("/api/v1/tasks?wait=60s", &json!({"agent": "broken", "input": "x"}));
    let failed = failed.expect(200);
    assert_eq!(failed["status"], "failed");
    home.write("ok", "");
    let retry = format!("/api/v1/tasks/{}/retry?wait=60s", failed["id"].as_str().unwrap());
    let retried = server.post(&retry, &json!({})).expect(200);
    assert_eq!((&retried["result"], &retried["retry_of"]), (&json!("fine"), &failed["id"]));
    server.post(&retry, &json!({})).expect_problem(409, "conflict");
}

#[test]
fn agents_are_disabled_and_definitions_read_again() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let body = json!({"agent": "greeter", "input": "Ada"});
    server.post("/api/v1/agents/greeter/disable", &json!({"reason": "holiday"})).expect(200);
    server.post("/api/v1/tasks", &body).expect_problem(409, "agent_disabled");
    server.post("/api/v1/agents/greeter/enable", &json!({})).expect(200);
    server.post("/api/v1/tasks?wait=60s", &body).expect(200);
    let agents = server.get("/api/v1/agents").expect(200);
    assert_eq!(agents["items"], home.get(&["agent", "list"]));

    let file = std::fs::read_to_string(home.file("agents/greeter.yaml")).unwrap();
    home.write("agents/second.yaml", &file.replace("name: greeter", "name: second"));
    home.wait_until("the new agent", || {
        (server.get("/api/v1/agents/second").status == 200).then_some(())
    });
    // A file that breaks keeps the agent as it was, and the server says so.
    home.write("agents/second.yaml", "name: [");
    home.wait_until("the problem", || {
        let ready = server.send_with("GET", "/readyz", "", "").json();
        ready["problems"].to_string().contains("agents/second.yaml").then_some(())
    });
    server.post("/api/v1/tasks?wait=60s", &json!({"agent": "second", "input": "x"})).expect(200);
}

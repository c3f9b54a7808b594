//! Starting, stopping, crashing and watching a server.

use serde_json::json;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

#[test]
fn killed_server_continues_its_tasks_after_a_restart() {
    let home = HomeSandbox::bare();
    home.write_shell_agent(
        "worker",
        "echo run >> ran; test -e ok || exec sleep 600; echo done",
        ", access_type: read-only, idempotent: true",
    );
    let server = ServerProcess::start(&home);
    server.post("/api/v1/tasks", &json!({"agent": "worker", "input": "x"})).expect(202);
    home.wait_until("the program", || home.file("ran").exists().then_some(()));
    server.kill();
    home.write("ok", "");
    let _server = ServerProcess::start(&home);
    home.wait_for_status("completed");
    assert_eq!(home.tasks().len(), 1);
}

#[test]
fn stopping_server_drains_and_takes_no_work() {
    let home = HomeSandbox::bare();
    home.write("polity.yaml", "server: {drain_seconds: 600}\n");
    home.write_shell_agent(
        "worker",
        "echo > began; while ! test -e ok; do sleep 0.05; done; echo fine",
        "",
    );
    let server = ServerProcess::start(&home);
    let body = json!({"agent": "worker", "input": "x"});
    server.post("/api/v1/tasks", &body).expect(202);
    home.wait_until("the program", || home.file("began").exists().then_some(()));
    let second = home.polity(&["serve", "--listen", "127.0.0.1:0"]);
    second.fails(1, "a server already serves this home");
    let stopping = std::thread::scope(|scope| {
        let stopping = scope.spawn(|| {
            home.wait_until("the stop", || {
                (server.send_with("GET", "/readyz", "", "").status == 503).then_some(())
            });
            server.post("/api/v1/tasks", &body).expect_problem(503, "draining");
            home.write("ok", "");
        });
        server.terminate();
        stopping.join()
    });
    stopping.unwrap();
    server.wait().exits(0);
    let tasks = home.tasks();
    assert_eq!((tasks.len(), &tasks[0]["result"]), (1, &json!("fine")));
    assert!(!home.file("data/server.json").exists());
}

#[test]
fn metrics_and_health_answer() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "x"})).expect(200);
    assert_eq!(server.send_with("GET", "/healthz", "", "").expect(200)["status"], "ok");
    assert_eq!(server.send_with("GET", "/readyz", "", "").expect(200)["ready"], true);
    let metrics = server.get("/metrics");
    for line in [
        "polity_http_requests_total{route=\"/api/v1/tasks\",status=\"200\"} 1",
        "polity_tasks{status=\"running\"} 0",
        "polity_tokens_total{agent=\"greeter\",kind=\"input\"} 12",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in {}", metrics.body);
    }
}

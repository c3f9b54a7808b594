//! Starting, stopping, crashing and watching a server.

use serde_json::{Value, json};

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
    // The duration is counted when the event of the end has passed through the feed.
    home.wait_until("the duration of the task", || {
        server.get("/metrics").body.contains("polity_task_duration_seconds_count").then_some(())
    });
    let metrics = server.get("/metrics");
    for line in [
        "polity_http_requests_total{route=\"/api/v1/tasks\",status=\"200\"} 1",
        "polity_tasks{status=\"running\"} 0",
        "polity_tokens_total{agent=\"greeter\",kind=\"input\"} 12",
        "polity_queue_length{agent=\"greeter\"} 0",
        "polity_task_duration_seconds_count{status=\"completed\"} 1",
        "polity_task_duration_seconds_bucket{status=\"completed\",le=\"86400\"} 1",
        "\npolity_free_disk_bytes ",
        "\npolity_journal_commit_duration_seconds_bucket{le=\"10\"} ",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in {}", metrics.body);
    }
}

/// A home whose agent `worker` writes the file `began` and waits for the file `ok`.
fn home_with_worker(settings: &str) -> HomeSandbox {
    let home = HomeSandbox::bare();
    home.write("polity.yaml", settings);
    home.write_shell_agent(
        "worker",
        "echo > began; while ! test -e ok; do sleep 0.05; done; echo fine",
        ", access_type: read-only, idempotent: true",
    );
    home
}

#[test]
fn full_disk_and_low_memory_refuse_new_work_and_lose_none() {
    const MOST: &str = "9000000000000000000";
    for (setting, code) in
        [("min_free_disk_bytes", "insufficient_storage"), ("min_free_memory_bytes", "low_memory")]
    {
        let home = home_with_worker("server: {drain_seconds: 0}\n");
        let body = json!({"agent": "worker", "input": "x"});
        let server = ServerProcess::start(&home);
        let task = server.post("/api/v1/tasks", &body).expect(202);
        home.wait_until("the program", || home.file("began").exists().then_some(()));
        server.stop().exits(0);
        home.write("polity.yaml", &format!("server: {{{setting}: {MOST}}}\n"));
        let server = ServerProcess::start(&home);
        let refused = server.post("/api/v1/tasks", &body);
        let problem = refused.expect_problem(503, code);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("server.{setting}")), "{detail}");
        assert!(refused.header("retry-after").is_some());
        let ready = server.send_with("GET", "/readyz", "", "").expect(503);
        assert!(ready["reason"].as_str().unwrap().contains(setting), "{ready}");
        // The task from before the shortage ends.
        home.write("ok", "");
        home.wait_for_status("completed");
        let path = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
        assert_eq!(server.get(&path).expect(200)["result"], "fine");
        assert_eq!(home.tasks().len(), 1);
        server.stop().exits(0);
    }
}

#[test]
fn second_signal_ends_the_drain_and_keeps_the_task() {
    let home = home_with_worker("server: {drain_seconds: 600}\n");
    let server = ServerProcess::start(&home);
    server.post("/api/v1/tasks", &json!({"agent": "worker", "input": "x"})).expect(202);
    home.wait_until("the program", || home.file("began").exists().then_some(()));
    server.terminate();
    home.wait_until("the stop", || {
        (server.send_with("GET", "/readyz", "", "").status == 503).then_some(())
    });
    server.terminate();
    server.wait().exits(0);
    let tasks = home.tasks();
    assert_eq!((&tasks[0]["status"], &tasks[0]["interrupted"]), (&json!("running"), &json!(true)));
    home.write("ok", "");
    let _server = ServerProcess::start(&home);
    home.wait_for_status("completed");
}

#[test]
fn stopping_server_ends_streams_with_a_hint_to_resume() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let mut lines = server.follow("/api/v1/events", "");
    server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "x"})).expect(200);
    // The stream is open, and has shown the task.
    assert!(lines.any(|line| line.contains("task_completed")));
    server.terminate();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line == "event: resume"), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("shutting down")), "{rest:?}");
    server.wait().exits(0);
}

#[test]
fn log_has_a_document_per_request_and_no_secrets() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start_with(&home, &["--log-format", "json"]);
    let answer = server.get("/api/v1/agents/greeter?secret=hunter2");
    let id = answer.header("x-request-id").unwrap().to_owned();
    server.send_with("GET", "/api/v1/tasks", "Authorization: Bearer wrong-hunter2\r\n", "");
    let token = server.token.clone();
    let log = server.stop().exits(0).err;
    assert!(!log.contains(&token) && !log.contains("hunter2"), "{log}");
    let documents: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of_request = |wanted: &dyn Fn(&Value) -> bool| {
        documents.iter().find(|one| one["message"] == "answered" && wanted(one)).unwrap().clone()
    };
    let known = of_request(&|one| one["request"] == id.as_str());
    assert_eq!(known["route"], "/api/v1/agents/{name}");
    assert_eq!((&known["method"], &known["token"]), (&json!("GET"), &json!("local")));
    assert_eq!(known["status"], answer.status);
    assert!(known["took_us"].is_u64() && known["at"].is_string() && known["level"] == "info");
    let unknown = of_request(&|one| one["status"] == 401);
    assert_eq!(unknown["token"], "none");
}

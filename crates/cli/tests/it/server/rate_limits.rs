//! Rate limits of tokens and agents.

use serde_json::json;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

#[test]
fn token_is_limited_and_told_its_quota() {
    let home = HomeSandbox::new();
    home.write(
        "polity.yaml",
        "server: {rate_limits: {per_token: {requests_per_minute: 1, burst: 2}}}\n",
    );
    let created = home.get(&["token", "create", "reader"]);
    let mut server = ServerProcess::start(&home);
    for remaining in ["1", "0"] {
        let answer = server.get("/api/v1/tasks");
        answer.expect(200);
        assert_eq!(answer.header("ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("ratelimit-remaining"), Some(remaining));
        assert!(answer.header("ratelimit-reset").is_some());
    }
    let refused = server.get("/api/v1/tasks");
    let problem = refused.expect_problem(429, "rate_limited");
    assert!(problem["detail"].as_str().unwrap().contains("server.rate_limits.per_token"));
    assert_eq!(refused.header("ratelimit-remaining"), Some("0"));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    // Routes without a token, and other tokens, are not limited by it.
    server.send_with("GET", "/healthz", "", "").expect(200);
    server.token = created["token"].as_str().unwrap().to_owned();
    server.get("/api/v1/tasks").expect(200);
}

#[test]
fn starts_of_an_agent_are_limited_for_all_tokens_together() {
    let home = HomeSandbox::new();
    home.write_shell_agent("other", "echo hi", "");
    home.write("polity.yaml", "server: {rate_limits: {per_agent: {requests_per_minute: 1}}}\n");
    let created = home.get(&["token", "create", "runner", "--scope", "run,read"]);
    let mut server = ServerProcess::start(&home);
    let body = |agent: &str| json!({"agent": agent, "input": "x"});
    let started = server.post("/api/v1/tasks?wait=60s", &body("greeter"));
    assert_eq!(started.header("ratelimit-limit"), None);
    let task = started.expect(200)["id"].as_str().unwrap().to_owned();
    server.token = created["token"].as_str().unwrap().to_owned();
    let refused = server.post("/api/v1/tasks", &body("greeter"));
    let problem = refused.expect_problem(429, "rate_limited");
    assert!(problem["detail"].as_str().unwrap().contains("server.rate_limits.per_agent"));
    assert!(refused.header("retry-after").is_some());
    server.post("/api/v1/tasks?wait=60s", &body("other")).expect(200);
    server.get(&format!("/api/v1/tasks/{task}")).expect(200);
    assert_eq!(home.tasks().len(), 2);
}

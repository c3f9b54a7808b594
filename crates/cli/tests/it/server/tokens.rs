//! Authentication: every route needs a token with the right scope.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// Every operation of the OpenAPI document: method, path with values, description.
fn operations(server: &ServerProcess<'_>) -> Vec<(String, String, String)> {
    let document = server.send_with("GET", "/api/openapi.json", "", "").expect(200);
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path
                .replace("{task_id}", "00000000-0000-4000-8000-000000000000")
                .replace("{execution_id}", "00000000-0000-4000-8000-000000000000")
                .replace("{other_task_id}", "00000000-0000-4000-8000-000000000000")
                .replace("{session_id}", "00000000-0000-4000-8000-000000000000")
                .replace("{run_id}", "00000000-0000-4000-8000-000000000000")
                .replace("{request_id}", "00000000-0000-4000-8000-000000000000")
                .replace("{server}", "kit")
                .replace("{tool}", "echo")
                .replace("{name}", "greeter");
            let description = operation["description"].as_str().unwrap_or_default().to_owned();
            all.push((method.to_uppercase(), path, description));
        }
    }
    assert!(all.len() > 20);
    all
}

fn send(server: &ServerProcess<'_>, method: &str, path: &str, token: Option<&str>) -> (u16, Value) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let headers = format!("{token}Content-Type: application/json\r\n");
    // A body that no route accepts, so that nothing happens.
    let answer = server.send_with(method, path, &headers, r#"{"unknown": 1}"#);
    (answer.status, answer.json())
}

#[test]
fn every_route_refuses_missing_wrong_and_weak_tokens() {
    let home = HomeSandbox::new();
    let token = |args: &[&str]| {
        let created = home.get(&[&["token", "create"], args].concat());
        created["token"].as_str().unwrap().to_owned()
    };
    let (read, run) = (token(&["reader"]), token(&["runner", "--scope", "run"]));
    let revoked = token(&["revoked", "--scope", "admin"]);
    home.polity(&["token", "revoke", "revoked"]).exits(0);
    let server = ServerProcess::start(&home);
    for (method, path, description) in operations(&server) {
        if path == "/healthz" || path == "/readyz" {
            continue;
        }
        // Two failures per route stay below the limit of failures of one address only if the
        // address is forgiven, so each route has a server of its own pace: missing tokens first.
        let (status, problem) = send(&server, &method, &path, None);
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{method} {path}");
        if method == "POST" {
            let (status, problem) = send(&server, &method, &path, Some(&read));
            assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{method} {path}");
        }
        let needs = |scope: &str| description.contains(&format!("`{scope}`"));
        if needs("admin") || needs("review") {
            let (status, _) = send(&server, &method, &path, Some(&run));
            assert_eq!(status, 403, "{method} {path}");
        }
    }
    let (status, _) = send(&server, "GET", "/api/v1/tasks", Some(&revoked));
    assert_eq!(status, 401);
    let (status, _) = send(&server, "GET", "/api/v1/tasks", Some("polity_wrong"));
    assert_eq!(status, 401);
    let (status, _) = send(&server, "GET", "/api/v1/tasks", Some(&read));
    assert_eq!(status, 200);
}

#[test]
fn token_for_one_agent_sees_and_starts_nothing_else() {
    let home = HomeSandbox::new();
    home.write_shell_agent("other", "echo hi", "");
    let created =
        home.get(&["token", "create", "limited", "--scope", "run,read", "--agent", "greeter"]);
    let mut server = ServerProcess::start(&home);
    let hidden = server.post("/api/v1/tasks?wait=60s", &json!({"agent": "other", "input": "x"}));
    let hidden = hidden.expect(200);
    server.token = created["token"].as_str().unwrap().to_owned();
    server
        .post("/api/v1/tasks", &json!({"agent": "other", "input": "x"}))
        .expect_problem(403, "forbidden");
    server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "x"})).expect(200);
    let listed = server.get("/api/v1/tasks").expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let path = format!("/api/v1/tasks/{}", hidden["id"].as_str().unwrap());
    server.get(&path).expect_problem(404, "not_found");
    server.get("/api/v1/events").expect_problem(403, "forbidden");
    server.get("/metrics").expect_problem(403, "forbidden");
    let agents = server.get("/api/v1/agents").expect(200);
    assert_eq!(agents["items"].as_array().unwrap().len(), 1);
}

#[test]
fn tokens_are_private_and_stored_as_digests() {
    let home = HomeSandbox::new();
    let created = home.get(&["token", "create", "ci", "--scope", "run", "--expires-days", "30"]);
    let secret = created["token"].as_str().unwrap();
    assert!(secret.len() >= 32);
    let server = ServerProcess::start(&home);
    for file in ["data/tokens.json", "data/server.token", "data/server.json"] {
        let mode = std::fs::metadata(home.file(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!std::fs::read_to_string(home.file("data/tokens.json")).unwrap().contains(secret));
    let key = format!("X-Api-Key: {secret}\r\n");
    let answer = server.send_with("GET", "/api/v1/tasks", &key, "");
    answer.expect_problem(403, "forbidden");
    let listed = home.get(&["token", "list"]);
    assert_eq!(listed[0]["name"], "ci");
    assert_eq!(listed[0].get("token"), None);
    home.polity(&["token", "create", "ci"]).fails(1, "there is a token \"ci\"");
    home.polity(&["token", "revoke", "nobody"]).fails(1, "there is no token");
}

#[test]
fn address_with_many_failures_is_blocked() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let wrong = "Authorization: Bearer polity_wrong\r\n";
    let blocked = home.wait_until("the block", || {
        let answer = server.send_with("GET", "/api/v1/tasks", wrong, "");
        (answer.status == 429).then_some(answer)
    });
    blocked.expect_problem(429, "blocked");
    assert!(blocked.header("retry-after").is_some());
}

#[test]
fn public_address_without_tokens_is_refused() {
    let home = HomeSandbox::new();
    let refused = home.polity(&["serve", "--listen", "0.0.0.0:0"]);
    refused.fails(2, "there is no token").err_has("polity token create");
}

#[test]
fn only_an_admin_chooses_variables_and_folders_of_programs() {
    let home = HomeSandbox::new();
    let token = |scope: &str| {
        let created = home.get(&["token", "create", scope, "--scope", scope]);
        created["token"].as_str().unwrap().to_owned()
    };
    let (run, admin) = (token("run"), token("admin"));
    let server = ServerProcess::start(&home);
    let folder = home.file("").display().to_string();
    for (field, value) in [("envs", json!({"PATH": "/tmp"})), ("working_directory", json!(folder))]
    {
        let body = json!({"agent": "greeter", "input": "x", field: value}).to_string();
        let post = |token: &str| {
            let headers =
                format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
            server.send_with("POST", "/api/v1/tasks", &headers, &body)
        };
        let problem = post(&run).expect_problem(403, "forbidden");
        assert_eq!(problem["field"], field);
        assert_eq!(post(&admin).status / 100, 2, "{field}");
    }
}

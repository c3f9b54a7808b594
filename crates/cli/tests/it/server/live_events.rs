//! Server-sent events from the journal.

use serde_json::json;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// The ids of events up to one of this type.
fn ids_until(lines: &mut impl Iterator<Item = String>, kind: &str) -> Vec<u64> {
    let (mut ids, end) = (Vec::new(), format!("event: {kind}"));
    for line in lines {
        if let Some(id) = line.strip_prefix("id: ") {
            ids.push(id.parse().unwrap());
        }
        if line == end {
            return ids;
        }
    }
    panic!("the stream ended without {kind}: {ids:?}");
}

#[test]
fn stream_is_resumed_without_loss_or_repetition_across_a_restart() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let mut all = server.follow("/api/v1/events?after=0", "");
    let body = json!({"agent": "greeter", "input": "Ada"});
    let task = server.post("/api/v1/tasks?wait=60s", &body).expect(200);
    let first = ids_until(&mut all, "task_completed");
    assert_eq!(first, (1..=first.len() as u64).collect::<Vec<_>>());

    // A stream of one task ends with the same events.
    let path = format!("/api/v1/tasks/{}/events", task["id"].as_str().unwrap());
    assert_eq!(ids_until(&mut server.follow(&path, ""), "task_completed"), first);
    let resumed = server.follow(&path, "Last-Event-ID: 3\r\n");
    assert_eq!(ids_until(&mut { resumed }, "task_completed"), first[3..]);

    server.stop().exits(0);
    let server = ServerProcess::start(&home);
    let headers = format!("Last-Event-ID: {}\r\n", first.len() - 2);
    let mut again = server.follow("/api/v1/events", &headers);
    assert_eq!(ids_until(&mut again, "task_completed"), first[first.len() - 2..]);
    // Events of other processes arrive too.
    home.polity(&["run", "greeter", "Bob"]).exits(0);
    let next = ids_until(&mut again, "task_completed");
    assert_eq!(next[0], first.len() as u64 + 1);
}

#[test]
fn nonsense_ids_are_refused() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    for id in ["x", "-1", "99999999999999999999999", "", "999999999"] {
        let headers = format!("Last-Event-ID: {id}\r\n");
        let answer = server.send("GET", "/api/v1/events", &headers, "");
        assert_eq!(answer.expect_problem(422, "invalid_request")["field"], "Last-Event-ID", "{id}");
    }
}

#[test]
fn revoked_token_ends_its_open_stream() {
    let home = HomeSandbox::new();
    let token = home.get(&["token", "create", "watcher"]);
    let mut server = ServerProcess::start(&home);
    server.token = token["token"].as_str().unwrap().to_owned();
    let mut all = server.follow("/api/v1/events?after=0", "");
    home.polity(&["run", "greeter", "Ada"]).exits(0);
    ids_until(&mut all, "task_completed");
    home.polity(&["token", "revoke", "watcher"]).exits(0);
    home.polity(&["run", "greeter", "Bob"]).exits(0);
    let rest: Vec<String> = all.filter(|line| line.starts_with("event: ")).collect();
    assert!(rest.is_empty(), "{rest:?}");
    server.get("/api/v1/tasks").expect_problem(401, "unauthorized");
}

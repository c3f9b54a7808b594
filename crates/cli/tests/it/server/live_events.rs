//! Server-sent events from the journal.

use std::io::{BufRead, BufReader, Write};

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
fn stream_continues_at_every_event() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let body = json!({"agent": "greeter", "input": "Ada"});
    let task = server.post("/api/v1/tasks?wait=60s", &body).expect(200);
    let of_task = format!("/api/v1/tasks/{}/events", task["id"].as_str().unwrap());
    let all = ids_until(&mut server.follow(&of_task, ""), "task_completed");
    for path in ["/api/v1/events", &of_task] {
        for (index, id) in all.iter().enumerate().take(all.len() - 1) {
            let header = format!("Last-Event-ID: {id}\r\n");
            let mut by_header = server.follow(path, &header);
            assert_eq!(ids_until(&mut by_header, "task_completed"), all[index + 1..], "{path}");
            let mut by_query = server.follow(&format!("{path}?after={id}"), "");
            assert_eq!(ids_until(&mut by_query, "task_completed"), all[index + 1..], "{path}");
        }
    }
}

/// A source of small random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Follows all events through random disconnects and kills of the server while tasks run, and
/// compares them with the journal.
fn follow_through_faults(number: u64) {
    const TASKS: u64 = 12;
    let home = HomeSandbox::new();
    let mut server = ServerProcess::start(&home);
    let mut dice = Dice(number);
    let (mut seen, mut submitted, mut completed) = (Vec::<u64>::new(), 0, 0);
    while completed < TASKS {
        if submitted < TASKS {
            for _ in 0..=dice.below(2).min(TASKS - submitted - 1) {
                submitted += 1;
                // A repeated key is one task, also if the server died before its answer.
                let key =
                    format!("Content-Type: application/json\r\nIdempotency-Key: {submitted}\r\n");
                let body = r#"{"agent": "greeter", "input": "Ada"}"#;
                assert_eq!(server.send("POST", "/api/v1/tasks", &key, body).status / 100, 2);
            }
        }
        let last = seen.last().copied().unwrap_or_default();
        let mut lines = if dice.below(2) == 0 {
            server.follow(&format!("/api/v1/events?after={last}"), "")
        } else {
            server.follow("/api/v1/events", &format!("Last-Event-ID: {last}\r\n"))
        };
        if dice.below(4) == 0 {
            server.kill();
            server = ServerProcess::start(&home);
        }
        let mut budget = dice.below(20);
        // An event counts once its whole text has arrived.
        let (mut id, mut label) = (None, String::new());
        while completed < submitted && budget > 0 {
            let Some(line) = lines.next() else { break };
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.parse().unwrap());
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut label);
            } else if line.is_empty()
                && let Some(id) = id.take()
            {
                seen.push(id);
                completed += u64::from(label == "task_completed");
                budget -= 1;
            }
        }
    }
    let mut whole = Vec::new();
    let mut lines = server.follow("/api/v1/events?after=0", "");
    while whole.last() < seen.last() {
        let line = lines.next().unwrap();
        whole.extend(line.strip_prefix("id: ").map(|id| id.parse::<u64>().unwrap()));
    }
    assert_eq!(seen, whole, "seed {number}");
    assert_eq!(home.tasks().len() as u64, TASKS, "seed {number}");
}

#[test]
fn random_disconnects_and_kills_lose_and_repeat_no_event() {
    for seed in [1, 2, 3] {
        follow_through_faults(seed);
    }
}

#[test]
fn two_hundred_listeners_get_every_event() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let mut listeners: Vec<_> =
        (0..200).map(|_| server.follow("/api/v1/events?after=0", "")).collect();
    // The first line shows that the server has taken the connection.
    for lines in &mut listeners {
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    }
    let body = json!({"agent": "greeter", "input": "Ada"});
    for _ in 0..3 {
        server.post("/api/v1/tasks?wait=60s", &body).expect(200);
    }
    let mut every = Vec::new();
    for mut lines in listeners {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.extend(ids_until(&mut lines, "task_completed"));
        }
        assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
        every.push(ids.len());
    }
    every.dedup();
    assert_eq!(every.len(), 1, "{every:?}");
}

#[test]
fn slow_listener_is_told_to_resume_and_loses_nothing() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start_silent(&home);
    let mut slow = server.follow("/api/v1/events?after=0", "");
    assert_eq!(slow.next().unwrap(), "HTTP/1.1 200 OK");
    // Large events fill the buffers of the connection, many small ones the backlog.
    let large = json!({"agent": "greeter", "input": "x".repeat(4 << 20)});
    for _ in 0..4 {
        server.post("/api/v1/tasks?wait=60s", &large).expect(200);
    }
    let mut stream = server.connect();
    let (host, token) = (server.address(), &server.token);
    let toggles = 2100;
    let request = |toggle: &str| {
        format!(
            "POST /api/v1/agents/greeter/{toggle} HTTP/1.1\r\nHost: {host}\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        )
    };
    let requests = [request("disable"), request("enable")].concat().repeat(toggles);
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || stream.write_all(requests.as_bytes()).unwrap());
        let (mut done, mut line) = (0, String::new());
        while done < 2 * toggles {
            line.clear();
            assert_ne!(answers.read_line(&mut line).unwrap(), 0);
            // A body has no line end, so the next answer begins on its line.
            done += usize::from(line.contains("HTTP/1.1 200"));
        }
    });
    let (mut ids, mut is_told) = (Vec::<u64>::new(), false);
    for line in slow {
        ids.extend(line.strip_prefix("id: ").map(|id| id.parse::<u64>().unwrap()));
        is_told |= line == "event: resume";
    }
    assert!(is_told, "{} events", ids.len());
    let last = ids.last().copied().unwrap();
    let mut rest = server.follow("/api/v1/events", &format!("Last-Event-ID: {last}\r\n"));
    server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "Ada"})).expect(200);
    // The last task is the end; the agents' events between have no such type.
    ids.extend(ids_until(&mut rest, "task_completed"));
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
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

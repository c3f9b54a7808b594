//! `notify.webhooks`: signed notifications, sent at least once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use polity_testkit::raw_http::{RawHttpServer, RawRequest};
use serde_json::json;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// The secrets that sign: the new one and the one that it replaces.
const SECRETS: (&str, &str) = (
    "HOOK_SECRET",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
);

/// A receiver that answers with a status, which a test may change.
fn receiver(status: u16) -> (RawHttpServer, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(status));
    let shared = Arc::clone(&status);
    let server = RawHttpServer::start(move |_, response| {
        let location = [("location", "http://127.0.0.1:1/elsewhere")];
        response.send(shared.load(Ordering::SeqCst), &location, "")
    });
    (server, status)
}

fn configure(home: &HomeSandbox, url: &str, allow_private: &[&str], events: &[&str]) {
    let webhook = json!({
        "url": url, "events": events, "secret_env": SECRETS.0, "allow_private": allow_private,
    });
    home.write("polity.yaml", &json!({"notify": {"webhooks": [webhook]}}).to_string());
}

fn run_task(server: &ServerProcess<'_>) -> String {
    let task = server.post("/api/v1/tasks?wait=60s", &json!({"agent": "greeter", "input": "Ada"}));
    task.expect(200)["id"].as_str().unwrap().to_owned()
}

/// Waits for a number of requests.
fn wait_for(home: &HomeSandbox, receiver: &RawHttpServer, count: usize) -> Vec<RawRequest> {
    home.wait_until("the notifications", || {
        let requests = receiver.requests();
        (requests.len() >= count).then_some(requests)
    })
}

#[test]
fn ended_task_is_notified_until_the_receiver_accepts_it() {
    let home = HomeSandbox::new();
    let (receiver, status) = receiver(503);
    configure(&home, &receiver.url("/hook"), &["127.0.0.1"], &["task_ended"]);
    let server = ServerProcess::start_with_variables(&home, &[SECRETS]);
    let task = run_task(&server);
    wait_for(&home, &receiver, 1);
    let failed = receiver.requests().len();
    status.store(204, Ordering::SeqCst);
    wait_for(&home, &receiver, failed + 1);
    // A later notification shows that the first one is not sent again.
    let next = run_task(&server);
    let requests = home.wait_until("the next notification", || {
        let requests = receiver.requests();
        requests.iter().any(|one| one.json()["data"]["task_id"] == next).then_some(requests)
    });
    let (newest, of_task) = requests.split_last().unwrap();
    assert!(of_task.len() >= 2);
    assert_ne!(newest.header("webhook-id"), of_task[0].header("webhook-id"));
    for request in of_task {
        let body = request.json();
        assert_eq!((&body["type"], &body["data"]["task_id"]), (&json!("task_ended"), &json!(task)));
        assert_eq!(body["data"]["status"], "completed");
        assert!(body["timestamp"].is_string());
        assert_eq!(request.header("webhook-id"), of_task[0].header("webhook-id"));
        assert!(request.header("webhook-timestamp").unwrap().parse::<u64>().is_ok());
        let signatures: Vec<_> = request.header("webhook-signature").unwrap().split(' ').collect();
        assert_eq!(signatures.len(), 2);
        assert!(signatures.iter().all(|signature| signature.starts_with("v1,")));
    }
}

#[test]
fn notification_survives_a_killed_server_and_keeps_its_id() {
    let home = HomeSandbox::new();
    let (receiver, status) = receiver(500);
    configure(&home, &receiver.url("/hook"), &["127.0.0.1"], &["task_ended"]);
    let server = ServerProcess::start_with_variables(&home, &[SECRETS]);
    run_task(&server);
    let before = wait_for(&home, &receiver, 1).len();
    server.kill();
    // A task of another process, while no server runs.
    home.polity(&["run", "greeter", "Bob"]).exits(0);
    status.store(200, Ordering::SeqCst);
    let _server = ServerProcess::start_with_variables(&home, &[SECRETS]);
    let ids = home.wait_until("both notifications", || {
        let requests = receiver.requests();
        let late = requests.get(before..)?;
        let ids: Vec<_> = late.iter().filter_map(|one| one.header("webhook-id")).collect();
        (ids.len() >= 2).then(|| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
    });
    let first = receiver.requests()[0].header("webhook-id").unwrap().to_owned();
    assert!(ids.contains(&first), "{first} is not among {ids:?}");
}

#[test]
fn receiver_that_is_gone_is_left_alone() {
    let home = HomeSandbox::new();
    let (gone, _) = receiver(410);
    let (other, _) = receiver(200);
    let webhook =
        |url: String| json!({"url": url, "secret_env": SECRETS.0, "allow_private": ["127.0.0.1"]});
    let webhooks = [webhook(gone.url("/a")), webhook(other.url("/b"))];
    home.write("polity.yaml", &json!({"notify": {"webhooks": webhooks}}).to_string());
    let server = ServerProcess::start_with_variables(&home, &[SECRETS]);
    run_task(&server);
    wait_for(&home, &gone, 1);
    for _ in 0..3 {
        run_task(&server);
    }
    wait_for(&home, &other, 4);
    assert_eq!(gone.requests().len(), 1);
}

#[test]
fn ssrf_redirects_are_not_followed() {
    let home = HomeSandbox::new();
    let target = RawHttpServer::start(|_, response| response.send(200, &[], ""));
    let location = target.url("/metadata");
    let redirector = RawHttpServer::start(move |_, response| {
        response.send(307, &[("location", location.as_str())], "")
    });
    configure(&home, &redirector.url("/hook"), &["127.0.0.1"], &["task_ended"]);
    let server = ServerProcess::start_with_variables(&home, &[SECRETS]);
    run_task(&server);
    // The second attempt shows that the first one failed.
    wait_for(&home, &redirector, 2);
    assert_eq!(target.requests().len(), 0);
}

#[test]
fn ssrf_private_addresses_are_refused_unless_they_are_named() {
    let home = HomeSandbox::new();
    let (receiver, _) = receiver(200);
    for url in [
        "http://127.0.0.1:9/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://[fd00::1]/",
    ] {
        configure(&home, url, &["example.com"], &["task_ended"]);
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        let output = command.env(SECRETS.0, SECRETS.1).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url}: {text}");
        assert!(text.contains("allow_private"), "{url}: {text}");
    }
    // A name is checked when it is dialled.
    let url = receiver.url("/hook").replace("127.0.0.1", "localhost");
    configure(&home, &url, &[], &["task_ended"]);
    let server = ServerProcess::start_with_variables(&home, &[SECRETS]);
    run_task(&server);
    let outbox = home.wait_until("a failed attempt", || {
        let mut folder = std::fs::read_dir(home.file("data/webhooks")).ok()?;
        let path = folder.find_map(Result::ok)?.path();
        let text = std::fs::read_to_string(path).ok()?;
        text.contains("\"attempts\":1").then_some(text)
    });
    assert!(outbox.contains("pending"), "{outbox}");
    assert_eq!(receiver.requests().len(), 0);
}

#[test]
fn secrets_of_webhooks_are_checked_at_the_start() {
    let home = HomeSandbox::new();
    configure(&home, "https://example.com/hook", &[], &["task_ended"]);
    let refused = home.polity(&["serve", "--listen", "127.0.0.1:0"]);
    refused.fails(2, "needs the environment variable HOOK_SECRET");
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let output = command.env(SECRETS.0, "whsec_c2hvcnQ=").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("24 to 64 bytes") && !text.contains("c2hvcnQ"), "{text}");
}

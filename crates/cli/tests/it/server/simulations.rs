//! Simulations over HTTP.

use serde_json::{Value, json};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// More turns than any test runs.
const FOREVER: u64 = 10_000_000;

/// Starts a run that continues until it is stopped, and returns its path.
fn start_endless(server: &ServerProcess<'_>) -> String {
    let body = json!({"scenario": "society", "turns": FOREVER, "set": {"checkpoint_every": 5}});
    let run = server.post("/api/v1/simulations", &body).expect(202);
    assert_eq!(run["status"], "running");
    format!("/api/v1/simulations/{}", run["run_id"].as_str().unwrap())
}

#[test]
fn run_gives_the_same_result_as_on_the_command_line() {
    let home = HomeSandbox::society();
    let server = ServerProcess::start(&home);
    let body = json!({"scenario": "society", "seed": 11, "turns": 5});
    let answer = server.post("/api/v1/simulations?wait=120s", &body);
    let run = answer.expect(200);
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(&*format!("/api/v1/simulations/{id}")));
    assert_eq!((&run["status"], &run["turn"]), (&json!("ended"), &json!(5)));
    let local = home.get(&["sim", "run", "society", "--seed", "11", "--turns", "5"]);
    assert_eq!(run["summary"]["digest"], local["digest"]);
    let mut shown = server.get(&format!("/api/v1/simulations/{id}")).expect(200);
    assert_eq!(shown.as_object_mut().unwrap().remove("error"), Some(Value::Null));
    assert_eq!(shown, home.get(&["sim", "status", id]));
    let listed = server.get("/api/v1/simulations").expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    for body in [
        json!({"scenario": "society", "set": {"chart": "other"}}),
        json!({"scenario": "society", "set": {"turns": "many"}}),
        json!({"scenario": "society", "threads": 0}),
        json!({"scenario": "society", "threads": 513}),
        json!({"scenario": "society", "colour": "red"}),
    ] {
        let answer = server.post("/api/v1/simulations", &body);
        assert_eq!(answer.status, 422, "{body}: {}", answer.body);
    }
    let many = json!({"scenario": "society", "agents": 99_999_999_999_u64});
    assert_eq!(server.post("/api/v1/simulations", &many).status, 409);
    let unknown = json!({"scenario": "../society"});
    server.post("/api/v1/simulations", &unknown).expect_problem(404, "not_found");
    server.get("/api/v1/simulations/last").expect_problem(404, "not_found");
    let stop = format!("/api/v1/simulations/{id}/stop");
    server.post(&stop, &json!({})).expect_problem(409, "conflict");
    let resume = format!("/api/v1/simulations/{id}/resume");
    server.post(&resume, &json!({"turns": 2})).expect_problem(409, "conflict");
    // A run of the home is resumed to a later turn.
    let longer = server.post(&format!("{resume}?wait=120s"), &json!({"turns": 7})).expect(200);
    assert_eq!(longer["turn"], 7);
}

#[test]
fn population_is_changed_stopped_and_resumed() {
    let home = HomeSandbox::society();
    let server = ServerProcess::start(&home);
    let run = start_endless(&server);
    let change = |requests: &Value| {
        server.post(&format!("{run}/lifecycle?wait=120s"), &json!({"requests": requests}))
    };
    let answers = change(&json!([
        {"operation": "add_agent", "target_agent_name": "zoe", "initial_state": {}},
        {"operation": "pause_agent", "target_agent_name": "zoe"},
        {"operation": "remove_agent", "target_agent_name": "nobody"},
        {"operation": "pause_agent", "target_agent_name": "ada", "auto_resume_turns": 0},
    ]));
    let answers = answers.expect(200);
    assert_eq!(answers["pending"], json!([]));
    let valid: Vec<&Value> =
        answers["answers"].as_array().unwrap().iter().map(|answer| &answer["valid"]).collect();
    assert_eq!(valid, [true, true, false, false]);
    assert_eq!(answers["answers"][0]["name"], "zoe");
    let request = answers["answers"][2]["request_id"].as_str().unwrap();
    let shown = server.get(&format!("{run}/lifecycle/{request}")).expect(200);
    assert_eq!(shown["reason"], answers["answers"][2]["reason"]);
    for requests in [json!([]), json!([{"operation": "grow", "target_agent_name": "x"}]), json!({})]
    {
        let answer = change(&requests);
        assert_eq!(answer.status, 422, "{requests}: {}", answer.body);
    }

    let stopped = server.post(&format!("{run}/stop?wait=120s"), &json!({})).expect(200);
    assert_eq!(stopped["status"], "stopped");
    // The scenario may have paused others.
    let paused = stopped["summary"]["paused"].as_array().unwrap();
    assert!(paused.contains(&json!("zoe")), "{stopped}");
    // A stopped run queues valid requests for the process that resumes it.
    let queued = change(&json!([
        {"operation": "resume_agent", "target_agent_name": "zoe"},
        {"operation": "resume_agent", "target_agent_name": "zoe"},
    ]));
    let queued = queued.expect(200);
    assert_eq!(queued["answers"][0]["turn"], Value::Null);
    assert_eq!(queued["answers"][0]["valid"], true);
    assert_eq!(queued["answers"][1]["valid"], false);
    let turns = stopped["turn"].as_u64().unwrap() + 3;
    let resumed = format!("{run}/resume?wait=120s");
    let ended = server.post(&resumed, &json!({"turns": turns})).expect(200);
    assert_eq!(ended["status"], "ended");
    let paused = ended["summary"]["paused"].as_array().unwrap();
    assert!(!paused.contains(&json!("zoe")), "{ended}");
    change(&json!([{"operation": "pause_agent", "target_agent_name": "zoe"}]))
        .expect_problem(409, "conflict");
}

#[test]
fn simulations_are_limited_and_stop_with_the_server() {
    let home = HomeSandbox::society();
    home.write("polity.yaml", "server: {concurrent_simulations: 1}\n");
    let server = ServerProcess::start(&home);
    let run = start_endless(&server);
    let more = json!({"scenario": "society"});
    let refused = server.post("/api/v1/simulations", &more);
    refused.expect_problem(429, "limit_concurrent_simulations");
    server.post(&format!("{run}/resume"), &json!({})).expect_problem(409, "conflict");
    server.stop().exits(0);
    let id = run.rsplit('/').next().unwrap();
    let status = home.get(&["sim", "status", id]);
    assert_eq!((&status["status"], &status["interrupted"]), (&json!("stopped"), &json!(false)));

    // After a kill the run is interrupted, and another server resumes it.
    let server = ServerProcess::start(&home);
    server.post(&format!("{run}/resume"), &json!({})).expect(202);
    server.kill();
    let server = ServerProcess::start(&home);
    assert_eq!(server.get(&run).expect(200)["interrupted"], true);
    server.post(&format!("{run}/resume"), &json!({})).expect(202);
    let stopped = server.post(&format!("{run}/stop?wait=120s"), &json!({})).expect(200);
    assert_eq!(stopped["status"], "stopped");
}

#[test]
fn repeated_start_with_a_key_gives_one_run() {
    let home = HomeSandbox::society();
    let server = ServerProcess::start(&home);
    let headers = "Content-Type: application/json\r\nIdempotency-Key: run-1\r\n";
    let send = |server: &ServerProcess<'_>, body: &str| {
        server.send("POST", "/api/v1/simulations?wait=120s", headers, body)
    };
    let first = send(&server, r#"{"scenario": "society", "turns": 3}"#);
    assert_eq!(first.header("idempotent-replayed"), None);
    server.kill();
    let server = ServerProcess::start(&home);
    let again = send(&server, r#"{"turns": 3, "scenario": "society"}"#);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(200), first.expect(200));
    send(&server, r#"{"scenario": "society", "turns": 4}"#)
        .expect_problem(422, "idempotency_key_reused");
    assert_eq!(server.get("/api/v1/simulations").expect(200)["items"].as_array().unwrap().len(), 1);
}

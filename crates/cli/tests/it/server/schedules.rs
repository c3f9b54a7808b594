//! Schedules of a real server: due times, overlap, pauses, kills, runs by hand and backfills.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// An agent that ends once the file `ok` exists.
const WAITS: &str = "while ! test -e ok; do sleep 0.05; done; echo done";

/// A home with the agent `worker` and the schedule `often`, which is due every second.
fn home(script: &str, fields: &str) -> HomeSandbox {
    let home = HomeSandbox::bare();
    home.write_shell_agent(
        "worker",
        script,
        ", access_type: read-only, idempotent: true, max_concurrent_executions: 10",
    );
    let file = format!("name: often\nagent: worker\ncron_expression: \"* * * * * *\"\n{fields}\n");
    home.write("schedules/often.yaml", &file);
    home
}

/// The rows of a history, oldest record first.
fn history(home: &HomeSandbox) -> Vec<Value> {
    let mut rows = home.get(&["schedule", "history", "often", "--limit", "10000"]);
    let rows = rows.as_array_mut().unwrap();
    rows.reverse();
    std::mem::take(rows)
}

fn of_outcome(rows: &[Value], outcome: &str, reason: &Value) -> usize {
    rows.iter().filter(|row| row["outcome"] == outcome && row["reason"] == *reason).count()
}

/// Waits for a number of rows with an outcome and a reason.
fn wait_for(home: &HomeSandbox, outcome: &str, reason: &Value, least: usize) -> Vec<Value> {
    home.wait_until(&format!("{least} times {outcome} {reason}"), || {
        let rows = history(home);
        (of_outcome(&rows, outcome, reason) >= least).then_some(rows)
    })
}

/// Checks that no due time has two rows and that each started one has its own task.
fn expect_one_record_each(home: &HomeSandbox, rows: &[Value]) {
    let mut tasks = BTreeMap::new();
    for task in home.tasks() {
        tasks.insert(task["id"].clone().to_string(), task["scheduled"].clone());
    }
    let mut seen = BTreeSet::new();
    for row in rows.iter().filter(|row| row["trigger"] != "manual") {
        assert!(seen.insert(row["due"].to_string()), "{row} is there twice");
        if row["outcome"] == "started" {
            let scheduled = json!({"schedule": "often", "due": row["due"]});
            assert_eq!(tasks.get(&row["task_id"].to_string()), Some(&scheduled));
        }
    }
    let started = rows.iter().filter(|row| !row["task_id"].is_null()).count();
    let scheduled = tasks.values().filter(|scheduled| !scheduled.is_null()).count();
    assert_eq!(started, scheduled);
}

#[test]
fn due_times_start_tasks_and_are_skipped_while_one_runs() {
    let home = home(WAITS, "");
    let server = ServerProcess::start(&home);
    let rows = wait_for(&home, "skipped", &json!("overlap"), 2);
    assert_eq!(of_outcome(&rows, "started", &Value::Null), 1);
    let shown = home.get(&["schedule", "show", "often"]);
    assert_eq!((&shown["state"], &shown["active"]), (&json!("executing"), &json!(true)));
    assert_eq!(shown["running"], json!([rows[0]["task_id"]]));
    home.write("ok", "");
    home.wait_until("two runs that have ended", || {
        let completed = |row: &&Value| row["task_status"] == "completed";
        (history(&home).iter().filter(completed).count() >= 2).then_some(())
    });
    let metrics = server.get("/metrics").body;
    let line = "polity_schedule_ticks_total{schedule=\"often\",outcome=\"skipped\"}";
    assert!(metrics.contains(line), "{metrics}");
    server.stop().exits(0);
    expect_one_record_each(&home, &history(&home));
}

#[test]
fn paused_schedule_skips_with_its_note_until_it_is_resumed() {
    let home = home("echo done", "");
    let server = ServerProcess::start(&home);
    wait_for(&home, "started", &Value::Null, 1);
    let paused = home.polity(&["schedule", "pause", "often", "--note", "holiday"]);
    paused.exits(0).out_has("paused often");
    home.polity(&["schedule", "pause", "often"]).fails(1, "paused already: holiday");
    let shown = server.get("/api/v1/schedules/often").expect(200);
    assert_eq!((&shown["state"], &shown["pause"]["note"]), (&json!("paused"), &json!("holiday")));
    assert_eq!((&shown["active"], &shown["next_execution"]), (&json!(false), &Value::Null));
    let paused_at: jiff::Timestamp = shown["pause"]["at"].as_str().unwrap().parse().unwrap();
    home.wait_until("a due time in the pause", || {
        let shown = server.get("/api/v1/schedules/often/next?count=1").expect(200);
        let next: jiff::Timestamp = shown["items"][0].as_str().unwrap().parse().unwrap();
        (next.duration_since(paused_at).as_secs() > 2).then_some(())
    });
    server.post("/api/v1/schedules/often/resume", &json!({})).expect(200);
    server.post("/api/v1/schedules/often/resume", &json!({})).expect_problem(409, "conflict");
    let rows = wait_for(&home, "skipped", &json!("paused"), 1);
    let before = of_outcome(&rows, "started", &Value::Null);
    wait_for(&home, "started", &Value::Null, before + 1);
    server.stop().exits(0);
    expect_one_record_each(&home, &history(&home));
}

#[test]
fn killed_server_catches_up_and_starts_each_due_time_once() {
    let home = home("echo done", "overlap: allow\ncatch_up: all");
    let mut server = ServerProcess::start(&home);
    for _ in 0..2 {
        let before = of_outcome(&history(&home), "started", &Value::Null);
        wait_for(&home, "started", &Value::Null, before + 2);
        server.kill();
        let next = home.get(&["schedule", "next", "often", "--count", "3"])[2].clone();
        home.wait_until("missed due times", || {
            let now = home.get(&["schedule", "next", "often", "--count", "1"])[0].clone();
            (now.as_str() > next.as_str()).then_some(())
        });
        server = ServerProcess::start(&home);
        home.wait_until("the missed due times", || {
            history(&home).iter().any(|row| row["due"] == next).then_some(())
        });
    }
    home.wait_until("the end of all tasks", || {
        home.polity(&["schedule", "pause", "often"]);
        let tasks = home.tasks();
        tasks.iter().all(|task| task["status"] == "completed").then_some(())
    });
    server.stop().exits(0);
    let rows = history(&home);
    expect_one_record_each(&home, &rows);
    // Not one second is missing.
    let due: BTreeSet<i64> = rows
        .iter()
        .map(|row| row["due"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second())
        .collect();
    let (first, last) = (*due.first().unwrap(), *due.last().unwrap());
    assert_eq!(due, (first..=last).collect());
}

#[test]
fn run_by_hand_works_with_and_without_a_server() {
    let home = HomeSandbox::new();
    let file = "name: yearly\nagent: greeter\ncron_expression: '0 0 1 1 *'\n\
                input_parameters: {input: Ada, tone: kind}\n";
    home.write("schedules/yearly.yaml", file);
    home.polity(&["--quiet", "schedule", "run", "yearly"]).exits(0).prints("Hello, Ada.\n");
    let id = home.polity(&["schedule", "run", "yearly", "--detach"]).exits(0);
    home.polity(&["task", "wait", id.out.trim()]).exits(0);
    let server = ServerProcess::start(&home);
    home.polity(&["--quiet", "schedule", "run", "yearly"]).exits(0).prints("Hello, Ada.\n");
    let key = "Content-Type: application/json\r\nIdempotency-Key: once\r\n";
    let path = "/api/v1/schedules/yearly/run?wait=60s";
    let first = server.send("POST", path, key, "{}").expect(200);
    let again = server.send("POST", path, key, "{}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(200)["id"], first["id"]);
    assert_eq!(first["parameters"], json!({"tone": "kind"}));
    let rows = server.get("/api/v1/schedules/yearly/history").expect(200);
    let rows = rows["items"].as_array().unwrap();
    assert_eq!((rows.len(), home.tasks().len()), (4, 4));
    for row in rows {
        assert_eq!((&row["trigger"], &row["outcome"]), (&json!("manual"), &json!("started")));
        assert_eq!(row["task_status"], "completed");
    }
    home.wait_until("the end of all runs", || {
        (home.get(&["schedule", "show", "yearly"])["state"] == "active").then_some(())
    });
}

#[test]
fn backfill_starts_the_past_times_of_a_range_once() {
    let home = home("echo done", "");
    home.write(
        "schedules/often.yaml",
        "name: often\nagent: worker\ncron_expression: '0 * * * *'\n",
    );
    let range = ["--from", "2026-01-01", "--to", "2026-01-01T02:00"];
    let backfill = [&["schedule", "backfill", "often"], &range[..]].concat();
    assert_eq!(home.get(&backfill)["queued"], 3);
    let server = ServerProcess::start(&home);
    wait_for(&home, "started", &Value::Null, 3);
    assert_eq!(home.get(&backfill)["already_started"], 3);
    home.wait_until("the end of all runs", || {
        (home.get(&["schedule", "show", "often"])["running"] == json!([])).then_some(())
    });
    let body = json!({"from": "2000-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"});
    let path = "/api/v1/schedules/often/backfill";
    server.post(path, &body).expect_problem(422, "limit_queued_ticks");
    let body = json!({"from": "2000-01-01T00:00:00Z", "to": "2900-01-01T00:00:00Z"});
    server.post(path, &body).expect_problem(422, "usage");
    let rows = history(&home);
    assert_eq!(rows.iter().filter(|row| row["trigger"] == "backfill").count(), 3);
    expect_one_record_each(&home, &rows);
}

#[test]
fn disabled_agent_fails_each_due_time_and_pauses_the_schedule() {
    let home = home("echo done", "pause_after_failures: 2");
    home.polity(&["agent", "disable", "worker", "--message", "no key"]).exits(0);
    let server = ServerProcess::start(&home);
    let rows = wait_for(&home, "failed", &json!("agent_disabled"), 2);
    assert!(rows[0]["message"].as_str().unwrap().contains("no key"), "{}", rows[0]);
    let shown = home.get(&["schedule", "show", "often"]);
    assert_eq!((&shown["state"], &shown["pause"]["by"]), (&json!("paused"), &Value::Null));
    home.polity(&["schedule", "run", "often"]).fails(2, "no key");
    server.post("/api/v1/schedules/often/run", &json!({})).expect_problem(409, "agent_disabled");
    assert_eq!(home.tasks().len(), 0);
}

#[test]
fn schedules_are_added_and_removed_while_a_server_runs() {
    let home = home("echo done", "enabled: false");
    let server = ServerProcess::start(&home);
    let add = ["schedule", "add", "daily", "--agent", "worker", "--cron", "@daily", "--input", "x"];
    home.polity(&add).exits(0).out_has("wrote schedules/daily.yaml");
    home.polity(&add).fails(1, "there is a schedule \"daily\" already");
    let body = json!({"name": "by_http", "agent": "worker", "cron_expression": "* * * * * *"});
    server.post("/api/v1/schedules", &body).expect(201);
    server.post("/api/v1/schedules", &body).expect_problem(409, "exists");
    home.wait_until("a start of the new schedule", || {
        let rows = server.get("/api/v1/schedules/by_http/history").expect(200);
        (rows["items"][0]["task_status"] == "completed").then_some(())
    });
    let listed = home.get(&["schedule", "list"]);
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["by_http", "daily", "often"]);
    server.post("/api/v1/schedules/by_http/remove", &json!({})).expect(200);
    home.polity(&["schedule", "remove", "daily"]).exits(0);
    home.polity(&["schedule", "remove", "daily"]).fails(2, "there is no schedule \"daily\"");
    server.get("/api/v1/schedules/by_http").expect_problem(404, "not_found");
    server.get("/api/v1/schedules/by_http/history").expect(200);
    home.polity(&["schedule", "show", "dayly"]).fails(2, "there is no schedule \"dayly\"");
}

#[test]
fn wrong_schedules_are_refused_with_the_field_and_a_way_out() {
    let home = home("echo done", "");
    let add = |more: &[&str]| home.polity(&[&["schedule", "add", "new"], more].concat());
    add(&["--agent", "worker", "--cron", "0 0 31 2 *"]).fails(2, "names a day that never comes");
    add(&["--agent", "worker", "--cron", "soon"]).fails(2, "is not a cron expression");
    add(&["--agent", "worker", "--cron", "@daily", "--time-zone", "Europe/Berln"])
        .fails(2, "did you mean \"Europe/Berlin\"");
    add(&["--agent", "werker", "--cron", "@daily"]).fails(2, "did you mean \"worker\"");
    add(&["--agent", "worker", "--cron", "@daily", "--overlap", "never"]).fails(2, "overlap");
    assert!(!home.file("schedules/new.yaml").exists());
    let huge = ["--from", "2000-01-01", "--to", "2026-01-01"];
    let backfill = [&["schedule", "backfill", "often"], &huge[..]].concat();
    home.polity(&backfill).fails(6, "the limit queued_ticks");
    let server = ServerProcess::start(&home);
    let body = json!({"name": "new", "agent": "worker", "cron_expression": "0 0 31 2 *"});
    let problem = server.post("/api/v1/schedules", &body).expect_problem(422, "invalid_definition");
    assert_eq!(problem["problems"][0]["field"], "cron_expression");
    server.post("/api/v1/schedules", &json!({})).expect_problem(422, "invalid_request");
    server.get("/api/v1/schedules/often/next?count=0").expect_problem(422, "invalid_request");
    server.get("/api/v1/schedules/..%2Fx").expect_problem(404, "not_found");
}

//! `kill -9` at random times: no acknowledged event is lost, and every task can be finished.

use std::time::Duration;

use serde_json::json;

use crate::sandbox::{HomeSandbox, kill};
use crate::tools::home;

/// A seeded generator, so that the kill times are the same in every run.
pub(crate) struct KillTimes(pub(crate) u64);

impl KillTimes {
    pub(crate) fn next_ms(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

pub(crate) fn rounds(short: u32, long: u32) -> u32 {
    if std::env::var_os("POLITY_TEST_LONG").is_some() { long } else { short }
}

#[test]
fn kill_loses_no_task_and_keeps_the_journal_valid() {
    let rounds = rounds(10, 200);
    let sandbox = HomeSandbox::new();
    let mut kill_times = KillTimes(7);
    for round in 0..rounds {
        let mut child = sandbox.start(&["run", "greeter", "overload"]);
        std::thread::sleep(Duration::from_millis(kill_times.next_ms(60)));
        kill(&mut child);
        if round % 3 == 0 {
            let resumed = sandbox.polity(&["task", "resume", "--all"]);
            assert!([0, 1].contains(&resumed.code), "{resumed:?}");
        }
    }
    sandbox.polity(&["task", "resume", "--all"]).exits(0);
    let tasks = sandbox.tasks();
    assert!(!tasks.is_empty(), "every process was killed before it created a task");
    for task in tasks {
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(task["result"], "Hello, overload.", "{task}");
        let (trace, _) = sandbox.json(&["task", "trace", task["id"].as_str().unwrap()]);
        let steps = trace["steps"].as_array().unwrap();
        let count = |name: &str| steps.iter().filter(|step| step["step_name"] == name).count();
        assert_eq!((count("created"), count("completed")), (1, 1), "{trace}");
        // The rule matches twice per task, however often its process is killed.
        assert_eq!(count("retry"), 2, "{trace}");
    }
}

/// Each task makes two calls in sequence that must not be repeated. Polity makes each call at most
/// once, and both unless a review answered for it.
#[test]
fn kill_repeats_no_unsafe_call() {
    let sandbox = home_with_effects();
    kill_repeatedly(&sandbox, "worker", 11, rounds(6, 100));
    check_effects(&sandbox);
}

/// The same with a sub-agent: it opens once, and its parent gets one answer.
#[test]
fn kill_repeats_no_sub_agent_call() {
    let sandbox = home_with_effects();
    sandbox.write_scripted_agent("boss", ", sub_agents: [worker]");
    let worker = |part: &str| json!({"tool": "agent/worker", "arguments": {"task_description": format!("$1{part}")}});
    let script = json!({"rules": [
        {"when": "^(\\w+)$", "role": "user", "tool_calls": [worker("a"), worker("b")]},
        {"when": ".*", "role": "tool", "reply": "done"},
    ]});
    sandbox.write("scripts/boss.yaml", &script.to_string());
    kill_repeatedly(&sandbox, "boss", 13, rounds(6, 100));
    check_effects(&sandbox);
    for task in sandbox.tasks().iter().filter(|task| task["assigned_agent"] == "boss") {
        let id = task["id"].as_str().unwrap();
        let (sessions, _) = sandbox.json(&["session", "list", "--task", id]);
        assert_eq!(sessions.as_array().unwrap().len(), 2, "{sessions}");
    }
}

fn home_with_effects() -> HomeSandbox {
    let sandbox = home("", "{}", &[]);
    let count = |file: &str| json!([{"tool": "kit/count", "arguments": {"file": file}}]);
    let script = json!({"rules": [
        {"when": "^(\\w+)$", "role": "user", "tool_calls": count("$1-first")},
        {"when": "counted", "role": "tool", "times": 1, "tool_calls": count("$input-second")},
        {"when": ".*", "role": "tool", "reply": "done"},
    ]});
    sandbox.write("scripts/worker.yaml", &script.to_string());
    sandbox
}

/// Runs, kills and resumes tasks until all have finished. Every uncertain call is answered as
/// already made.
fn kill_repeatedly(sandbox: &HomeSandbox, agent: &str, seed: u64, rounds: u32) {
    let mut kill_times = KillTimes(seed);
    for round in 0..rounds {
        let mut child = sandbox.start(&["run", agent, &format!("t{round}")]);
        std::thread::sleep(Duration::from_millis(40 + kill_times.next_ms(160)));
        kill(&mut child);
        if round % 2 == 0 {
            let mut child = sandbox.start(&["task", "resume", "--all"]);
            std::thread::sleep(Duration::from_millis(40 + kill_times.next_ms(160)));
            kill(&mut child);
        }
    }
    for _ in 0..6 {
        sandbox.polity(&["task", "resume", "--all"]);
        for review in sandbox.json(&["review", "list"]).0.as_array().unwrap() {
            let id = review["task_id"].as_str().unwrap();
            let output =
                sandbox.polity(&["review", "approve", id, "--skip-with", "counted by hand"]);
            assert!([0, 3].contains(&output.code), "{output:?}");
        }
    }
}

fn check_effects(sandbox: &HomeSandbox) {
    assert!(!sandbox.tasks().is_empty(), "every process was killed before it created a task");
    for task in sandbox.tasks() {
        assert_eq!(task["status"], "completed", "{task}");
        if task["assigned_agent"] != "worker" {
            continue;
        }
        let (trace, _) = sandbox.json(&["task", "trace", task["id"].as_str().unwrap()]);
        let doubts = trace.to_string().matches("doubt_asked").count();
        let mut effects = 0;
        for file in ["first", "second"] {
            let path = sandbox.file(&format!("{}-{file}", task["description"].as_str().unwrap()));
            let lines = std::fs::read_to_string(path).unwrap_or_default().lines().count();
            assert!(lines <= 1, "{file} happened {lines} times: {trace}");
            effects += lines;
        }
        assert!(effects + doubts >= 2, "an effect was lost: {trace}");
    }
}

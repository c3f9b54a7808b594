//! Workflows that several processes resume at once, and definition files that change while a task
//! waits.

use std::fs;

use serde_json::json;

use crate::sandbox::{CommandOutput, HomeSandbox, finish};

/// A home whose workflow writes, asks and writes again.
fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "workflows/asks.yaml",
        "
name: asks
entry_point: draft
nodes:
  draft: {type: agent, agent: greeter}
  ask: {type: human, question: 'Is it fine?'}
  end: {type: agent, agent: greeter, input: think}
edges: [{from: draft, to: ask}, {from: ask, to: end}]
",
    );
    sandbox
}

/// A home with a task of this workflow that waits for a review.
fn home_awaiting_review() -> (HomeSandbox, String) {
    let sandbox = home();
    sandbox.polity(&["run", "asks", "Ada"]).exits(3);
    let waiting = sandbox.json(&["review", "list"]).0;
    assert_eq!((waiting.as_array().unwrap().len(), &waiting[0]["position"]), (1, &json!("ask")));
    let id = waiting[0]["task_id"].as_str().unwrap().to_owned();
    (sandbox, id)
}

/// Runs two commands concurrently.
fn run_concurrently(sandbox: &HomeSandbox, one: &[&str], other: &[&str]) -> [CommandOutput; 2] {
    let (one, other) = (sandbox.start(one), sandbox.start(other));
    [one, other].map(finish)
}

#[test]
fn only_one_of_two_concurrent_answers_counts() {
    for _ in 0..3 {
        let (sandbox, id) = home_awaiting_review();
        let approve = ["review", "approve", &id, "--detach"];
        let reject = ["review", "reject", &id, "--detach"];
        let outputs = run_concurrently(&sandbox, &approve, &reject);
        let (task, _) = sandbox.json(&["task", "show", &id]);
        let is_rejected = task["status"] == "failed";
        let [approved, rejected] = &outputs;
        let (winner, loser) = if is_rejected { (rejected, approved) } else { (approved, rejected) };
        assert_eq!(winner.code, i32::from(is_rejected), "{outputs:?} {task}");
        assert_eq!(loser.code, 1, "{outputs:?} {task}");
        assert!(loser.err.contains("has no open review"), "{loser:?}");
        let (checkpoints, _) = sandbox.json(&["task", "checkpoints", &id]);
        let expected = if is_rejected { "reject" } else { "approve" };
        assert_eq!(checkpoints[1]["human_feedback"]["action"], expected, "{checkpoints}");
    }
}

#[test]
fn only_one_of_two_processes_resumes_a_task() {
    let (sandbox, id) = home_awaiting_review();
    sandbox.polity(&["review", "approve", &id, "--detach"]).exits(0);
    let resume = ["task", "resume", id.as_str()];
    let outputs = run_concurrently(&sandbox, &resume, &resume);
    let codes = outputs.each_ref().map(|output| output.code);
    assert!(codes == [0, 1] || codes == [1, 0], "{outputs:?}");
    let (task, _) = sandbox.json(&["task", "show", &id]);
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!("thought")));
    let tasks = sandbox.tasks();
    assert_eq!(tasks.len(), 3, "no step ran twice: {tasks:?}");
}

#[test]
fn waiting_task_resumes_with_pinned_definitions() {
    let (sandbox, id) = home_awaiting_review();
    for file in ["agents/greeter.yaml", "scripts/greeter.yaml", "workflows/asks.yaml"] {
        fs::remove_file(sandbox.file(file)).unwrap();
    }
    sandbox.polity(&["review", "approve", &id]).prints("thought\n");
}

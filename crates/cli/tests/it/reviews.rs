//! Reviews: approvals, and calls in doubt after a crash.

use std::fs;

use serde_json::json;

use crate::sandbox::{HomeSandbox, kill};
use crate::tools::{calls, home};

/// A home in which `count` needs approval, with a task that waits for it.
pub(crate) fn home_awaiting_review() -> (HomeSandbox, String) {
    let sandbox = home("approval: [kit/count]\n", "{}", &[]);
    calls(&sandbox, &json!([{"tool": "kit/count", "arguments": {"file": "a"}}]));
    sandbox.polity(&["run", "worker", "go"]).fails(3, "polity review show");
    let task = sandbox.tasks()[0].clone();
    assert_eq!(
        (task["status"].as_str(), &task["interrupted"]),
        (Some("awaiting_human"), &json!(false))
    );
    (sandbox, task["id"].as_str().unwrap().to_owned())
}

pub(crate) fn count_lines(sandbox: &HomeSandbox, file: &str) -> usize {
    fs::read_to_string(sandbox.file(file)).unwrap_or_default().lines().count()
}

#[test]
fn review_shows_agent_tool_and_arguments() {
    let (sandbox, id) = home_awaiting_review();
    let (reviews, _) = sandbox.json(&["review", "list"]);
    let review = &reviews[0];
    assert_eq!((&review["task_id"], &review["position"]), (&json!(id), &json!("worker")));
    assert_eq!(review["question"], "worker wants to call kit/count with {\"file\":\"a\"}");
    assert!(review["checkpoint_id"].is_string() && review["created_at"].is_string());
    assert!(review["deadline"].is_null());
    let shown = sandbox.polity(&["review", "show", &id]).out;
    for expected in ["worker", "kit/count", "\"file\": \"a\"", "polity review approve"] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    assert_eq!(count_lines(&sandbox, "a"), 0);
    sandbox.polity(&["task", "resume", &id]).exits(3);
    assert_eq!(sandbox.polity(&["task", "resume", "--all"]).out, "nothing to resume\n");
}

#[test]
fn approved_call_runs_once() {
    let (sandbox, id) = home_awaiting_review();
    sandbox.polity(&["review", "approve", &id, "--message", "fine"]).prints("it said: counted\n");
    assert_eq!(count_lines(&sandbox, "a"), 1);
    sandbox.polity(&["review", "reject", &id]).fails(1, "has no open review");
    assert_eq!(sandbox.polity(&["review", "list"]).out, "nothing waits for a person\n");
    let (checkpoints, _) = sandbox.json(&["task", "checkpoints", &id]);
    let feedback = &checkpoints[0]["human_feedback"];
    assert_eq!((&feedback["action"], &feedback["message"]), (&json!("approve"), &json!("fine")));
}

#[test]
fn checkpoints_show_reviews_and_answers() {
    let (sandbox, id) = home_awaiting_review();
    let list = || sandbox.polity(&["task", "checkpoints", &id]).out;
    let waiting = list();
    assert!(waiting.lines().next().unwrap().ends_with("REVIEW"), "{waiting}");
    assert!(waiting.lines().nth(1).unwrap().ends_with("open"), "{waiting}");
    let mut answer = sandbox.command(&["review", "approve", &id, "--message", "fine"]);
    assert!(answer.env("POLITY_USER", "ada").output().unwrap().status.success());
    let answered = list();
    assert!(answered.lines().nth(1).unwrap().ends_with("approve by ada: fine"), "{answered}");

    let (sandbox, id) = home_awaiting_review();
    sandbox.polity(&["task", "cancel", &id]).exits(0);
    sandbox.polity(&["task", "checkpoints", &id]).out_has("unanswered");
}

#[test]
fn detached_answer_is_recorded_for_later() {
    let (sandbox, id) = home_awaiting_review();
    sandbox.polity(&["review", "approve", &id, "--detach"]).exits(0);
    assert_eq!(count_lines(&sandbox, "a"), 0);
    assert_eq!(sandbox.tasks()[0]["interrupted"], true);
    sandbox.polity(&["task", "list"]).out_has("running (ready to resume)");
    let shown = sandbox.polity(&["task", "show", &id]).out;
    let next = format!("no process runs it; resume it with `polity task resume {}`", &id[..8]);
    assert!(shown.contains(&next), "{shown}");
    sandbox.polity(&["task", "resume", &id]).prints("it said: counted\n");
    assert_eq!(count_lines(&sandbox, "a"), 1);
}

#[test]
fn rejected_call_is_reported_to_the_model() {
    let (sandbox, id) = home_awaiting_review();
    let output = sandbox.polity(&["review", "reject", &id, "--message", "not on a Sunday"]);
    assert_eq!(output.code, 0, "{output:?}");
    let expected = "it said: a person rejected the call of kit/count: not on a Sunday\n";
    assert_eq!(output.out, expected);
    assert_eq!(count_lines(&sandbox, "a"), 0);
}

#[test]
fn modified_arguments_reach_the_tool() {
    let (sandbox, id) = home_awaiting_review();
    for wrong in ["file", "=x"] {
        sandbox.polity(&["review", "modify", &id, "--set", wrong]).exits(2);
    }
    sandbox.polity(&["review", "modify", &id, "--set", "file=b"]).exits(0);
    assert_eq!((count_lines(&sandbox, "a"), count_lines(&sandbox, "b")), (0, 1));
    let (trace, _) = sandbox.json(&["task", "trace", &id]);
    let steps = trace["steps"].as_array().unwrap().clone();
    let made = steps.iter().find(|step| step["step_name"] == "tool_call").unwrap();
    assert_eq!(made["tool_calls"][0]["arguments"]["file"], "b", "{trace}");
}

#[test]
fn review_resumes_with_pinned_definitions() {
    let (sandbox, id) = home_awaiting_review();
    fs::remove_file(sandbox.file("agents/worker.yaml")).unwrap();
    fs::remove_file(sandbox.file("scripts/worker.yaml")).unwrap();
    sandbox.polity(&["review", "approve", &id]).prints("it said: counted\n");
}

#[test]
fn waiting_task_can_be_cancelled() {
    let (sandbox, id) = home_awaiting_review();
    let output = sandbox.polity(&["task", "cancel", &id]);
    assert_eq!(
        (output.code, output.out),
        (0, format!("task {id} is cancelled\n")),
        "{}",
        output.err
    );
    sandbox.polity(&["review", "approve", &id]).exits(1);
    assert_eq!(count_lines(&sandbox, "a"), 0);
}

/// A task whose process was killed after a tool took effect and before it answered.
fn home_with_call_in_doubt() -> (HomeSandbox, String) {
    let sandbox = home("", "{}", &["--log", "log"]);
    let arguments = json!({"file": "a", "seconds": 600});
    calls(&sandbox, &json!([{"tool": "kit/count_slowly", "arguments": arguments}]));
    let mut running = sandbox.start(&["run", "worker", "go"]);
    sandbox.wait_until("the tool has had its effect", || {
        (count_lines(&sandbox, "a") == 1).then_some(())
    });
    kill(&mut running);
    sandbox.polity(&["task", "resume", "last"]).exits(3);
    assert_eq!(count_lines(&sandbox, "a"), 1, "Polity repeats no uncertain call");
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    (sandbox, id)
}

#[test]
fn call_in_doubt_can_be_skipped() {
    let (sandbox, id) = home_with_call_in_doubt();
    let shown = sandbox.polity(&["review", "show", &id]).out;
    for expected in
        ["kit/count_slowly", "it is unknown whether", "--retry", "--skip-with", "reject"]
    {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    sandbox.polity(&["review", "approve", &id]).fails(2, "--retry").err_has("--skip-with");
    let output = sandbox.polity(&["review", "approve", &id, "--skip-with", "counted by hand"]);
    assert_eq!((output.code, output.out.as_str()), (0, "it said: counted by hand\n"), "{output:?}");
    assert_eq!(count_lines(&sandbox, "a"), 1);
}

#[test]
fn call_in_doubt_can_be_retried() {
    let (sandbox, id) = home_with_call_in_doubt();
    sandbox.polity(&["review", "approve", &id, "--retry", "--detach"]).exits(0);
    let mut running = sandbox.start(&["task", "resume", &id]);
    sandbox.wait_until("the call is repeated", || (count_lines(&sandbox, "a") == 2).then_some(()));
    sandbox.polity(&["task", "cancel", &id]).exits(0);
    assert_eq!(running.wait().unwrap().code(), Some(4));
}

#[test]
fn rejecting_a_call_in_doubt_fails_the_task() {
    let (sandbox, id) = home_with_call_in_doubt();
    let output = sandbox.polity(&["review", "reject", &id, "--message", "I will look first"]);
    output.fails(1, "rejected").err_has("I will look first");
    let (task, _) = sandbox.json(&["task", "show", &id]);
    assert_eq!((&task["status"], &task["error_code"]), (&json!("failed"), &json!("rejected")));
}

#[test]
fn answer_is_refused_if_the_task_cannot_resume() {
    let (sandbox, id) = home_awaiting_review();
    let servers = fs::read_to_string(sandbox.file("config/mcp_servers.yaml")).unwrap();
    for (broken, expected) in [
        ("servers: [", "config/mcp_servers.yaml"),
        ("servers: [{nam: kit}]", "config/mcp_servers.yaml"),
        ("servers: []", "there is no MCP server \"kit\""),
    ] {
        sandbox.write("config/mcp_servers.yaml", broken);
        for args in [vec!["approve"], vec!["modify", "--set", "file=b"]] {
            let args = [vec!["review", args[0], id.as_str()], args[1..].to_vec()].concat();
            let output = sandbox.polity(&args);
            assert_eq!(output.code, 2, "{broken} {args:?} {output:?}");
            assert!(output.err.contains(expected), "{broken} {args:?} {output:?}");
        }
        assert_eq!(sandbox.tasks()[0]["status"], "awaiting_human");
        let listed = sandbox.polity(&["tool", "list"]);
        let all_is_well = broken == "servers: []";
        assert_eq!(listed.code, if all_is_well { 0 } else { 2 }, "{broken} {listed:?}");
        let run = sandbox.polity(&["run", "worker", "go"]);
        assert_eq!((run.code, sandbox.tasks().len()), (2, 1), "{broken} {run:?}");
    }
    sandbox.write("config/mcp_servers.yaml", &servers);
    assert_eq!(sandbox.polity(&["review", "approve", &id]).out, "it said: counted\n");
}

#[test]
fn reject_works_without_the_server() {
    for broken in ["servers: [", "servers: [{nam: kit}]", "servers: []"] {
        let (sandbox, id) = home_awaiting_review();
        let servers = fs::read_to_string(sandbox.file("config/mcp_servers.yaml")).unwrap();
        sandbox.write("config/mcp_servers.yaml", broken);
        let output = sandbox.polity(&["review", "reject", &id, "--message", "not today"]);
        assert_eq!(output.code, 0, "{broken} {output:?}");
        assert!(output.out.starts_with("recorded; the task cannot continue yet"), "{output:?}");
        assert!(output.out.contains(&format!("polity task resume {id}")), "{output:?}");
        assert_eq!(sandbox.polity(&["review", "list"]).out, "nothing waits for a person\n");
        if broken == "servers: []" {
            let all = sandbox.polity(&["task", "resume", "--all"]);
            assert_eq!(all.code, 1, "{all:?}");
            assert!(all.err.contains(&format!("task {id}: there is no MCP server")), "{all:?}");
            assert!(all.out.ends_with("1 task: 1 not resumable here\n"), "{all:?}");
        }
        sandbox.write("config/mcp_servers.yaml", &servers);
        let resumed = sandbox.polity(&["task", "resume", &id]);
        let expected = "it said: a person rejected the call of kit/count: not today\n";
        assert_eq!((resumed.code, resumed.out.as_str()), (0, expected), "{broken} {resumed:?}");
    }
}

#[test]
fn answer_applies_only_to_its_checkpoint() {
    let sandbox = home("approval: [kit/count]\n", "{}", &[]);
    let call = |file: &str| json!({"tool": "kit/count", "arguments": {"file": file}});
    calls(&sandbox, &json!([call("a"), call("b")]));
    sandbox.polity(&["run", "worker", "go"]).exits(3);
    let current_checkpoint = || {
        let (review, _) = sandbox.json(&["review", "show", "last"]);
        review["checkpoint_id"].as_str().unwrap().to_owned()
    };
    let approve = |checkpoint: &str| {
        sandbox.polity(&["review", "approve", "last", "--checkpoint", checkpoint])
    };
    approve("00000000-0000-4000-8000-000000000000").fails(1, "has no checkpoint 00000000");
    let first = current_checkpoint();
    assert_eq!(approve(&first).code, 3);
    approve(&first).fails(1, "asks something else");
    assert_eq!(count_lines(&sandbox, "b"), 0);
    assert_eq!(approve(&current_checkpoint()).code, 0);
    assert_eq!((count_lines(&sandbox, "a"), count_lines(&sandbox, "b")), (1, 1));
}

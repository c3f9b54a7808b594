//! `polity task retry`: continuing a failed or cancelled task from before its failure.

use std::fs;

use polity_testkit::model_server::{ModelCall, ModelServer, ModelTurn};
use serde_json::json;

use crate::sandbox::{HomeSandbox, finish};

/// A home with the agent `caller`, whose model is on this server.
fn home(server: &ModelServer, fields: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    let agent = format!(
        "kind: llm\nname: caller\nrole: Calls\nsystem_prompt: Answer.\nmax_retries: 0\n\
         llm_config: {{provider: openai_compatible, model: m-1, endpoint: \"{}\"}}\n{fields}\n",
        server.url()
    );
    sandbox.write("agents/caller.yaml", &agent);
    sandbox
}

/// A turn that asks for a tool that does not exist. The model reads the error and goes on.
fn asks() -> ModelTurn {
    ModelTurn::calls([ModelCall::new("clock__now", "{}")])
}

fn refused() -> ModelTurn {
    ModelTurn::status(400, "not today")
}

/// A home whose workflow fails at its second node until the file `ok` exists.
fn shell_home() -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("first", "echo first >> ran; echo one", "");
    sandbox.write_shell_agent(
        "second",
        "echo second >> ran; test -e ok || exit 3; echo two",
        ", max_retries: 0",
    );
    sandbox.write_shell_agent("third", "echo third >> ran; echo three", "");
    sandbox.write(
        "workflows/line.yaml",
        "name: line
entry_point: one
nodes:
  one: {type: agent, agent: first}
  two: {type: agent, agent: second}
  three: {type: agent, agent: third}
edges: [{from: one, to: two}, {from: two, to: three}]
",
    );
    sandbox
}

fn ran(sandbox: &HomeSandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.file("ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn failed_task(sandbox: &HomeSandbox, args: &[&str]) -> String {
    let (task, code) = sandbox.json(args);
    assert_eq!((code, &task["status"]), (1, &json!("failed")), "{task}");
    task["id"].as_str().unwrap().to_owned()
}

#[test]
fn failed_agent_continues_before_the_failed_call() {
    let server = ModelServer::with([asks(), asks(), refused(), ModelTurn::text("At last.")]);
    let sandbox = home(&server, "");
    let failed = sandbox.polity(&["run", "caller", "Hello"]).fails(1, "not today");
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    assert!(failed.err.contains(&format!("continue with `polity task retry {id}`")), "{failed:?}");
    sandbox.polity(&["task", "show", &id]).out_has(&format!("polity task retry {}", &id[..8]));

    let (checkpoints, _) = sandbox.json(&["task", "checkpoints", &id]);
    let counts: Vec<_> = checkpoints
        .as_array()
        .unwrap()
        .iter()
        .map(|checkpoint| checkpoint["state"]["messages"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [3, 5], "one per finished turn");
    sandbox.polity(&["task", "show", &id, "--at", "1"]).out_has("there is no tool clock/now");

    sandbox.polity(&["task", "retry", &id]).prints("At last.\n");
    assert_eq!(server.requests().len(), 4, "no turn is repeated");
    let retried = &sandbox.tasks()[0];
    assert_eq!(retried["retry_of"], json!(id));
    assert_eq!(retried["forked_from"]["task_id"], json!(id));
    let shown = sandbox.polity(&["task", "show", retried["id"].as_str().unwrap()]);
    shown.out_has(&format!("retry of {}", &id[..8]));
    let traced = sandbox.polity(&["task", "trace", retried["id"].as_str().unwrap()]);
    traced.out_has(&format!("assigned to caller; retry of {}\n", &id[..8]));
    // The failed task stays failed.
    assert_eq!(sandbox.json(&["task", "show", &id]).0["status"], "failed");
    let (diff, _) = sandbox.json(&["task", "diff", &id, retried["id"].as_str().unwrap()]);
    assert_eq!(diff["common_steps"], 4, "{diff}");
}

#[test]
fn fork_continues_from_a_turn() {
    let server =
        ModelServer::with([asks(), asks(), ModelTurn::text("One."), ModelTurn::text("Another.")]);
    let sandbox = home(&server, "");
    sandbox.polity(&["run", "caller", "Hello"]).prints("One.\n");
    let fork = ["task", "fork", "last", "--from", "0", "--set", "messages=Now."];
    sandbox.polity(&fork).prints("Another.\n");
    assert_eq!(server.requests()[3].tool_answers(), 1, "the first turn is shared");
}

#[test]
fn retry_that_fits_no_task_is_refused() {
    let server = ModelServer::with([refused(), ModelTurn::text("Done.")]);
    let sandbox = home(&server, "");
    let id = failed_task(&sandbox, &["run", "caller", "Hello"]);
    sandbox.polity(&["task", "retry", &id]).prints("Done.\n");
    let retried = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();

    let error = sandbox.error(1, &["task", "retry", &id]);
    let expected = format!("task {id} was retried as {retried}, which is completed");
    assert_eq!((error.code.as_str(), error.message), ("conflict", expected));
    assert_eq!(error.hint, format!("see its result: `polity task show {retried}`"));
    let error = sandbox.error(1, &["task", "retry", &retried]);
    let expected = format!("task {retried} is completed, and there is nothing to retry");
    assert_eq!(error.message, expected);
    assert!(error.hint.contains("polity task fork"), "{error:?}");
    sandbox.polity(&["task", "retry", "none"]).fails(1, "none");
    assert_eq!(sandbox.tasks().len(), 2, "a refusal creates nothing");
}

#[test]
fn running_and_waiting_tasks_are_not_retried() {
    let sandbox = HomeSandbox::new();
    let mut child = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    let error = sandbox.error(1, &["task", "retry", &id]);
    assert!(error.message.contains("is running"), "{error:?}");
    assert!(error.hint.contains(&format!("polity task watch {id}")), "{error:?}");
    sandbox.polity(&["task", "cancel", &id]).exits(0);
    child.wait().unwrap();
    sandbox.polity(&["task", "wait", &id]).fails(4, &format!("polity task retry {id}"));

    let sandbox = HomeSandbox::bare();
    let ask = "name: ask\nentry_point: ask\nnodes: {ask: {type: human, question: 'Well?'}}\n";
    sandbox.write("workflows/ask.yaml", ask);
    sandbox.polity(&["run", "ask", "x"]).exits(3);
    let error = sandbox.error(1, &["task", "retry", "last"]);
    assert!(error.hint.starts_with("answer its review: `polity review show"), "{error:?}");
}

#[test]
fn one_of_two_processes_retries() {
    let sandbox = shell_home();
    let id = failed_task(&sandbox, &["run", "line", "x"]);
    sandbox.write("ok", "");
    let children = [0, 1].map(|_| sandbox.start(&["task", "retry", &id]));
    let outputs = children.map(finish);
    let codes: Vec<_> = outputs.iter().map(|output| output.code).collect();
    let refused = outputs.iter().find(|output| output.code == 1).unwrap();
    assert_eq!(codes.iter().sum::<i32>(), 1, "{outputs:?}");
    assert!(refused.err.contains("was retried as"), "{refused:?}");
    assert_eq!(ran(&sandbox), ["first", "second", "second", "third"]);
}

#[test]
fn workflow_continues_at_its_failed_node() {
    let sandbox = shell_home();
    let id = failed_task(&sandbox, &["run", "line", "x"]);
    // It fails again, and the retry of the retry succeeds.
    let again = failed_task(&sandbox, &["task", "retry", &id]);
    sandbox.write("ok", "");
    let error = sandbox.error(1, &["task", "retry", &id]);
    assert!(
        error.hint.contains(&format!("retry that one: `polity task retry {again}`")),
        "{error:?}"
    );
    sandbox.polity(&["task", "retry", &again]).prints("three\n");
    assert_eq!(ran(&sandbox), ["first", "second", "second", "second", "third"]);
    // The node that continues has its output in the trace of the retry.
    let steps = sandbox.step_names("last");
    assert_eq!(steps, ["created", "started", "two", "three", "completed"]);
    let part = sandbox.get(&["task", "list", "--parent", &id])[0]["id"].clone();
    let error = sandbox.error(2, &["task", "retry", part.as_str().unwrap()]);
    assert!(error.hint.contains(&format!("polity task retry {id}")), "{error:?}");
}

#[test]
fn cli_agent_runs_again_with_a_raised_time_limit() {
    let sandbox = HomeSandbox::bare();
    let script = "echo x >> ran; test -e ok || sleep 60; cat";
    sandbox.write_shell_agent("slow", script, ", timeout: 1, max_retries: 0");
    let (task, code) = sandbox.json(&["run", "slow", "hello"]);
    assert_eq!(code, 5, "{task}");
    sandbox.write("ok", "");
    // It may have done its work before it was stopped, so a person decides.
    sandbox.polity(&["task", "retry", "last", "--timeout", "100"]).exits(3);
    sandbox.polity(&["review", "approve", "last", "--retry"]).exits(0).out_has("hello");
    let (executions, _) = sandbox.json(&["execution", "list"]);
    assert_eq!(executions.as_array().unwrap().len(), 2, "{executions}");
}

#[test]
fn secrets_of_an_ended_task_are_gone() {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("coder", "exit 3", ", max_retries: 0");
    let (_, code) = sandbox.json(&["run", "coder", "x", "--env", "MY_TOKEN=abc123def456ghi789"]);
    assert_eq!(code, 1);
    let error = sandbox.error(1, &["task", "retry", "last"]);
    assert!(error.message.contains("destroyed when it ended"), "{error:?}");
    assert!(error.hint.contains("polity run"), "{error:?}");
}

#[test]
fn used_up_budget_is_raised() {
    let turn = |turn: ModelTurn| turn.usage(10, 10);
    let server = ModelServer::with([turn(asks()), turn(asks()), turn(ModelTurn::text("At last."))]);
    let sandbox = home(&server, "budget: {max_tokens: 20}");
    let (task, code) = sandbox.json(&["run", "caller", "Hello"]);
    assert_eq!((code, &task["error_code"]), (6, &json!("budget")));
    let error = sandbox.error(6, &["task", "retry", "last"]);
    assert!(error.message.contains("20 of 20 tokens"), "{error:?}");
    assert!(error.hint.contains("--max-tokens"), "{error:?}");
    sandbox.polity(&["task", "retry", "last", "--max-tokens", "60"]).prints("At last.\n");
}

#[test]
fn current_definitions_are_used_and_their_difference_is_shown() {
    let sandbox = shell_home();
    let id = failed_task(&sandbox, &["run", "line", "x"]);
    sandbox.write_shell_agent("second", "echo repaired", ", max_retries: 0");
    let workflow = fs::read_to_string(sandbox.file("workflows/line.yaml")).unwrap();
    sandbox.write(
        "workflows/line.yaml",
        &workflow.replace("one:", "zero:").replace(": one", ": zero"),
    );
    let current = ["task", "retry", &id, "--definitions", "current"];
    let error = sandbox.error(1, &current);
    let expected = "node \"one\" has run there, and the workflow no longer has it";
    assert!(error.message.ends_with(expected), "{error:?}");
    let fork = ["task", "fork", &id, "--from", "0", "--definitions", "current"];
    let error = sandbox.error(1, &fork);
    assert!(error.message.ends_with(expected), "{error:?}");

    sandbox.write("workflows/line.yaml", &workflow);
    let output = sandbox.polity(&current).prints("three\n");
    for line in ["agent second has changed:", "--- pinned", "+++ current", "echo repaired"] {
        assert!(output.err.contains(line), "{line}: {output:?}");
    }
    sandbox.polity(&fork).prints("three\n");
    sandbox.polity(&["task", "retry", &id, "--definitions", "old"]).exits(2);
}

#[test]
fn output_of_a_finished_node_is_edited() {
    let sandbox = HomeSandbox::new();
    sandbox.write_scripted_agent("echo", "");
    sandbox.write("scripts/echo.yaml", "rules: []\ndefault: {reply: '$input'}\n");
    sandbox.write(
        "workflows/two.yaml",
        "name: two
entry_point: a
nodes:
  a: {type: agent, agent: echo}
  b: {type: agent, agent: echo, input: 'b of {{ nodes.a.output }}'}
edges: [{from: a, to: b}]
",
    );
    let task = sandbox.get(&["run", "two", "x"]);
    let id = task["id"].as_str().unwrap().to_owned();
    let fork = ["task", "fork", &id, "--from", "0", "--set"];
    sandbox.polity(&[&fork[..], &["nodes.a.output=mine"]].concat()).prints("b of mine\n");
    for (set, expected) in [
        ("nodes.c.output=1", "nodes.c.output: the workflow has no node \"c\""),
        (
            "nodes.b.output=1",
            "nodes.b.output: node \"b\" has not finished, so it has no output yet",
        ),
    ] {
        let output = sandbox.polity(&[&fork[..], &[set]].concat());
        assert!(output.code != 0 && output.err.contains(expected), "{output:?}");
    }
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    let fork = ["task", "fork", "last", "--from", "0", "--set", "nodes.a.output=1"];
    let output = sandbox.polity(&fork);
    assert!(output.err.contains("the task has no workflow"), "{output:?}");
}

#[test]
fn retry_is_exported_imported_and_retained_with_its_origin() {
    let server = ModelServer::with([asks(), refused(), refused(), ModelTurn::text("Done.")]);
    let sandbox = home(&server, "");
    let id = failed_task(&sandbox, &["run", "caller", "Hello"]);
    let retried = failed_task(&sandbox, &["task", "retry", &id]);
    let out = sandbox.file("out");
    let out = out.to_str().unwrap();
    sandbox.polity(&["task", "export", &retried, "--out", out]).exits(0);
    assert!(sandbox.file(&format!("out/tasks/{id}/checkpoint_000.json")).exists());

    let other = home(&server, "");
    other.polity(&["task", "import", out]).exits(0);
    assert_eq!(other.get(&["task", "show", &retried])["retry_of"], json!(id));
    let (checkpoints, _) = other.json(&["task", "checkpoints", &id]);
    assert_eq!(checkpoints.as_array().unwrap().len(), 1);
    let error = other.error(2, &["task", "retry", &retried]);
    assert!(error.message.contains("runs only after you trust it"), "{error:?}");
    other.polity(&["task", "retry", &retried, "--trust"]).prints("Done.\n");
    // The last retry shares the history of both.
    other.write("config/retention_policy.yaml", "by_status: {failed: 0, completed: 30}\n");
    other.polity(&["gc"]).exits(0);
    assert_eq!(other.tasks().len(), 3);
    other.polity(&["task", "show", &retried]).out_has("not today");
}

#[test]
fn detached_retry_runs_in_the_background() {
    let sandbox = shell_home();
    let id = failed_task(&sandbox, &["run", "line", "x"]);
    sandbox.write("ok", "");
    let output = sandbox.polity(&["task", "retry", &id, "--detach"]).exits(0);
    sandbox.polity(&["task", "wait", output.out.trim()]).prints("three\n");
}

/// The answer of a script that is not its whole output was taken for that of a node in progress.
#[test]
fn retry_keeps_the_finished_script_before_the_failed_one() {
    let sandbox = HomeSandbox::new();
    sandbox.write("steps/first.sh", "cat > /dev/null; echo x >> ran; echo '{\"output\": \"d\"}'\n");
    sandbox.write("steps/second.sh", "cat > /dev/null; test -e ok && echo 1\n");
    sandbox.write(
        "workflows/flow.yaml",
        "{name: flow, entry_point: first, nodes: {first: {type: script, file: steps/first.sh}, \
         second: {type: script, file: steps/second.sh}}, edges: [{from: first, to: second}]}",
    );
    sandbox.polity(&["-q", "run", "flow", "x"]).exits(1);
    sandbox.write("ok", "");
    sandbox.polity(&["-q", "task", "retry", "last"]).prints("1\n");
    assert_eq!(std::fs::read_to_string(sandbox.file("ran")).unwrap(), "x\n");
}

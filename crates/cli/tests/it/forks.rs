//! `polity task fork` and `polity task show --at`: inspecting a checkpoint and continuing from it.

use serde_json::{Value, json};

use crate::sandbox::HomeSandbox;

const WORKFLOW: &str = "
name: story
entry_point: draft
nodes:
  draft: {type: agent, agent: echo, input: 'Draft of {{ input }}', outputs: [draft]}
  tone: {type: condition, expression: \"has(metadata.tone) ? metadata.tone : 'plain'\"}
  plain: {type: agent, agent: echo, input: 'Plainly, {{ metadata.draft }}'}
  grand: {type: agent, agent: echo, input: 'Grandly, {{ metadata.draft }}'}
edges:
  - {from: draft, to: tone}
  - {from: tone, to: {plain: plain, grand: grand}}
";

/// A home with a workflow whose agents repeat their input.
pub(crate) fn sandbox() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write("workflows/story.yaml", WORKFLOW);
    sandbox.write_scripted_agent("echo", "");
    sandbox.write("scripts/echo.yaml", "rules: []\ndefault: {reply: '$input'}\n");
    sandbox
}

/// Runs the workflow and returns the task id.
pub(crate) fn run(sandbox: &HomeSandbox, input: &str) -> String {
    let task = sandbox.get(&["run", "story", input]);
    task["id"].as_str().unwrap().to_owned()
}

/// Forks a task at its first checkpoint with a changed tone.
pub(crate) fn fork_with_grand_tone(sandbox: &HomeSandbox, id: &str) -> Value {
    let set = ["--set", "metadata.tone=grand"];
    sandbox.get(&[&["task", "fork", id, "--from", "0"], &set[..]].concat())
}

fn count(sandbox: &HomeSandbox, text: &str) -> usize {
    let store = polity_store::SqliteStore::open(
        &sandbox.file("data/polity.db"),
        polity_store::StoreAccess::ReadOnly,
    );
    let (store, mut all) = (store.unwrap(), Vec::new());
    let mut after = polity_model::event::JournalPosition::default();
    loop {
        use polity_store::Store;
        let headers = store.headers_after(after, 1000).wait().unwrap();
        let Some(last) = headers.last() else { break };
        after = last.position;
        for header in headers {
            let before = polity_model::event::StreamSequence(header.sequence.0 - 1);
            let events = store.events(&header.stream, before).wait().unwrap();
            all.push(serde_json::to_string(&events[0].event).unwrap());
        }
    }
    all.iter().filter(|event| event.contains(text)).count()
}

#[test]
fn fork_continues_with_a_changed_state() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let (first, _) = sandbox.json(&["task", "show", &id]);
    assert_eq!(first["result"], "Plainly, Draft of rain");
    assert!(first.get("forked_from").is_none(), "{first}");
    let fork = fork_with_grand_tone(&sandbox, &id);
    assert_eq!(fork["result"], "Grandly, Draft of rain");
    assert_eq!(fork["forked_from"], json!({"task_id": id, "checkpoint": 0}));
    assert_ne!(fork["id"], first["id"]);
    let (unchanged, _) = sandbox.json(&["task", "show", &id]);
    assert_eq!(unchanged, first);
    let shown = sandbox.polity(&["task", "show", fork["id"].as_str().unwrap()]);
    let origin = format!("forked from {} at checkpoint 0", &id[..8]);
    assert!(shown.out.contains(&origin), "{shown:?}");
}

#[test]
fn fork_shows_steps_and_exit_code_like_a_run() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let fork = ["task", "fork", &id, "--from", "0"];
    sandbox.polity(&fork).prints("Plainly, Draft of rain\n").err_has("plain");
    let output = sandbox.polity(&[&fork[..], &["--set", "metadata.tone=sour"]].concat());
    assert_eq!(output.code, 1, "no edge matches: {output:?}");
}

#[test]
fn fork_shares_stored_history() {
    let sandbox = sandbox();
    let id = run(&sandbox, "a long and winding tale");
    let output = "\"content\":\"Draft of a long and winding tale\"";
    let before = count(&sandbox, output);
    assert!(before > 0);
    let fork = fork_with_grand_tone(&sandbox, &id);
    assert_eq!(count(&sandbox, output), before, "the shared message is not stored again");
    let (checkpoints, _) = sandbox.json(&["task", "checkpoints", fork["id"].as_str().unwrap()]);
    let messages = checkpoints[0]["state"]["messages"].as_array().unwrap();
    assert_eq!(messages[1]["content"], "Draft of a long and winding tale");
}

#[test]
fn agent_task_can_be_forked() {
    let sandbox = HomeSandbox::new();
    let (task, _) = sandbox.json(&["run", "greeter", "Ada"]);
    let id = task["id"].as_str().unwrap();
    let set = "messages=think";
    let fork = sandbox.get(&["task", "fork", id, "--from", "0", "--set", set]);
    assert_eq!(fork["result"], "thought", "{fork}");
    assert_eq!(fork["forked_from"]["task_id"], task["id"]);
}

#[test]
fn detached_fork_runs_in_the_background() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let output = sandbox.polity(&["task", "fork", &id, "--from", "0", "--detach"]).exits(0);
    let fork = output.out.trim();
    sandbox.polity(&["task", "wait", fork]).prints("Plainly, Draft of rain\n");
}

#[test]
fn fork_is_recorded_and_replayed() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let fork = ["task", "fork", &id, "--from", "0", "--set", "metadata.tone=grand"];
    sandbox.polity(&[&fork[..], &["--record", "fork.yaml"]].concat()).exits(0);
    let output = sandbox.polity(&[&fork[..], &["--replay", "fork.yaml"]].concat());
    assert_eq!((output.code, output.out.as_str()), (0, "Grandly, Draft of rain\n"), "{output:?}");
}

#[test]
fn invalid_fork_creates_no_task() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let fails = |args: &[&str], code: i32, expected: &str| {
        let output = sandbox.polity(&[&["task", "fork"], args].concat());
        assert_eq!((output.code, output.out.as_str()), (code, ""), "{output:?}");
        assert!(output.err.contains(expected), "{expected}: {output:?}");
    };
    fails(&["0000", "--from", "0"], 1, "there is no task 0000");
    fails(&[&id, "--from", "9"], 1, "has no checkpoint 9");
    fails(&[&id, "--from", "9"], 1, "there are 0 (draft), 1 (tone), 2 (plain)");
    fails(&[&id, "--from", "0", "--set", "tone=grand"], 2, "no field \"tone\"");
    fails(&[&id, "--from", "0", "--set", "metadata.draft.x=1"], 2, "metadata.draft is a text");
    fails(&[&id, "--from", "0", "--set", "metadata"], 2, "is not PATH=VALUE");
    fails(&[&id, "--from", "0", "--set", "tone=grand", "--detach"], 2, "no field \"tone\"");
    fails(&[&id], 2, "--from");
    assert_eq!(sandbox.json(&["task", "list"]).0.as_array().unwrap().len(), 1);
}

#[test]
fn show_at_prints_a_checkpoint() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let (all, _) = sandbox.json(&["task", "checkpoints", &id]);
    for number in 0..3 {
        let at = number.to_string();
        let (one, code) = sandbox.json(&["task", "show", &id, "--at", &at]);
        assert_eq!((&one, code), (&all[number], 0));
    }
    let output = sandbox.polity(&["task", "show", &id, "--at", "1"]);
    for expected in ["tone", "plain", "draft = \"Draft of rain\"", "assistant  Draft of rain"] {
        assert!(output.out.contains(expected), "{expected}: {output:?}");
    }
    let output = sandbox.polity(&["task", "show", &id, "--at", "7"]);
    output.fails(1, "there are 0 (draft), 1 (tone), 2 (plain)");
}

#[test]
fn task_list_counts_parts_and_lists_them_on_request() {
    let sandbox = sandbox();
    let id = run(&sandbox, "rain");
    let (listed, _) = sandbox.json(&["task", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "the list contains only root tasks");
    let table = sandbox.polity(&["task", "list"]).out;
    assert!(table.contains("PARTS"), "{table}");
    let columns: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(columns[..4], [&id[..8], "completed", "story", "2"], "{table}");
    let (all, _) = sandbox.json(&["task", "list", "--parts"]);
    assert_eq!(all.as_array().unwrap().len(), 3);
    sandbox.polity(&["task", "list", "--parts"]).out_has("PARENT").out_has("└ echo");
    let (parts, _) = sandbox.json(&["task", "list", "--parent", &id]);
    let parts = parts.as_array().unwrap();
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|part| part["parent_task_id"] == id.as_str()));
    let (one, _) = sandbox.json(&["task", "list", "--parent", &id, "--limit", "1"]);
    assert_eq!(one.as_array().unwrap().len(), 1);
    let output = sandbox.polity(&["task", "list", "--agent", "echo"]);
    assert_eq!(output.out, "no tasks; --parts includes the parts of tasks\n");
}

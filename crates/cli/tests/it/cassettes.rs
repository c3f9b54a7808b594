//! `--record` and `--replay`: replays need neither models nor tools.

use std::fs;
use std::process::Command;

use polity_testkit::mcp::fixture;
use polity_testkit::model_server::{ModelCall, ModelServer, ModelTurn};
use serde_json::{Value, json};

use crate::sandbox::{CommandOutput, HomeSandbox, command_output, finish};
use crate::tools::{calls, home};

const TAPE: &str = "tape.json";

fn read_cassette(sandbox: &HomeSandbox) -> String {
    fs::read_to_string(sandbox.file(TAPE)).unwrap()
}

/// Returns the conversation of the newest task, without fields that differ between runs.
fn messages(sandbox: &HomeSandbox) -> Value {
    let (mut checkpoints, _) = sandbox.json(&["task", "checkpoints", "last"]);
    let mut messages =
        checkpoints.as_array_mut().unwrap().pop().unwrap()["state"]["messages"].take();
    for message in messages.as_array_mut().unwrap() {
        let message = message.as_object_mut().unwrap();
        message.remove("timestamp");
        message.remove("tool_call_id");
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            call.as_object_mut().unwrap().remove("id");
        }
    }
    messages
}

/// Removes everything that the agent of [`home`] needs to run, except its definition.
fn break_everything(sandbox: &HomeSandbox) {
    sandbox.write("scripts/worker.yaml", "default: {reply: \"this is not what was recorded\"}");
    let missing = json!({"name": "kit", "transport": "stdio", "config": {"command": "./gone"}});
    sandbox.write("config/mcp_servers.yaml", &json!({"servers": [missing]}).to_string());
}

/// A home whose agent makes two tool calls in one answer and repeats the last tool's result.
fn working_home() -> HomeSandbox {
    let sandbox = home("", "{}", &[]);
    calls(
        &sandbox,
        &json!([
            {"tool": "kit/echo", "arguments": {"text": "one\ntwo\n"}},
            {"tool": "kit/nothing"},
            {"tool": "kit/add", "arguments": {"a": 0.1, "b": 0.2}},
        ]),
    );
    sandbox
}

fn record(sandbox: &HomeSandbox) -> CommandOutput {
    sandbox.polity(&["run", "worker", "go", "--record", TAPE]).exits(0)
}

#[test]
fn replay_needs_neither_model_nor_tools() {
    let sandbox = working_home();
    let live = record(&sandbox).err_has("recorded 2 model calls and 2 tool calls in tape.json");
    let said_live = messages(&sandbox);
    break_everything(&sandbox);
    for input in [&["go"][..], &[]] {
        let args = [&["run", "worker"], input, &["--replay", TAPE]].concat();
        let replayed = sandbox.polity(&args).prints(&live.out);
        assert_eq!(messages(&sandbox), said_live);
        assert!(!replayed.err.contains("that the run did not use"), "{replayed:?}");
    }
    let before = read_cassette(&sandbox);
    let (task, code) = sandbox.json(&["run", "worker", "go", "--replay", TAPE]);
    assert_eq!((code, &task["status"]), (0, &"completed".into()), "{task}");
    assert_eq!(read_cassette(&sandbox), before, "a replay changes nothing");
}

#[test]
fn recording_again_is_deterministic_and_replaces_the_file() {
    let sandbox = working_home();
    record(&sandbox);
    let first = read_cassette(&sandbox);
    record(&sandbox);
    assert_eq!(read_cassette(&sandbox), first);
    for random in ["timestamp", "\"id\"", sandbox.tasks()[0]["id"].as_str().unwrap()] {
        assert!(!first.contains(random), "{random} in {first}");
    }
    calls(&sandbox, &json!([{"tool": "kit/echo", "arguments": {"text": "three"}}]));
    record(&sandbox);
    assert!(
        read_cassette(&sandbox).contains("three")
            && !read_cassette(&sandbox).contains("kit/add\",\n \"arg")
    );
    let left = fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("tape")).collect();
    assert_eq!(left, [TAPE], "temporary files are left");
}

#[test]
fn one_cassette_supports_concurrent_replays() {
    let sandbox = working_home();
    let live = record(&sandbox);
    break_everything(&sandbox);
    let args = ["run", "worker", "--replay", TAPE, "--quiet"];
    let running: Vec<_> = (0..12).map(|_| sandbox.start(&args)).collect();
    for child in running {
        finish(child).prints(&live.out);
    }
}

#[test]
fn replay_mismatch_fails_the_task_with_a_diff() {
    let sandbox = working_home();
    record(&sandbox);
    let agent = fs::read_to_string(sandbox.file("agents/worker.yaml")).unwrap();
    for (args, agent, expected) in [
        (
            &["run", "worker", "stop", "--replay", TAPE],
            agent.clone(),
            "  - user: go\n  + user: stop",
        ),
        (
            &["run", "worker", "go", "--replay", TAPE],
            agent.replace("system_prompt: Work.", "system_prompt: Work hard."),
            "  - system_prompt: Work.\n  + system_prompt: Work hard.",
        ),
        (
            &["run", "worker", "go", "--replay", TAPE],
            agent.replace("tools: [kit/*]", "tools: [kit/echo]"),
            "  - tools: kit/*\n  + tools: kit/echo",
        ),
    ] {
        sandbox.write("agents/worker.yaml", &agent);
        let failed = sandbox.polity(args);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(failed.err.contains(expected), "{failed:?}");
        assert!(failed.err.contains("in turn 1 of session \"worker\""), "{failed:?}");
        assert!(failed.err.contains("record it again with --record"), "{failed:?}");
    }
}

/// Edits the cassette file.
fn edit(sandbox: &HomeSandbox, change: impl FnOnce(&mut Value)) {
    let mut cassette: Value = serde_json::from_str(&read_cassette(sandbox)).unwrap();
    change(&mut cassette);
    sandbox.write(TAPE, &cassette.to_string());
}

#[test]
fn replay_reports_missing_and_unused_answers() {
    let sandbox = working_home();
    record(&sandbox);
    let cassette = read_cassette(&sandbox);
    edit(&sandbox, |cassette| {
        cassette["sessions"]["worker"]["turns"].as_array_mut().unwrap().pop();
    });
    let ended = sandbox.polity(&["run", "worker", "--replay", TAPE]).exits(1);
    let expected = "the cassette has no answer for turn 2 of session \"worker\": its last answer \
                    there is that of turn 1";
    assert!(ended.err.contains(expected), "{ended:?}");
    sandbox.write(TAPE, &cassette);
    edit(&sandbox, |cassette| {
        let turns = cassette["sessions"]["worker"]["turns"].as_array_mut().unwrap();
        let mut more = turns[1].clone();
        more["turn"] = json!(3);
        turns.push(more);
    });
    let left = sandbox.polity(&["run", "worker", "--replay", TAPE]).exits(0);
    let expected = "the cassette has 1 answer that the run did not use:\n  the model in turn 3 of \
                    session \"worker\"";
    assert!(left.err.contains(expected), "{left:?}");
}

#[test]
fn unusable_cassette_is_rejected_before_the_task_is_created() {
    let sandbox = working_home();
    record(&sandbox);
    let before = sandbox.tasks().len();
    let cassette = read_cassette(&sandbox);
    sandbox.write("cut.json", &cassette[..cassette.len() / 2]);
    sandbox.write(
        "other.json",
        &cassette
            .replace("\"agent\": \"worker\",\n  \"input\"", "\"agent\": \"poet\",\n  \"input\""),
    );
    sandbox.write("newer.json", &cassette.replace("\"cassette\": 1", "\"cassette\": 99"));
    sandbox.write("notes.txt", "dear diary");
    sandbox.write("list.json", "[1, 2]");
    sandbox.write("wrong.json", &cassette.replace("\"turn\": 1", "\"turn\": \"one\""));
    fs::write(sandbox.file("binary"), [0xff, 0xfe, 0]).unwrap();
    for (option, file, expected) in [
        ("--replay", "missing.json", "there is no cassette missing.json"),
        ("--replay", "cut.json", "cannot use cut.json: it is cut short: it ends at line "),
        ("--replay", "other.json", "recorded with agent \"poet\", and this is agent \"worker\""),
        ("--replay", "newer.json", "it is a cassette of version 99"),
        ("--replay", "notes.txt", "cannot use notes.txt: line 1, column 1: it is not JSON"),
        ("--replay", "list.json", "cannot use list.json: it is not a cassette"),
        ("--replay", "binary", "cannot use binary: it is not a cassette"),
        ("--replay", "wrong.json", "invalid type: string \"one\", expected u32"),
        ("--replay", "config", "config is a folder"),
        ("--record", "notes.txt", "cannot use notes.txt"),
        ("--record", "cut.json", "cannot use cut.json"),
        ("--record", "newer.json", "cannot use newer.json"),
        ("--record", "config", "config is a folder"),
        ("--record", "no/such/tape.json", "there is no folder no/such"),
        ("--record", "notes.txt/tape.json", "there is no folder notes.txt"),
    ] {
        let args = ["run", "worker", "go", option, file];
        sandbox.polity(&args).fails(2, expected).err_has("hint: ");
        assert_eq!(sandbox.error(2, &args).code, "cassette", "{args:?}");
    }
    let both = sandbox.polity(&["run", "worker", "go", "--record", TAPE, "--replay", TAPE]);
    both.fails(2, "cannot be used with");
    assert_eq!(sandbox.tasks().len(), before);
    assert_eq!(fs::read_to_string(sandbox.file("notes.txt")).unwrap(), "dear diary");
    assert_eq!(read_cassette(&sandbox), cassette);
}

#[test]
fn replay_repeats_failures_without_backoff() {
    let sandbox = HomeSandbox::new();
    let overloaded = sandbox.polity(&["run", "greeter", "overload", "--record", TAPE]).exits(0);
    assert!(!read_cassette(&sandbox).contains("429"), "retried attempts are not recorded");
    sandbox.polity(&["run", "greeter", "--replay", TAPE]).prints(&overloaded.out);
    for input in ["always overloaded", "forbidden"] {
        sandbox.polity(&["run", "greeter", input, "--record", TAPE]).exits(1);
        let (live, _) = sandbox.json(&["task", "show", "last"]);
        sandbox.polity(&["run", "greeter", "--replay", TAPE]);
        let (replayed, _) = sandbox.json(&["task", "show", "last"]);
        for field in ["status", "error", "error_code", "result"] {
            assert_eq!(replayed[field], live[field], "{input}");
        }
    }
}

#[test]
fn cancelled_run_does_not_replace_the_cassette() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada", "--record", TAPE]).exits(0);
    let before = read_cassette(&sandbox);
    let child = sandbox.start(&["run", "greeter", "slow", "--record", TAPE]);
    let id = sandbox.wait_for_status("running");
    sandbox.polity(&["task", "cancel", &id]);
    let cancelled = finish(child);
    cancelled.fails(4, "nothing was recorded in tape.json");
    assert_eq!(read_cassette(&sandbox), before);
}

#[test]
fn detached_task_records_and_replays() {
    let sandbox = working_home();
    sandbox.polity(&["run", "worker", "go", "--detach", "--record", TAPE]).exits(0);
    sandbox.wait_until("the cassette exists", || sandbox.file(TAPE).exists().then_some(()));
    let (live, _) = sandbox.json(&["task", "show", "last"]);
    break_everything(&sandbox);
    sandbox.polity(&["run", "worker", "--detach", "--replay", TAPE]).exits(0);
    sandbox.polity(&["task", "wait", "last"]).exits(0);
    let (replayed, _) = sandbox.json(&["task", "show", "last"]);
    assert_eq!(replayed["result"], live["result"]);
    let refused = sandbox.polity(&["run", "worker", "go", "--detach", "--replay", "missing.json"]);
    refused.fails(2, "there is no cassette missing.json");
}

#[test]
fn recording_continues_after_a_review() {
    let sandbox = home("approval: [kit/echo]\n", "{}", &[]);
    calls(&sandbox, &json!([{"tool": "kit/echo", "arguments": {"text": "hi"}}]));
    sandbox.polity(&["run", "worker", "go", "--record", TAPE]).exits(3);
    let missing = ["review", "approve", "last", "--record", "missing.json"];
    sandbox.polity(&missing).exits(2);
    let live = sandbox.polity(&["review", "approve", "last", "--record", TAPE]);
    assert_eq!((live.code, live.out.as_str()), (0, "it said: hi\n"), "{live:?}");
    break_everything(&sandbox);
    // The cassette has the answer.
    sandbox.polity(&["run", "worker", "--replay", TAPE]).prints(&live.out);
    let detached = sandbox.polity(&["run", "worker", "--replay", TAPE, "--detach"]);
    // The task waits for a moment, until its process answers from the cassette.
    sandbox.wait_until("the replay ends", || {
        let (task, _) = sandbox.json(&["task", "show", detached.out.trim()]);
        (task["status"] == "completed").then_some(())
    });
    // A cassette of an earlier version has none.
    edit(&sandbox, |cassette| {
        let reviews = cassette.as_object_mut().unwrap().remove("reviews").unwrap();
        assert_eq!(
            (&reviews[0]["place"], &reviews[0]["action"]),
            (&"worker".into(), &"approve".into())
        );
    });
    sandbox.polity(&["run", "worker", "--replay", TAPE]).exits(3);
    sandbox.polity(&["review", "approve", "last", "--replay", TAPE]).prints(&live.out);
    sandbox.polity(&["run", "worker", "--replay", TAPE]).exits(3);
    sandbox.polity(&["review", "approve", "last", "--detach"]).exits(0);
    sandbox.polity(&["task", "resume", "last", "--replay", TAPE]).prints(&live.out);
}

#[test]
fn parameters_and_review_answers_are_replayed() {
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "workflows/flow.yaml",
        "
name: flow
entry_point: draft
nodes:
  draft: {type: agent, agent: greeter, input: '{{ metadata.who }}'}
  ask: {type: human, question: 'Is {{ nodes.draft.output }} fine?'}
  again: {type: agent, agent: greeter, input: '{{ nodes.ask.output }} {{ metadata.tone }}'}
edges:
  - {from: draft, to: ask}
  - {from: ask, to: {modify: again, approve: again, reject: draft}, max_loops: 2}
",
    );
    let run = ["run", "flow", "x", "--param", "who=Bo", "--record", TAPE];
    sandbox.polity(&run).exits(3);
    let rejected = ["review", "reject", "last", "--message", "no", "--record", TAPE];
    sandbox.polity(&rejected).exits(3);
    let set = ["review", "modify", "last", "--set", "metadata.tone=loud", "--record", TAPE];
    let live = sandbox.polity(&set).prints("Hello, Hello, Bo. loud.\n");
    assert!(live.err.contains("2 review answers in tape.json"), "{live:?}");
    sandbox.write("scripts/greeter.yaml", "default: {reply: this was not recorded}");
    let replayed = sandbox.polity(&["run", "flow", "--replay", TAPE]).prints(&live.out);
    assert!(!replayed.err.contains("did not use"), "{replayed:?}");
    let (task, _) = sandbox.json(&["task", "show", "last"]);
    assert_eq!(task["parameters"], json!({"who": "Bo"}));
    // Another parameter asks the model something else.
    let other = ["run", "flow", "--param", "who=Cy", "--replay", TAPE];
    sandbox.polity(&other).fails(1, "+ user: Cy");
    // The answer to another question is not taken.
    edit(&sandbox, |cassette| cassette["reviews"][1]["question"] = "Is it?".into());
    sandbox.polity(&["run", "flow", "--replay", TAPE]).exits(3);
}

const KEY: &str = "sk-canary-0123456789";
const TOKEN: &str = "token-canary-987654321";

fn with_secrets(mut command: Command) -> CommandOutput {
    command_output(
        &command.env("TEST_MODEL_KEY", KEY).env("TEST_SERVER_TOKEN", TOKEN).output().unwrap(),
    )
}

/// The model and the tool both repeat the secrets, the model in its text and in tool arguments.
#[test]
fn cassette_contains_no_secrets() {
    let saying = format!("I was given {KEY} and {TOKEN}.");
    let arguments = json!({"text": format!("{KEY}\n{TOKEN}")}).to_string();
    let server = ModelServer::with([
        ModelTurn::calls([ModelCall::new("kit__echo", &arguments)]).saying(&saying),
        ModelTurn::text(&saying),
    ]);
    let sandbox = HomeSandbox::bare();
    sandbox.write(
        "agents/caller.yaml",
        &format!(
            "kind: llm\nname: caller\nrole: Calls\nsystem_prompt: Answer.\ntools: [kit/*]\n\
             llm_config: {{provider: openai, model: m-1, endpoint: \"{}\", \
             api_key_env: TEST_MODEL_KEY}}\n",
            server.url()
        ),
    );
    let kit = json!({"name": "kit", "transport": "stdio", "config": {"command": "python3",
        "args": [fixture()], "env": {"SECRET": "${TEST_SERVER_TOKEN}"}}});
    sandbox.write("config/mcp_servers.yaml", &json!({"servers": [kit]}).to_string());
    let input = format!("Say {TOKEN}");
    with_secrets(sandbox.command(&["run", "caller", &input, "--record", TAPE])).exits(0);
    let recorded = read_cassette(&sandbox);
    assert!(!recorded.contains("canary"), "{recorded}");
    assert!(recorded.contains("I was given *** and ***."), "{recorded}");
    drop(server);
    // With the secrets set, the masked input still matches. Without `INPUT`, replay uses the
    // recorded one.
    let replayed = with_secrets(sandbox.command(&["run", "caller", &input, "--replay", TAPE]));
    replayed.prints("I was given *** and ***.\n");
    sandbox.polity(&["run", "caller", "--replay", TAPE]).prints("I was given *** and ***.\n");
}

/// The test removes the folder during the model call. Polity prints the result and the error.
#[test]
fn failed_write_keeps_the_old_cassette() {
    let sandbox = HomeSandbox::empty();
    let (folder, moved) = (sandbox.file("tapes"), sandbox.file("moved"));
    fs::create_dir(&folder).unwrap();
    let (from, to) = (folder.clone(), moved.clone());
    let server = ModelServer::answering(move |_| {
        if from.join(TAPE).exists() {
            fs::rename(&from, &to).unwrap();
        }
        ModelTurn::text("Said.")
    });
    sandbox.write("polity.yaml", "");
    sandbox.write(
        "agents/caller.yaml",
        &format!(
            "kind: llm\nname: caller\nrole: Calls\nsystem_prompt: Answer.\n\
             llm_config: {{provider: openai_compatible, model: m-1, endpoint: \"{}\"}}\n",
            server.url()
        ),
    );
    let args = ["run", "caller", "Hi", "--record", "tapes/tape.json"];
    sandbox.polity(&args).exits(0);
    let old = fs::read_to_string(folder.join(TAPE)).unwrap();
    let failed = sandbox.polity(&args);
    assert_eq!((failed.code, failed.out.as_str()), (1, "Said.\n"), "{failed:?}");
    assert!(failed.err.contains("cannot write tapes/tape.json"), "{failed:?}");
    assert_eq!(fs::read_to_string(moved.join(TAPE)).unwrap(), old);
    assert_eq!(fs::read_dir(moved).unwrap().count(), 1);
}

#[test]
fn parallel_sub_agents_are_recorded_and_replayed() {
    let sandbox = HomeSandbox::bare();
    let agent = |name: &str, prompt: &str, more: &str| {
        let file = format!(
            "name: {name}\nkind: llm\nrole: Works\nsystem_prompt: {prompt}\n{more}\
             llm_config: {{provider: scripted, script: {name}}}\n"
        );
        sandbox.write(&format!("agents/{name}.yaml"), &file);
    };
    agent("editor", "Edit.", "sub_agents: [writer]\n");
    agent("writer", "Write.", "");
    let parts = ["one", "two", "three", "four"];
    let calls =
        parts.map(|part| json!({"tool": "agent/writer", "arguments": {"task_description": part}}));
    sandbox.write(
        "scripts/editor.yaml",
        &json!({"rules": [{"when": "^go$", "role": "user", "tool_calls": calls},
            {"when": "(?s)(.*)", "role": "tool", "reply": "got $1"}]})
        .to_string(),
    );
    sandbox.write("scripts/writer.yaml", "default: {reply: \"written $input\", delay_ms: 20}");
    let record = || sandbox.polity(&["run", "editor", "go", "--record", TAPE]);
    let live = record().prints("got written four\n");
    let first = read_cassette(&sandbox);
    record();
    assert_eq!(read_cassette(&sandbox), first, "the order of completion does not matter");
    for script in ["editor", "writer"] {
        sandbox.write(&format!("scripts/{script}.yaml"), "default: {reply: \"not recorded\"}");
    }
    let replayed = sandbox.polity(&["run", "editor", "--replay", TAPE]).prints(&live.out);
    assert!(!replayed.err.contains("that the run did not use"), "{replayed:?}");
    agent("writer", "Write well.", "");
    let differs = sandbox.polity(&["run", "editor", "--replay", TAPE]);
    differs.fails(1, "  - system_prompt: Write.\n  + system_prompt: Write well.");
}

#[test]
fn endless_cassette_is_refused_without_reading_it() {
    let sandbox = working_home();
    fs::File::create(sandbox.file("sparse")).unwrap().set_len(3 << 30).unwrap();
    let fifo = Command::new("mkfifo").arg(sandbox.file("fifo")).status().unwrap();
    assert!(fifo.success());
    for (file, reason) in [
        ("sparse", "it has more than 536870912 bytes"),
        ("fifo", "it is a FIFO, not a regular file"),
        ("/dev/zero", "it is a device, not a regular file"),
    ] {
        let refused = sandbox.polity(&["run", "worker", "go", "--replay", file]);
        assert!(refused.err.contains(reason), "{file}: {refused:?}");
    }
    assert!(sandbox.tasks().is_empty());
}

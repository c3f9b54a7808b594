//! Steps in code: script nodes of workflows.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use polity_testkit::peers;
use serde_json::{Value, json};

use crate::sandbox::{HomeSandbox, kill};

/// Scores the length of a text, routes by it, and notes it in the State.
const SCORE: &str = r#"
import json, sys
from rules import limit
given = json.load(sys.stdin)
score = len(given["arguments"]["text"])
print("scoring", file=sys.stderr)
print(json.dumps({
    "output": {"score": score, "topic": given["state"]["metadata"]["topic"]},
    "state_updates": {"metadata.length": score, "messages": ["scored " + given["input"]]},
    "routing_key": "long" if score > limit else "short",
}))
"#;

const FLOW: &str = "
name: flow
entry_point: score
nodes:
  score: {type: script, file: steps/score.py, arguments: {text: '{{ input }}!'}, outputs: [score, topic]}
  long: {type: script, command: [sh, -c, 'cat > given.json; echo 1']}
  short: {type: script, file: steps/short.sh}
edges:
  - {from: score, to: {long: long, short: short}}
";

fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write("workflows/flow.yaml", FLOW);
    sandbox.write("steps/score.py", SCORE);
    sandbox.write("steps/rules.py", "limit = 10\n");
    sandbox.write("steps/short.sh", "cat > given.json; echo '\"short\"'\n");
    sandbox
}

/// A home with one workflow of one script node with these fields.
fn home_with(fields: &str, files: &[(&str, &str)]) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    let file = format!("name: flow\nentry_point: s\nnodes: {{s: {{type: script, {fields}}}}}\n");
    sandbox.write("workflows/flow.yaml", &file);
    for (path, text) in files {
        sandbox.write(path, text);
    }
    sandbox
}

fn given(sandbox: &HomeSandbox) -> Value {
    serde_json::from_str(&fs::read_to_string(sandbox.file("given.json")).unwrap()).unwrap()
}

/// The stderr of all runs.
fn logs(sandbox: &HomeSandbox) -> String {
    let (list, _) = sandbox.json(&["execution", "list"]);
    let folders = list.as_array().unwrap().iter().map(|execution| {
        let shown = sandbox.get(&["execution", "show", execution["id"].as_str().unwrap()]);
        shown["result"]["output_files"]["folder"].as_str().unwrap().to_owned()
    });
    let stderr = |folder: String| sandbox.file("data").join(folder).join("stderr");
    folders.map(|folder| fs::read_to_string(stderr(folder)).unwrap_or_default()).collect()
}

#[test]
fn script_reads_input_state_and_arguments_and_routes() {
    let sandbox = home();
    let run = ["-q", "run", "flow", "rain", "--param", "topic=weather"];
    sandbox.polity(&run).prints("short\n");
    let given = given(&sandbox);
    assert_eq!(given["input"], "rain");
    assert_eq!(given["arguments"], json!({}));
    let metadata = &given["state"]["metadata"];
    assert_eq!(
        metadata,
        &json!({"topic": "weather", "score": 5, "length": 5}),
        "outputs and state_updates keep their types"
    );
    let messages: Vec<_> = given["state"]["messages"].as_array().unwrap().iter().collect();
    let contents: Vec<_> = messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, ["rain", "scored rain", r#"{"score":5,"topic":"weather"}"#]);
    assert_eq!(given["state"]["routing_key"], "short");

    let run = ["-q", "run", "flow", "a very long rain", "--param", "topic=weather"];
    sandbox.polity(&run).prints("1\n");
}

#[test]
fn script_is_traced_drawn_and_listed_like_a_sub_task() {
    let sandbox = home();
    sandbox.polity(&["run", "flow", "rain", "--param", "topic=weather"]).exits(0);
    let trace = sandbox.get(&["task", "trace", "last"]);
    let steps = trace["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["step_name"] == "score").unwrap();
    assert_eq!(step["agent"], "script_steps_score", "{step:#}");
    assert!(step["message"].as_str().unwrap().starts_with("short: {\"score\":5"), "{step:#}");
    let parts = sandbox.tasks();
    let names: Vec<_> = parts.iter().map(|task| &task["assigned_agent"]).collect();
    assert_eq!(names, ["script_steps_short", "script_steps_score", "flow"]);
    let drawn = sandbox.polity(&["workflow", "graph", "flow", "--format", "mermaid"]).exits(0);
    assert!(drawn.out.contains("steps/score.py"), "{drawn:?}");
    assert_eq!(logs(&sandbox), "scoring\n");
    let usage = &sandbox.get(&["task", "show", "last"])["total_usage"];
    assert_eq!(usage["input_tokens"], 0, "a script uses no model, as a tool does: {usage}");
}

#[test]
fn recorded_script_is_replayed_without_running() {
    let script = "echo x >> ran; cat > /dev/null; echo '{\"output\": 5}'\n";
    let sandbox = home_with("file: s.sh", &[("s.sh", script)]);
    sandbox.polity(&["-q", "run", "flow", "x", "--record", "c.json"]).prints("5\n");
    sandbox.polity(&["-q", "run", "flow", "x", "--replay", "c.json"]).prints("5\n");
    assert_eq!(runs(&sandbox), 1);
    sandbox.polity(&["run", "flow", "y", "--replay", "c.json"]).fails(1, "something else");
}

#[test]
fn task_keeps_the_script_it_was_started_with() {
    let sandbox = HomeSandbox::bare();
    let flow = "name: flow\nentry_point: ask\nnodes:\n  ask: {type: human, question: go on?}\n  \
                s: {type: script, file: steps/s.sh}\nedges: [{from: ask, to: s}]\n";
    sandbox.write("workflows/flow.yaml", flow);
    sandbox.write("steps/s.sh", "echo '\"old\"'\n");
    sandbox.polity(&["run", "flow", "x"]).exits(3);
    sandbox.write("steps/s.sh", "echo '\"new\"'\n");
    sandbox.polity(&["-q", "review", "approve", "last"]).prints("old\n");
    sandbox.polity(&["run", "flow", "x"]).exits(3);
    fs::remove_file(sandbox.file("steps/s.sh")).unwrap();
    sandbox.polity(&["-q", "review", "approve", "last"]).prints("new\n");
}

#[test]
fn private_copy_of_a_script_is_removed() {
    let script = "stat -c %a \"$0\" >&2; echo \"\\\"$0\\\"\"";
    let sandbox = home_with("file: s.sh", &[("s.sh", script)]);
    let run = sandbox.polity(&["-q", "run", "flow", "x"]).exits(0);
    let copy = run.out.trim();
    assert!(copy.ends_with("/s.sh") && copy.contains("/data/runs/"), "{run:?}");
    assert!(!fs::exists(copy).unwrap(), "{copy}");
    assert_eq!(logs(&sandbox), "500\n", "only its owner may read and run it");
}

#[test]
fn script_that_prints_nothing_may_declare_that_as_success() {
    let sandbox = home_with("file: s.sh, empty_output: accept", &[("s.sh", "echo done >&2")]);
    let (task, code) = sandbox.json(&["run", "flow", "x"]);
    assert_eq!((&task["result"], code), (&"".into(), 0));
    let sandbox = home_with("file: s.sh, empty_output: perhaps", &[("s.sh", "true")]);
    sandbox.polity(&["check"]).fails(2, "empty_output");
}

#[test]
fn bad_output_fails_the_step_with_its_reason() {
    for (script, code, error) in [
        ("echo hello", "invalid_output", "the script printed no JSON value"),
        ("echo '{} {}'", "invalid_output", "the script printed no JSON value"),
        ("true", "agent_failed", "it printed nothing; a script prints one JSON value"),
        ("printf '\"a\\377b\"'", "agent_failed", "byte 2 of its stdout is not UTF-8"),
        ("echo wrong >&2; exit 3", "agent_failed", "exit code 3"),
        (
            "echo '{\"state_updates\": {\"score\": 1}}'",
            "invalid_output",
            "the State has no field \"score\"",
        ),
        (
            "echo '{\"state_updates\": {\"metadata.topic.x\": 1}}'",
            "invalid_output",
            "metadata.topic is a text, and has no fields",
        ),
    ] {
        let sandbox = home_with("file: s.sh", &[("s.sh", script)]);
        let run = sandbox.polity(&["run", "flow", "x", "--param", "topic=rain"]).exits(1);
        assert!(run.err.contains(error), "{script}: {run:?}");
        let task = sandbox.get(&["task", "show", "last"]);
        assert_eq!((&task["status"], &task["error_code"]), (&"failed".into(), &code.into()));
        let message = task["error"].as_str().unwrap();
        assert!(message.starts_with("s: ") && message.contains(error), "{message}");
    }
}

#[test]
fn failed_script_shows_the_end_of_its_stderr() {
    let script = "import sys\nprint('lost the table', file=sys.stderr)\nsys.exit(3)\n";
    let sandbox = home_with("file: steps/s.py", &[("steps/s.py", script)]);
    let run = sandbox.polity(&["run", "flow", "x"]).exits(1);
    for part in ["script \"steps/s.py\"", "exit code 3", "lost the table", "correct the script"] {
        assert!(run.err.contains(part), "{part}: {run:?}");
    }
}

#[test]
fn failed_script_says_once_what_happened() {
    let sandbox = home_with("file: steps/s.sh", &[("steps/s.sh", "exit 3")]);
    sandbox.polity(&["run", "flow", "x"]).exits(1);
    let expected = "s: script \"steps/s.sh\": it ended with exit code 3; correct the script, and \
                    retry with --definitions current: a task keeps its own copy";
    assert_eq!(sandbox.get(&["task", "show", "last"])["error"], expected);
}

#[test]
fn hints_for_scripts_name_no_field_of_agents() {
    for script in
        ["true", "kill -9 $$", "head -c 20000000 /dev/zero", "exit 3", "echo 429 >&2; exit 1"]
    {
        let sandbox = home_with("file: s.sh", &[("s.sh", script)]);
        let run = sandbox.polity(&["run", "flow", "x"]).exits(1);
        for field in ["resource_limits", "artifacts", "error_rules", "agent's file"] {
            assert!(!run.err.contains(field), "{field}: {run:?}");
        }
        // A node of a script has this field.
        assert_eq!(run.err.contains("empty_output: accept on the node"), script == "true");
    }
}

#[test]
fn a_megabyte_is_fine_and_more_than_the_limit_is_not() {
    let script = "import json\nprint(json.dumps('x' * 1_000_000))\n";
    let sandbox = home_with("file: s.py", &[("s.py", script)]);
    let run = sandbox.polity(&["-q", "run", "flow", "x"]).exits(0);
    assert_eq!(run.out.len(), 1_000_001);
    let script = "import json\nprint(json.dumps('x' * 20_000_000))\n";
    let sandbox = home_with("file: s.py", &[("s.py", script)]);
    let run = sandbox.polity(&["run", "flow", "x"]).exits(1);
    assert!(run.err.contains("16 MiB"), "{run:?}");
    assert_eq!(sandbox.get(&["task", "show", "last"])["error_code"], "truncated");
}

#[test]
fn hanging_script_is_killed_with_its_tree() {
    let script = "sleep 1000 & echo $! > pid; wait\n";
    let sandbox = home_with("file: s.sh, timeout_seconds: 1", &[("s.sh", script)]);
    let run = sandbox.polity(&["run", "flow", "x"]).exits(5);
    assert!(run.err.contains("timeout_seconds of node s"), "{run:?}");
    let pid = fs::read_to_string(sandbox.file("pid")).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_gone = || match fs::read_to_string(&stat) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    sandbox.wait_until("the child has ended", || is_gone().then_some(()));
}

#[test]
fn check_refuses_scripts_that_cannot_run() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("s.py"), "print(1)").unwrap();
    for (fields, expected) in [
        ("file: steps/missing.py", "the script steps/missing.py cannot be used: there is no such"),
        ("file: ../s.py", "must be a path inside the home"),
        ("file: /etc/passwd.py", "must be a path inside the home"),
        ("file: steps/linked.py", "it is a link to a file outside the home"),
        ("file: steps/folder.py", "this is not a file"),
        ("file: steps/s.rb", "no interpreter is known for \"steps/s.rb\""),
        ("file: steps/empty.py", "it is empty"),
        ("file: steps/large.py", "SCRIPT_BYTES_MAX"),
        ("file: steps/binary.py", "not UTF-8"),
        ("file: a.py, command: [b]", "a file or a command, not both"),
        ("arguments: {}", "a script has a file or a command"),
    ] {
        let sandbox = home_with(fields, &[("steps/empty.py", " \n")]);
        symlink(outside.path().join("s.py"), sandbox.file("steps/linked.py")).unwrap();
        fs::create_dir(sandbox.file("steps/folder.py")).unwrap();
        fs::write(sandbox.file("steps/large.py"), "x".repeat((1 << 20) + 1)).unwrap();
        fs::write(sandbox.file("steps/binary.py"), [0xff, 0xfe]).unwrap();
        let check = sandbox.polity(&["check"]).exits(2);
        let told = format!("{}{}", check.out, check.err);
        assert!(told.contains(expected), "{fields}: {check:?}");
        assert!(told.contains("workflows/flow.yaml:3:"), "{fields}: {check:?}");
        sandbox.polity(&["run", "flow", "x"]).exits(2);
        assert!(sandbox.tasks().is_empty());
    }
    let linked = home_with("file: steps/linked.py", &[("other/s.py", "print(1)")]);
    fs::create_dir(linked.file("steps")).unwrap();
    symlink(linked.file("other/s.py"), linked.file("steps/linked.py")).unwrap();
    linked.polity(&["-q", "run", "flow", "x"]).prints("1\n");
}

#[test]
fn missing_interpreter_is_reported_before_the_task_is_created() {
    let sandbox = home_with("file: s.py", &[("s.py", "print(1)")]);
    let mut command = sandbox.command(&["run", "flow", "x"]);
    let output = crate::sandbox::command_output(&command.env("PATH", "/nowhere").output().unwrap());
    let output = output.exits(2);
    for part in ["the program \"python3\" of script \"s.py\" cannot be run", "install it"] {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    assert!(sandbox.tasks().is_empty());
    let sandbox = home_with("command: [no_such_program]", &[]);
    sandbox.polity(&["run", "flow", "x"]).fails(2, "no_such_program");
}

#[test]
fn agent_file_cannot_be_a_script() {
    let sandbox = HomeSandbox::bare();
    sandbox.write("agents/a.yaml", "{name: a, kind: script, file: a.py}");
    sandbox.polity(&["check"]).fails(2, "a script is a step of a workflow");
}

#[test]
fn secrets_of_a_script_are_masked() {
    let fields = "file: s.sh, envs: {API_KEY: '${MY_KEY}'}";
    let sandbox = home_with(fields, &[("s.sh", "echo \"\\\"the key is $API_KEY\\\"\"")]);
    let secret = "kd83jfu27dhs92jd";
    let run = |args: &[&str]| {
        let output = sandbox.command(args).env("MY_KEY", secret).output().unwrap();
        crate::sandbox::command_output(&output).exits(0)
    };
    let told = run(&["-q", "run", "flow", "x"]);
    assert!(told.out.starts_with("the key is ") && !told.out.contains(secret), "{told:?}");
    for file in ["data/polity.db", "data/polity.db-wal"] {
        let bytes = fs::read(sandbox.file(file)).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{file}");
    }
    sandbox.write(
        "workflows/flow.yaml",
        "name: flow\nentry_point: s\nnodes:\n  s: {type: script, file: s.sh, envs: {API_KEY: \
         sk-proj-Zk8Qw3Lr7Tn2Vb9Xc4Md}}\n",
    );
    sandbox.polity(&["check"]).fails(2, "looks like a secret");
}

#[test]
fn transient_failures_are_retried_only_if_the_script_is_idempotent() {
    let script = "echo x >> ran\n[ $(wc -l < ran) -gt 1 ] || { echo 'error 429' >&2; exit 1; }\n\
                  wc -l < ran";
    let sandbox = home_with("file: s.sh, idempotent: true", &[("s.sh", script)]);
    sandbox.polity(&["-q", "run", "flow", "x"]).prints("2\n");
    let sandbox = home_with("file: s.sh", &[("s.sh", script)]);
    sandbox.polity(&["run", "flow", "x"]).exits(1);
    let sandbox = home_with("file: s.sh, idempotent: true, max_retries: 0", &[("s.sh", script)]);
    sandbox.polity(&["run", "flow", "x"]).exits(1);
}

/// Kills Polity while the script runs. The script goes on once there is a file `go`.
fn killed_in_script(fields: &str) -> (HomeSandbox, String) {
    let script = "echo x >> ran; until [ -e go ]; do sleep 0.02; done; echo '\"done\"'\n";
    let sandbox = home_with(&format!("file: s.sh{fields}"), &[("s.sh", script)]);
    let mut child = sandbox.start(&["run", "flow", "x"]);
    sandbox
        .wait_until("the script runs", || fs::exists(sandbox.file("ran")).unwrap().then_some(()));
    let id = sandbox.wait_until("the task runs", || {
        let tasks = sandbox.tasks();
        let flow = tasks.iter().find(|task| task["assigned_agent"] == "flow")?;
        Some(flow["id"].as_str().unwrap().to_owned())
    });
    kill(&mut child);
    sandbox.write("go", "");
    // An edit of the file does not reach the task.
    sandbox.write("s.sh", "echo '\"edited\"'\n");
    (sandbox, id)
}

fn runs(sandbox: &HomeSandbox) -> usize {
    fs::read_to_string(sandbox.file("ran")).unwrap().lines().count()
}

#[test]
fn kill_in_a_script_asks_a_person_unless_it_is_idempotent() {
    let (sandbox, id) = killed_in_script("");
    sandbox.polity(&["task", "resume", &id]).exits(3);
    assert_eq!(runs(&sandbox), 1);
    let reviews = sandbox.get(&["review", "list"]);
    let part = reviews[0]["task_id"].as_str().unwrap();
    sandbox.polity(&["-q", "review", "approve", part, "--skip-with", "{\"output\": 7}"]).exits(0);
    let task = sandbox.get(&["task", "show", &id]);
    assert_eq!((&task["status"], &task["result"]), (&"completed".into(), &"7".into()), "{task:#}");
    assert_eq!(runs(&sandbox), 1);

    let (sandbox, id) = killed_in_script(", idempotent: true");
    sandbox.polity(&["-q", "task", "resume", &id]).exits(0).out_has("done");
    assert_eq!(runs(&sandbox), 2);
}

#[test]
fn archive_carries_the_script_and_import_shows_it() {
    let (sandbox, id) = killed_in_script(", idempotent: true");
    let out = sandbox.file("out");
    let out = out.to_str().unwrap();
    sandbox.polity(&["task", "export", &id, "--out", out]).exits(0);
    let to = HomeSandbox::bare();
    let told = to.polity(&["task", "import", out]).exits(0);
    for part in ["sh s.sh", "until [ -e go ]", "--trust"] {
        assert!(told.out.contains(part), "{part}: {told:?}");
    }
    to.polity(&["task", "resume", &id]).fails(2, "until [ -e go ]");
    to.polity(&["-q", "task", "resume", &id, "--trust"]).exits(0).out_has("done");
    assert_eq!(runs(&sandbox), 2, "it goes on in the folder in which it was started");
}

const TYPESCRIPT: &str = "import { readFileSync } from 'node:fs';\n\
    const given: { input: string } = JSON.parse(readFileSync(0, 'utf8'));\n\
    console.log(JSON.stringify(given.input.length));\n";

#[test]
fn typescript_runs_with_tsx_of_the_home_if_node_is_too_old() {
    let sandbox = home_with("file: s.ts", &[("s.ts", TYPESCRIPT)]);
    symlink(peers::typescript().parent().unwrap(), sandbox.file("node_modules")).unwrap();
    sandbox.polity(&["-q", "run", "flow", "rain"]).prints("4\n");
}

/// A folder with programs that print how they are started, before the folders of `sh` and `env`.
fn path_with(programs: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, version) in programs {
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo {version}; exit; fi\n\
             echo \"\\\"{name} $(echo \"$*\" | sed 's#/.*/##')\\\"\"\n"
        );
        fs::write(folder.path().join(name), text).unwrap();
        fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o755)).unwrap();
    }
    for name in ["sh", "sed"] {
        symlink(format!("/bin/{name}"), folder.path().join(name)).unwrap();
    }
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn typescript_is_started_as_the_found_version_needs() {
    let strip = "node --experimental-strip-types --disable-warning=ExperimentalWarning s.ts\n";
    let native = "node --disable-warning=ExperimentalWarning s.ts\n";
    for (programs, expected) in [
        (&[("node", "v22.7.0")][..], strip),
        (&[("node", "v22.17.1")], strip),
        (&[("node", "v22.18.0")], native),
        (&[("node", "v23.5.0")], strip),
        (&[("node", "v23.6.0")], native),
        (&[("node", "v24.0.0"), ("tsx", "1")], native),
        (&[("node", "v22.6.0"), ("tsx", "1")], "tsx s.ts\n"),
        (
            &[("node", "v20.20.2"), ("deno", "2"), ("bun", "1")],
            "deno run --quiet --allow-all s.ts\n",
        ),
        (&[("bun", "1")], "bun run s.ts\n"),
    ] {
        let sandbox = home_with("file: s.ts", &[("s.ts", TYPESCRIPT)]);
        let (_folder, path) = path_with(programs);
        let output = sandbox.command(&["-q", "run", "flow", "x"]).env("PATH", path).output();
        let output = crate::sandbox::command_output(&output.unwrap()).exits(0);
        assert_eq!(output.out, expected, "{programs:?}");
    }
}

#[test]
fn missing_typescript_names_the_found_and_the_needed_versions() {
    for (programs, expected) in
        [(&[("node", "v20.20.2")][..], "only Node.js v20.20.2"), (&[], "none of them")]
    {
        let sandbox = home_with("file: s.ts", &[("s.ts", TYPESCRIPT)]);
        let (_folder, path) = path_with(programs);
        let output = sandbox.command(&["run", "flow", "x"]).env("PATH", path).output();
        let output = crate::sandbox::command_output(&output.unwrap());
        output.fails(
            1,
            &format!(
                "a .ts script needs Node.js 22.7 or newer, tsx, deno or bun, and this machine has \
                 {expected}: install one"
            ),
        );
    }
}

#[test]
fn javascript_step_imports_what_is_beside_it() {
    if Command::new("node").arg("--version").output().is_err() {
        return;
    }
    let script = "const { double } = require('rules');\n\
                  const given = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));\n\
                  console.log(double(given.arguments.n));\n";
    let rules = "exports.double = (n) => 2 * n;\n";
    let files = [("steps/s.js", script), ("steps/rules.js", rules)];
    let sandbox = home_with("file: steps/s.js, arguments: {n: 21}", &files);
    sandbox.polity(&["-q", "run", "flow", "x"]).prints("42\n");
}

#[test]
fn retry_runs_a_script_again_that_printed_no_output() {
    let script = "echo run >> ran; test -e ok && echo '\"fine\"' || echo 'not json {'";
    let command = json!(["sh", "-c", script]).to_string();
    let sandbox = home_with(&format!("command: {command}"), &[]);
    sandbox.write(
        "workflows/each.yaml",
        &format!(
            "name: each\nentry_point: m\nnodes:\n  m: {{type: map, over: \"{{{{ [1] }}}}\", as: item, \
             node: {{type: script, command: {command}}}}}\n"
        ),
    );
    for workflow in ["flow", "each"] {
        sandbox.polity(&["run", workflow, "x"]).fails(1, "invalid_output");
        sandbox.polity(&["task", "retry", "last"]).fails(1, "invalid_output");
        sandbox.write("ok", "");
        sandbox.polity(&["task", "retry", "last"]).exits(0).out_has("fine");
        fs::remove_file(sandbox.file("ok")).unwrap();
    }
    assert_eq!(fs::read_to_string(sandbox.file("ran")).unwrap().lines().count(), 6);
}

//! `--record` and `--replay` of CLI agents: a replay starts no program.

use std::fs;

use serde_json::json;

use crate::sandbox::{HomeSandbox, command_output};

const TAPE: &str = "tape.json";

fn read_cassette(sandbox: &HomeSandbox) -> String {
    fs::read_to_string(sandbox.file(TAPE)).unwrap()
}

/// Returns the number of real runs.
fn runs(sandbox: &HomeSandbox) -> usize {
    fs::read_to_string(sandbox.file("ran")).unwrap_or_default().lines().count()
}

#[test]
fn replay_does_not_run_the_cli_agent() {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("writer", "echo x >> ran; echo \"about $(cat)\"; echo and more", "");
    let live = sandbox.polity(&["run", "writer", "the sea", "--record", TAPE]);
    assert_eq!((live.code, live.out.as_str()), (0, "about the sea\nand more\n"), "{live:?}");
    assert!(live.err.contains("0 tool calls and 1 program run in tape.json"), "{live:?}");
    sandbox.write_shell_agent("writer", "echo x >> ran; echo something else", "");
    for input in [&["the sea"][..], &[]] {
        let replayed =
            sandbox.polity(&[&["run", "writer"], input, &["--replay", TAPE][..]].concat());
        assert_eq!((replayed.code, &replayed.out), (0, &live.out), "{replayed:?}");
    }
    assert_eq!(runs(&sandbox), 1);
    let differs = sandbox.polity(&["run", "writer", "the hills", "--replay", TAPE]);
    differs.fails(1, "  - input: the sea\n  + input: the hills");
    assert_eq!(runs(&sandbox), 1);
    let first = read_cassette(&sandbox);
    sandbox.write_shell_agent("writer", "echo x >> ran; echo \"about $(cat)\"; echo and more", "");
    sandbox.polity(&["run", "writer", "the sea", "--record", TAPE]);
    assert_eq!(read_cassette(&sandbox), first, "the same run gives the same file");
}

#[test]
fn replay_repeats_failures_and_timeouts() {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("bad", "echo no use >&2; exit 3", ", max_retries: 0");
    sandbox.write_shell_agent("slow", "sleep 1000", ", timeout: 1");
    let flaky =
        "echo x >> ran; [ -e tried ] && echo ok || { touch tried; echo 'error 429' >&2; exit 1; }";
    sandbox.write_shell_agent("flaky", flaky, ", idempotent: true");
    for (name, code) in [("bad", 1), ("slow", 5), ("flaky", 0)] {
        let live = sandbox.polity(&["run", name, "x", "--record", TAPE]).exits(code);
        let replayed = sandbox.polity(&["run", name, "--replay", TAPE]);
        assert_eq!((replayed.code, &replayed.out), (code, &live.out), "{replayed:?}");
        let error = |output: &str| {
            output.lines().find(|line| line.starts_with("error: ")).map(str::to_owned)
        };
        assert_eq!(error(&replayed.err), error(&live.err));
        fs::remove_file(sandbox.file(TAPE)).unwrap();
    }
    assert_eq!(runs(&sandbox), 2, "two live attempts and no run in the replay");
}

/// CLI agents as parallel sub-agents and as a workflow node.
#[test]
fn replay_covers_cli_agents_in_sub_agents_and_workflows() {
    let sandbox = HomeSandbox::bare();
    let script = "echo x >> ran; echo \"from $(cat)\"";
    sandbox.write_shell_agent("fetch", script, ", access_type: read-only");
    sandbox.write_scripted_agent("boss", ", sub_agents: [fetch]");
    let calls = ["one", "two", "three"]
        .map(|part| json!({"tool": "agent/fetch", "arguments": {"task_description": part}}));
    sandbox.write(
        "scripts/boss.yaml",
        &json!({"rules": [{"when": "^go$", "role": "user", "tool_calls": calls},
            {"when": "(?s)(.*)", "role": "tool", "reply": "got $1"}]})
        .to_string(),
    );
    sandbox.write(
        "workflows/twice.yaml",
        "name: twice\nentry_point: first\nnodes:\n  first: {type: agent, agent: fetch, input: '{{ input }}'}\n  \
         then: {type: agent, agent: fetch, input: '{{ last }} again'}\nedges: [{from: first, to: then}]\n",
    );
    for (name, input, out, ran) in
        [("boss", "go", "got from three\n", 3), ("twice", "here", "from from here again\n", 5)]
    {
        sandbox.polity(&["run", name, input, "--record", TAPE]).prints(out);
        assert_eq!(runs(&sandbox), ran);
        let replayed = sandbox.polity(&["run", name, "--replay", TAPE]).prints(out);
        assert!(!replayed.err.contains("that the run did not use"), "{replayed:?}");
        assert_eq!(runs(&sandbox), ran);
        fs::remove_file(sandbox.file(TAPE)).unwrap();
    }
}

#[test]
fn cassette_contains_no_secrets_of_cli_agents() {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("teller", "echo \"$KEY $(cat)\"", ", envs: {KEY: '${MY_CANARY}'}");
    let key = "canary-0123456789abcdef";
    let input = format!("use {key} with password=canary-hunter22");
    let run = |input: &[&str], more: &[&str]| {
        let args = [&["run", "teller"], input, more].concat();
        command_output(&sandbox.command(&args).env("MY_CANARY", key).output().unwrap())
    };
    let live = run(&[&input], &["--record", TAPE]).exits(0);
    let recorded = read_cassette(&sandbox);
    assert!(!recorded.contains("canary"), "{recorded}");
    // With the secrets set, the masked input still matches. Without `INPUT`, replay uses the
    // recorded one.
    run(&[&input], &["--replay", TAPE]).prints(&live.out);
    sandbox.polity(&["run", "teller", "--replay", TAPE]).prints(&live.out);
}

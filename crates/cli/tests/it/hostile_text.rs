//! Text from elsewhere never reaches a terminal as a command.

use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::sandbox::HomeSandbox;
use crate::tools;

/// Sets a title, clears the screen, paints, moves the cursor, turns and hides text.
const HOSTILE: &str =
    "X\u{1b}]0;pwned\u{7}\u{1b}[2J\u{1b}[38;5;9m\u{9b}1A\u{202e}\u{2067}\u{200b}\rY";

/// The escape sequences that Polity itself prints.
const OWN: [&str; 8] = [
    "\r\u{1b}[2K",
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[2m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[36m",
];

/// Runs the program on a terminal of its own, and returns all that it printed there.
fn on_terminal(sandbox: &HomeSandbox, args: &[&str]) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let copy = || Stdio::from(slave.try_clone().unwrap());
    let mut command = sandbox.command(args);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env("POLITY_USER", HOSTILE);
    let mut child = command.stdin(Stdio::null()).stdout(copy()).stderr(copy()).spawn().unwrap();
    // The child holds the last copies, so that reading ends with it.
    drop((command, slave));
    let (mut printed, mut terminal) = (Vec::new(), File::from(master));
    let mut bytes = [0; 4096];
    // A terminal without a program gives an error instead of the end.
    while let Ok(read @ 1..) = terminal.read(&mut bytes) {
        printed.extend_from_slice(&bytes[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(printed).unwrap()
}

/// Checks that only Polity's own styles control the terminal.
#[track_caller]
fn assert_harmless(args: &[&str], printed: &str) {
    let mut text = printed.replace("\r\n", "\n");
    for own in OWN {
        text = text.replace(own, "");
    }
    let is_bad = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(is_bad), "{args:?} printed {text:?}");
}

/// Runs a command on a terminal, and its JSON form in a pipe; both are harmless.
#[track_caller]
fn check(sandbox: &HomeSandbox, args: &[&str]) -> String {
    let printed = on_terminal(sandbox, args);
    assert_harmless(args, &printed);
    let json = [args, &["--json"]].concat();
    let output = sandbox.command(&json).env("POLITY_USER", HOSTILE).output().unwrap();
    for stream in [output.stdout, output.stderr] {
        assert_harmless(&json, &String::from_utf8(stream).unwrap());
    }
    printed
}

/// A text in the quotes of YAML.
fn quoted(text: &str) -> String {
    json!(text).to_string().replace('\u{9b}', "\\u009b")
}

#[test]
fn escape_sequences_in_definitions_reach_no_terminal() {
    let sandbox = HomeSandbox::new();
    let text = quoted(HOSTILE);
    sandbox.write(
        "agents/evil.yaml",
        &format!(
            "{{name: evil, kind: llm, role: {text}, system_prompt: {text}, \
             llm_config: {{provider: scripted, script: greeter}}}}"
        ),
    );
    sandbox.write(
        "workflows/flow.yaml",
        &format!(
            "{{name: flow, entry_point: ask, nodes: {{ask: {{type: human, question: {text}}}}}}}"
        ),
    );
    assert!(check(&sandbox, &["agent", "list"]).contains("X\u{fffd}]0;pwned"));
    check(&sandbox, &["agent", "show", "evil"]);
    check(&sandbox, &["agent", "status", "evil"]);
    check(&sandbox, &["workflow", "list"]);
    check(&sandbox, &["workflow", "show", "flow"]);
    check(&sandbox, &["workflow", "graph", "flow"]);
    check(&sandbox, &["run", "flow", HOSTILE]);
    for command in [["review", "list"].as_slice(), &["review", "show", "last"]] {
        assert!(check(&sandbox, command).contains("pwned"), "{command:?}");
    }
    check(&sandbox, &["review", "approve", "last", "--message", HOSTILE]);
    check(&sandbox, &["task", "checkpoints", "last"]);
    check(&sandbox, &["task", "trace", "last"]);
}

#[test]
fn escape_sequences_in_a_foreign_home_reach_no_terminal_of_check() {
    let sandbox = HomeSandbox::new();
    let text = quoted(HOSTILE);
    sandbox.write("agents/odd.yaml", &format!("{{name: odd, {text}: 1, kind: {text}}}"));
    sandbox.write("agents/llm.yaml", &format!("{{name: llm, kind: llm, role: 1, {text}: {text}}}"));
    sandbox.write(&format!("agents/{HOSTILE}.yaml"), "{");
    sandbox.write("charts/c.yaml", &format!("{{name: {text}, states: {{{text}: {text}}}}}"));
    sandbox.write("polity.yaml", &format!("{{{text}: 1}}"));
    assert!(check(&sandbox, &["check"]).contains("pwned"));
    for command in [["agent", "list"].as_slice(), &["chart", "list"], &["run", "odd", "x"]] {
        check(&sandbox, command);
    }
}

#[test]
fn escape_sequences_in_inputs_and_results_reach_no_terminal() {
    let sandbox = HomeSandbox::new();
    sandbox.write("evil.txt", HOSTILE);
    sandbox.write_shell_agent("echo", "cat evil.txt; cat evil.txt >&2", "");
    sandbox.write_shell_agent("fails", "cat evil.txt >&2; exit 3", "");
    sandbox.write_shell_agent(
        "makes",
        "printf x > \"$(cat evil.txt)\"; echo made",
        ", artifacts: ['X*']",
    );
    for run in [
        ["run", "greeter", HOSTILE].as_slice(),
        &["run", "echo", HOSTILE, "--param", &format!("p={HOSTILE}"), "--class", HOSTILE],
        &["-v", "run", "fails", HOSTILE],
        &["run", "makes", HOSTILE],
    ] {
        check(&sandbox, run);
        for command in [
            ["task", "show", "last"].as_slice(),
            &["task", "trace", "last"],
            &["task", "list"],
            &["task", "checkpoints", "last"],
            &["task", "watch", "last"],
            &["execution", "list"],
            &["session", "list"],
            &["gc", "--dry-run"],
        ] {
            check(&sandbox, command);
        }
    }
    let executions = sandbox.get(&["execution", "list"]);
    for execution in executions.as_array().unwrap() {
        check(&sandbox, &["execution", "show", execution["id"].as_str().unwrap()]);
    }
    let tasks = sandbox.tasks();
    let id = |index: usize| tasks[index]["id"].as_str().unwrap();
    assert!(check(&sandbox, &["task", "diff", id(0), id(2)]).contains("pwned"));
}

#[test]
fn escape_sequences_in_tool_results_reach_no_terminal() {
    let sandbox = tools::home("", "{}", &[]);
    tools::calls(&sandbox, &json!([{"tool": "kit/echo", "arguments": {"text": HOSTILE}}]));
    check(&sandbox, &["tool", "list"]);
    let call = ["tool", "call", "kit/echo", "--arg", &format!("text={HOSTILE}")];
    assert!(check(&sandbox, &call).contains("pwned"));
    // A pipe gets the exact bytes of a result.
    assert!(sandbox.polity(&call).out.contains(HOSTILE));
    check(&sandbox, &["run", "worker", "go"]);
    check(&sandbox, &["task", "trace", "last"]);
}

#[test]
fn escape_sequences_in_arguments_reach_no_terminal() {
    let sandbox = HomeSandbox::new();
    let named = format!("--{HOSTILE}");
    for args in [
        [HOSTILE].as_slice(),
        &["task", HOSTILE],
        &["task", "list", &named],
        &["task", "list", "--status", HOSTILE],
        &["task", "show", HOSTILE],
        &["run", HOSTILE, "x"],
        &["run", "greeter", "x", "--param", HOSTILE],
        &["--home", HOSTILE, "task", "list"],
        &["task", "import", HOSTILE],
        &["run", "greeter", "x", "--replay", HOSTILE],
        &["restore", HOSTILE],
        &["schema", HOSTILE],
    ] {
        check(&sandbox, args);
    }
}

#[test]
fn result_in_a_pipe_is_exact() {
    let sandbox = HomeSandbox::new();
    sandbox.write("evil.txt", HOSTILE);
    sandbox.write_shell_agent("echo", "cat evil.txt", "");
    let file = sandbox.file("result");
    let mut command = sandbox.command(&["-q", "run", "echo", "x"]);
    assert!(command.stdout(File::create(&file).unwrap()).status().unwrap().success());
    assert_eq!(fs::read_to_string(file).unwrap(), format!("{HOSTILE}\n"));
    assert_harmless(&["run"], &on_terminal(&sandbox, &["-q", "run", "echo", "x"]));
}

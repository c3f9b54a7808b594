//! Commands print the same without a server, beside one that holds the home, and with `--server`.

use regex::Regex;

use super::client::ServerProcess;
use crate::sandbox::{CommandOutput, HomeSandbox, command_output};

/// A workflow with an agent, a question to a person and a condition.
const GATE: &str = "
name: gate
entry_point: draft
nodes:
  draft: {type: agent, agent: greeter}
  ask: {type: human, question: \"Publish {{ last }}\"}
  done: {type: condition, expression: \"'published by ' + routing_key\"}
edges: [{from: draft, to: ask}, {from: ask, to: {approve: done, modify: done}}]
";

/// The rules of an agent whose first answer uses up a small budget.
const SPENDER: &str = "
rules:
  - {when: ^go$, tool_calls: [{tool: clock/now}], usage: {input_tokens: 30, output_tokens: 1}}
default: {reply: never}
";

/// The same home three times: alone, with a server, and as seen from elsewhere.
struct Sides<'h> {
    alone: &'h HomeSandbox,
    served: &'h HomeSandbox,
    elsewhere: HomeSandbox,
    server: ServerProcess<'h>,
    patterns: Vec<(Regex, &'static str)>,
}

impl<'h> Sides<'h> {
    fn new(alone: &'h HomeSandbox, served: &'h HomeSandbox) -> Self {
        let patterns = [
            ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (r"\b[0-9a-f]{8}\b", "ID"),
            (r"\d\d:\d\d:\d\dZ", "TIME"),
            (r"process \d+", "process NUMBER"),
            (r"\d+ ms|\d+\.\d s( CPU)?|\d+ MB", "AMOUNT"),
            (r#""(\w+_ms|execution_time|process_id|cpu_\w+|memory_\w+|peak_\w+)": [\d.]+"#, "$1"),
            (" +", " "),
            (r"(?m) $", ""),
        ];
        let patterns =
            patterns.map(|(pattern, name)| (Regex::new(pattern).unwrap(), name)).into_iter();
        Self {
            alone,
            served,
            elsewhere: HomeSandbox::empty(),
            server: ServerProcess::start(served),
            patterns: patterns.collect(),
        }
    }

    /// The output of a command on every side, without what differs between two runs.
    fn outputs(&self, args: &[&str]) -> [(i32, String, String); 3] {
        let url = format!("http://{}", self.server.address());
        let mut far = self.elsewhere.command(&[args, &["--server", &url]].concat());
        let [alone, near] = [self.alone.polity(args), self.served.polity(args)];
        let far = command_output(&far.env("POLITY_TOKEN", &self.server.token).output().unwrap());
        let outputs = [alone, near, far];
        outputs.map(|CommandOutput { code, out, err, .. }| {
            (code, self.normalised(&out), self.normalised(&err))
        })
    }

    fn normalised(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for home in [self.alone, self.served] {
            let root = home.path().canonicalize().unwrap();
            text = text.replace(home.path().to_str().unwrap(), "HOME");
            text = text.replace(root.to_str().unwrap(), "HOME");
        }
        for (pattern, name) in &self.patterns {
            text = pattern.replace_all(&text, *name).into_owned();
        }
        text
    }

    /// Runs a command on all sides and expects the same output. Returns it.
    #[track_caller]
    fn same(&self, code: i32, args: &[&str]) -> (String, String) {
        let [alone, beside, far] = self.outputs(args);
        assert_eq!(alone.0, code, "{args:?}: {alone:?}");
        assert_eq!(alone, beside, "{args:?} beside a server");
        assert_eq!(alone, far, "{args:?} with --server");
        (alone.1, alone.2)
    }

    /// Runs a command as text and as JSON.
    #[track_caller]
    fn same_in_both_forms(&self, code: i32, args: &[&str]) {
        self.same(code, args);
        self.same(code, &[args, &["--json"]].concat());
    }
}

fn home() -> HomeSandbox {
    let home = HomeSandbox::new();
    home.write("workflows/gate.yaml", GATE);
    home.write_scripted_agent("spender", ", max_retries: 0");
    home.write("scripts/spender.yaml", SPENDER);
    home.write_shell_agent("broken", "echo no >&2; exit 3", ", max_retries: 0");
    home.write_shell_agent("late", "exec sleep 600", ", max_retries: 0, timeout: 1");
    home.write_shell_agent("echo", "cat; echo \" $EXTRA $PWD\"", "");
    home
}

#[test]
fn runs_print_the_same() {
    let (alone, served) = (home(), home());
    let sides = Sides::new(&alone, &served);
    let (out, err) = sides.same(0, &["run", "greeter", "Ada"]);
    assert_eq!(out, "Hello, Ada.\n");
    for step in ["created", "started", "model call", "completed"] {
        assert!(err.contains(step), "{err}");
    }
    sides.same(0, &["run", "greeter", "Ada", "--json", "--param", "depth=3", "--class", "debug"]);
    sides.same(0, &["--quiet", "run", "greeter", "Ada", "--retention-days", "2"]);
    sides.same(0, &["--verbose", "run", "greeter", "overload"]);
    sides.same(0, &["run", "echo", "hi", "--env", "EXTRA=there"]);
    sides.same_in_both_forms(1, &["run", "greeter", "forbidden"]);
    sides.same_in_both_forms(1, &["run", "broken", "x"]);
    sides.same(5, &["run", "late", "x"]);
    let (_, err) = sides.same(6, &["run", "spender", "go", "--max-tokens", "20"]);
    assert!(err.contains("budget"), "{err}");
    sides.same_in_both_forms(2, &["run", "greter", "Ada"]);
    sides.same_in_both_forms(2, &["run", "greeter", ""]);
    sides.same(2, &["run", "greeter"]);
    sides.same(2, &["run", "greeter", "x", "--param", "nonsense"]);
    sides.same(2, &["run", "greeter", "x", "--env", "UNSET_VARIABLE_OF_THIS_TEST"]);
    let (_, err) = sides.same(3, &["run", "gate", "Ada"]);
    assert!(err.contains("waiting for a person"), "{err}");
}

#[test]
fn tasks_are_shown_the_same() {
    let (alone, served) = (home(), home());
    let sides = Sides::new(&alone, &served);
    sides.same_in_both_forms(0, &["task", "list"]);
    sides.same_in_both_forms(1, &["task", "show", "last"]);
    // Two of the sides share a home, which has the same tasks as the other one.
    for home in [&alone, &served] {
        home.polity(&["run", "greeter", "Ada"]).exits(0);
        home.polity(&["run", "broken", "x"]).exits(1);
        home.polity(&["run", "gate", "Bob"]).exits(3);
    }
    for args in [
        &["task", "list"][..],
        &["task", "list", "--parts"],
        &["task", "list", "--parent", "last"],
        &["task", "list", "--limit", "2"],
        &["task", "list", "--status", "failed", "--status", "completed"],
        &["task", "list", "--agent", "nobody"],
        &["task", "show", "last"],
        &["task", "trace", "last"],
        &["task", "checkpoints", "last"],
        &["task", "show", "last", "--at", "0"],
        &["review", "list"],
        &["review", "show", "last"],
        &["agent", "list"],
        &["agent", "show", "greeter"],
        &["agent", "show", "late"],
        &["agent", "status"],
        &["agent", "status", "late"],
        &["workflow", "list"],
        &["workflow", "show", "gate"],
        &["workflow", "graph", "gate"],
        &["workflow", "graph", "gate", "--format", "dot"],
        &["execution", "list"],
        &["execution", "list", "--agent", "broken", "--limit", "1"],
        &["cost"],
        &["cost", "--by", "agent"],
    ] {
        sides.same_in_both_forms(0, args);
    }
    for args in [&["task", "watch", "last"][..], &["task", "wait", "last"]] {
        sides.same_in_both_forms(3, args);
    }
    for args in [
        &["task", "show", "last", "--at", "99"][..],
        &["task", "show", "nothing"],
        &["task", "show", "00000000-0000-4000-8000-000000000000"],
        &["execution", "show", "ffffffff-ffff"],
    ] {
        sides.same_in_both_forms(1, args);
    }
    for args in
        [&["task", "show", ""][..], &["agent", "show", "nobody"], &["agent", "show", "gate"]]
    {
        sides.same_in_both_forms(2, args);
    }
    // The newest execution, by its own id on each side.
    let shown = [&alone, &served].map(|home| {
        let executions = home.get(&["execution", "list"]);
        let id = executions[0]["id"].as_str().unwrap();
        let url = format!("http://{}", sides.server.address());
        let args = ["execution", "show", id];
        let near = home.polity(&args).exits(0).out;
        let mut far = sides.elsewhere.command(&[&args[..], &["--server", &url]].concat());
        let far = command_output(&far.env("POLITY_TOKEN", &sides.server.token).output().unwrap());
        (sides.normalised(&near), far.code, sides.normalised(&far.out))
    });
    assert_eq!(shown[0].0, shown[1].0);
    assert_eq!((0, &shown[1].0), (shown[1].1, &shown[1].2));
}

#[test]
fn reviews_are_answered_the_same() {
    let (alone, served) = (home(), home());
    let sides = Sides::new(&alone, &served);
    // Each side answers a review of its own: two of the three share a home.
    let prepare = || {
        alone.polity(&["-q", "run", "gate", "Ada"]).exits(3);
        served.polity(&["-q", "run", "gate", "Ada"]).exits(3);
    };
    let answer = |args: &[&str]| {
        prepare();
        let [alone, beside] = [&alone, &served].map(|home| {
            let CommandOutput { code, out, err, .. } = home.polity(args);
            (code, sides.normalised(&out), sides.normalised(&err))
        });
        assert_eq!(alone, beside, "{args:?} beside a server");
        prepare();
        let url = format!("http://{}", sides.server.address());
        let mut far = sides.elsewhere.command(&[args, &["--server", &url]].concat());
        far.env("POLITY_TOKEN", &sides.server.token);
        let far = command_output(&far.output().unwrap());
        assert_eq!(alone, (far.code, sides.normalised(&far.out), sides.normalised(&far.err)));
        alone
    };
    let (code, out, err) = answer(&["review", "approve", "last"]);
    assert_eq!((code, out.as_str()), (0, "published by approve\n"));
    // Steps before the answer are not shown again.
    assert!(err.contains("done") && !err.contains("draft"), "{err}");
    let (code, _, err) = answer(&["review", "reject", "last", "--message", "never"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("never"), "{err}");
    let (code, out, _) = answer(&["review", "modify", "last", "--set", "metadata.a=1", "--json"]);
    assert_eq!(code, 0, "{out}");
    let (code, ..) = answer(&[
        "review",
        "approve",
        "last",
        "--checkpoint",
        "00000000-0000-4000-8000-000000000000",
    ]);
    assert_eq!(code, 1);
    let (code, ..) = answer(&["review", "approve", "last", "--skip-with", "x"]);
    assert_eq!(code, 2);
    // The reviewer is the person, as without a server.
    let by = |home: &HomeSandbox| {
        home.polity(&["-q", "run", "gate", "Eve"]).exits(3);
        home.polity(&["-q", "review", "approve", "last"]).exits(0);
        let checkpoints = home.get(&["task", "checkpoints", "last"]);
        let all = checkpoints.as_array().unwrap().iter();
        let mut people = all.filter_map(|one| one["human_feedback"]["by"].as_str());
        people.next_back().unwrap().to_owned()
    };
    assert_eq!(by(&alone), by(&served));
}

#[test]
fn tasks_and_agents_are_controlled_the_same() {
    let (alone, served) = (home(), home());
    let sides = Sides::new(&alone, &served);
    sides.same(0, &["run", "greeter", "Ada"]);
    sides.same_in_both_forms(1, &["task", "cancel", "last"]);
    sides.same_in_both_forms(1, &["task", "retry", "last"]);
    sides.same(0, &["task", "fork", "last", "--from", "0"]);
    sides.same_in_both_forms(1, &["task", "fork", "last", "--from", "7"]);
    sides.same(2, &["task", "fork", "last", "--from", "0", "--set", "nonsense=1"]);
    sides.same(1, &["review", "approve", "last"]);
    // The sides of the server share an agent, so the second of them changes nothing.
    let toggled = sides.outputs(&["agent", "disable", "greeter", "--message", "holiday"]);
    assert_eq!(toggled[0].1, "agent greeter is disabled\n");
    assert_eq!(toggled[1], toggled[0]);
    assert_eq!(toggled[2].1, "agent greeter was already disabled\n");
    sides.same_in_both_forms(2, &["run", "greeter", "Ada"]);
    sides.same(0, &["agent", "show", "greeter"]);
    let toggled = sides.outputs(&["agent", "enable", "greeter"]);
    assert_eq!(toggled[1], toggled[0]);
    sides.same(0, &["run", "greeter", "Ada"]);
    // A failed task has one retry, so each side retries its own.
    for home in [&alone, &served] {
        home.polity(&["run", "broken", "x"]).exits(1);
    }
    let retried = [&alone, &served].map(|home| {
        let CommandOutput { code, out, err, .. } = home.polity(&["task", "retry", "last"]);
        (code, sides.normalised(&out), sides.normalised(&err))
    });
    assert_eq!(retried[0], retried[1]);
    assert_eq!(retried[0].0, 1);
}

#[test]
fn detached_task_goes_on_at_the_server() {
    let home = home();
    let server = ServerProcess::start(&home);
    let output = home.polity(&["run", "greeter", "think", "--detach"]).exits(0);
    let id = output.out.trim();
    home.polity(&["task", "wait", id]).prints("thought\n");
    let task = home.get(&["run", "greeter", "think", "--detach"]);
    let url = format!("http://{}", server.address());
    let elsewhere = HomeSandbox::empty();
    let id = task["id"].as_str().unwrap();
    let mut wait = elsewhere.command(&["task", "wait", id, "--server", &url]);
    wait.env("POLITY_TOKEN", &server.token);
    command_output(&wait.output().unwrap()).prints("thought\n");
    let mut wait = elsewhere.command(&["task", "wait", id]);
    wait.env("POLITY_TOKEN", &server.token).env("POLITY_SERVER", &url);
    command_output(&wait.output().unwrap()).prints("thought\n");
}

#[test]
fn local_command_works_in_its_own_process() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("where", "echo \"[$PLACE]\"", ", env_allow: [PLACE]");
    let _server = ServerProcess::start(&home);
    let run = |flags: &[&str]| {
        let args = [&["--quiet", "run", "where", "x"][..], flags].concat();
        command_output(&home.command(&args).env("PLACE", "here").output().unwrap())
    };
    run(&[]).prints("[]\n");
    run(&["--local"]).prints("[here]\n");
    // A recording is made by the process that works.
    run(&["--record", "tape.yaml"]).prints("[here]\n");
    run(&["--replay", "tape.yaml"]).prints("[here]\n");
    let trace = home.polity(&["task", "trace", "last"]).exits(0);
    assert!(trace.out.contains("completed"), "{trace:?}");
}

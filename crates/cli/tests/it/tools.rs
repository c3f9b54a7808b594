//! Agents with tools of real MCP servers.

use std::fs;

use polity_testkit::mcp::fixture;
use polity_testkit::peers::npm_server;
use serde_json::{Value, json};

use crate::sandbox::{CommandOutput, HomeSandbox, command_output};

/// A home whose agent `worker` has the tools of the faulty test server, named `kit`.
///
/// The scripted model makes the calls that the task's input lists as JSON: `[["kit/echo", {...}]]`
/// is one call. A second line of calls follows after the first line's results.
pub(crate) fn home(agent: &str, tools: &str, args: &[&str]) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let args = [vec![fixture().to_str().unwrap().to_owned()], args].concat();
    sandbox.write(
        "config/mcp_servers.yaml",
        &json!({"servers": [{
            "name": "kit",
            "transport": "stdio",
            "config": {"command": "python3", "args": args},
            "tools": serde_json::from_str::<Value>(tools).unwrap(),
        }]})
        .to_string(),
    );
    sandbox.write(
        "agents/worker.yaml",
        &format!(
            "name: worker\nkind: llm\nrole: Works\nsystem_prompt: Work.\ntools: [kit/*]\n\
             llm_config: {{provider: scripted, script: worker}}\n{agent}"
        ),
    );
    sandbox
}

/// Scripts the model to make these calls in its first answer, and then to repeat the last result.
pub(crate) fn calls(sandbox: &HomeSandbox, calls: &Value) {
    let script = json!({
        "rules": [
            {"when": "^go$", "role": "user", "tool_calls": calls},
            {"when": "(?s)^(.*)$", "role": "tool", "reply": "it said: $1"},
        ],
    });
    sandbox.write("scripts/worker.yaml", &script.to_string());
}

fn run(sandbox: &HomeSandbox, what: &Value) -> CommandOutput {
    calls(sandbox, what);
    sandbox.polity(&["run", "worker", "go"])
}

/// Returns the calls of the newest task's trace: the tool and its error.
fn traced(sandbox: &HomeSandbox) -> Vec<(String, Option<String>)> {
    let (trace, _) = sandbox.json(&["task", "trace", "last"]);
    let steps = trace["steps"].as_array().unwrap().clone();
    steps
        .iter()
        .flat_map(|step| step["tool_calls"].as_array().unwrap().clone())
        .map(|call| {
            let name =
                format!("{}/{}", call["server"].as_str().unwrap(), call["tool"].as_str().unwrap());
            (name, call["error"].as_str().map(str::to_owned))
        })
        .collect()
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// MCP allows `.` and `/` in names, and providers of models do not.
#[test]
fn tools_with_dots_and_slashes_are_called() {
    let sandbox = home("approval: [kit/repo/search.all]\n", "{}", &["--odd-names"]);
    let listed = sandbox.polity(&["tool", "list"]).exits(0);
    for (tool, expected) in
        [("kit/db.query", "db.query found it"), ("kit/repo/search", "repo/search found it")]
    {
        assert!(listed.out.contains(tool), "{listed:?}");
        let said = run(&sandbox, &json!([{"tool": tool, "arguments": {"what": "it"}}]));
        assert_eq!(said.out, format!("it said: {expected}\n"), "{said:?}");
        let call = sandbox.polity(&["tool", "call", tool, "--arg", "what=it"]);
        assert!(call.out.contains(expected), "{call:?}");
    }
    let held = json!([{"tool": "kit/repo/search.all", "arguments": {"what": "it"}}]);
    assert_eq!(run(&sandbox, &held).code, 3);
    sandbox.polity(&["review", "approve", "last"]).out_has("repo/search.all found it");
    sandbox.write(
        "workflows/flow.yaml",
        "name: flow\nentry_point: find\nnodes: {find: {type: tool, tool: kit/repo/search, arguments: {what: me}}}",
    );
    sandbox.polity(&["run", "flow", "x"]).prints("repo/search found me\n");
}

#[test]
fn agent_uses_a_third_party_server() {
    let sandbox = HomeSandbox::new();
    sandbox.write("docs/hello.txt", "Greetings from the file.");
    let server = npm_server("server-filesystem");
    sandbox.write(
        "config/mcp_servers.yaml",
        &json!({"servers": [{"name": "files", "transport": "stdio",
            "config": {"command": "node", "args": [server, sandbox.file("docs")]}}]})
        .to_string(),
    );
    let agent = fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap();
    let agent = format!("{agent}tools: [files/read_text_file, files/list_directory]\n");
    sandbox.write("agents/greeter.yaml", &agent);
    let path = sandbox.file("docs/hello.txt");
    sandbox.write(
        "scripts/greeter.yaml",
        &json!({"rules": [
            {"when": "^go$", "tool_calls": [
                {"tool": "files/read_text_file", "arguments": {"path": path}},
                {"tool": "files/list_directory", "arguments": {"path": sandbox.file("docs")}}]},
            {"when": "(?s)(.+)", "role": "tool", "reply": "I saw: $1"}]})
        .to_string(),
    );
    sandbox.polity(&["run", "greeter", "go"]).prints("I saw: [FILE] hello.txt\n");
    let (trace, _) = sandbox.json(&["task", "trace", "last"]);
    let steps = trace["steps"].as_array().unwrap().clone();
    let mut results = steps.iter().map(|step| &step["tool_calls"][0]["result"]["content"]);
    assert!(results.any(|result| result == "Greetings from the file."), "{trace}");
    let (tools, code) = sandbox.json(&["tool", "list", "files"]);
    assert_eq!((code, tools.as_array().unwrap().len()), (0, 14));
    let read = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "read_text_file");
    assert_eq!(read.unwrap()["idempotent"], true, "the server marks the tool as read-only");
}

#[test]
fn parallel_calls_are_answered_in_order_and_servers_shut_down() {
    let sandbox = home("", "{}", &["--log", "log"]);
    let output = run(
        &sandbox,
        &json!([
            {"tool": "kit/sleep", "arguments": {"seconds": 0.3}},
            {"tool": "kit/spawn"},
            {"tool": "kit/echo", "arguments": {"text": "last"}},
        ]),
    );
    assert_eq!((output.code, output.out.as_str()), (0, "it said: last\n"), "{output:?}");
    let (checkpoints, _) = sandbox.json(&["task", "checkpoints", "last"]);
    let messages = checkpoints[0]["state"]["messages"].as_array().unwrap().clone();
    assert_eq!(
        (&messages[2]["content"], &messages[4]["content"]),
        (&"slept".into(), &"last".into())
    );
    let grandchild = messages[3]["content"].as_str().unwrap();
    let log = fs::read_to_string(sandbox.file("log")).unwrap();
    let server = log.lines().next().unwrap().strip_prefix("started ").unwrap();
    for pid in [server, grandchild] {
        sandbox.wait_until("the server and its child are gone", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn invalid_call_is_reported_to_the_model() {
    let sandbox = home("", "{}", &[]);
    for (call, expected) in [
        (json!({"tool": "kit/nothing"}), "there is no tool kit/nothing; your tools are kit/"),
        (json!({"tool": "kit/add", "arguments": {"a": "x"}}), "do not fit its input schema"),
        (json!({"tool": "kit/bad_output"}), "does not fit its own output schema"),
        (json!({"tool": "kit/fail"}), "it cannot be done"),
        (json!({"tool": "kit/die"}), "I am dying"),
        // The server is wrong, and only one server has the tool.
        (json!({"tool": "elsewhere/echo", "arguments": {"text": "found"}}), "it said: found"),
    ] {
        let output = run(&sandbox, &json!([call]));
        assert_eq!(output.code, 0, "{call} {output:?}");
        assert!(output.out.contains(expected), "{call} {output:?}");
    }
}

#[test]
fn failing_tool_uses_its_fallback() {
    let tools = r#"{"sleep": {"timeout_seconds": 1, "fallback_tools": ["kit/fail", "kit/echo"]},
        "fail": {"fallback_tools": ["kit/echo"]}}"#;
    let sandbox = home("", tools, &[]);
    let output = run(
        &sandbox,
        &json!([{"tool": "kit/sleep", "arguments": {"seconds": 60, "text": "instead"}}]),
    );
    assert_eq!((output.code, output.out.as_str()), (0, "it said: instead\n"), "{output:?}");
    let traced = traced(&sandbox);
    let names: Vec<_> = traced.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["kit/sleep", "kit/fail", "kit/echo"]);
    assert!(traced[0].1.as_ref().unwrap().contains("within 1 seconds"), "{traced:?}");
    assert!(traced[1].1.as_ref().unwrap().contains("it cannot be done"), "{traced:?}");
    assert_eq!(traced[2].1, None);
}

#[test]
fn huge_result_is_truncated() {
    let sandbox = home("", "{}", &[]);
    let output = run(&sandbox, &json!([{"tool": "kit/big", "arguments": {"bytes": 52_428_800}}]));
    assert_eq!(output.code, 0, "{}", output.err);
    let end = &output.out[output.out.len() - 120..];
    assert!(
        output.out.len() < 11_000_000 && end.contains("truncated"),
        "{} {end}",
        output.out.len()
    );
    assert!(end.contains("52428800"), "{end}");
}

#[test]
fn misbehaving_servers_are_reported() {
    for (args, expected) in [(vec!["--exit-at-once"], "no configuration"), (vec!["--garbage"], "")]
    {
        let sandbox = home("max_retries: 0\n", "{}", &args);
        let output = run(&sandbox, &json!([{"tool": "kit/echo", "arguments": {"text": "x"}}]));
        if expected.is_empty() {
            assert_eq!((output.code, output.out.as_str()), (0, "it said: x\n"), "{output:?}");
        } else {
            assert_eq!(output.code, 1, "{output:?}");
            assert!(
                output.err.contains("tools_unavailable") && output.err.contains(expected),
                "{output:?}"
            );
        }
    }
    let sandbox = home("", "{}", &[]);
    sandbox.write("config/mcp_servers.yaml", "servers: []");
    calls(&sandbox, &json!([{"tool": "kit/echo"}]));
    sandbox.polity(&["run", "worker", "go"]).fails(2, "agents/worker.yaml").err_has("kit");
}

#[test]
fn tool_call_prints_the_result() {
    let sandbox = home("", "{}", &[]);
    let output = sandbox.polity(&["tool", "call", "kit/echo", "--arg", "text=hello"]);
    assert_eq!((output.code, output.out.as_str()), (0, "hello\n"), "{output:?}");
    let (sum, code) = sandbox.json(&["tool", "call", "kit/add", "--arg", "a=1", "--arg", "b=2"]);
    assert_eq!((code, &sum["structured"]["sum"]), (0, &json!(3)), "{sum}");
    for (args, code, expected) in [
        (vec!["kit/add", "--arg", "a=1"], 2, "the property \"b\" is missing"),
        (vec!["kit/nothing"], 1, "MCP server \"kit\" has no tool \"nothing\""),
        (vec!["none/echo"], 1, "there is no MCP server \"none\""),
        (vec!["echo"], 2, "write it as SERVER/TOOL"),
        (vec!["kit/echo", "--arg", "text"], 2, "NAME=VALUE"),
    ] {
        let output = sandbox.polity(&[vec!["tool", "call"], args.clone()].concat());
        assert_eq!(output.code, code, "{args:?} {output:?}");
        assert!(output.err.contains(expected), "{args:?} {output:?}");
    }
    let failed = sandbox.polity(&["tool", "call", "kit/fail"]);
    assert_eq!((failed.code, failed.out.as_str()), (1, "it cannot be done\n"), "{failed:?}");
}

#[test]
fn cost_is_summed_by_agent_and_day() {
    let sandbox = HomeSandbox::new();
    assert_eq!(sandbox.polity(&["cost"]).out, "no model has been called yet\n");
    let agent = fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap();
    let price = "price: {input_per_million_usd: 1000, output_per_million_usd: 500}";
    sandbox.write(
        "agents/greeter.yaml",
        &agent.replace("script: greeter}", &format!("script: greeter, {price}}}")),
    );
    for name in ["Ada", "Bob"] {
        sandbox.polity(&["run", "greeter", name]).exits(0);
    }
    let (rows, code) = sandbox.json(&["cost"]);
    assert_eq!((code, rows.as_array().unwrap().len()), (0, 1), "{rows}");
    let row = &rows[0];
    assert_eq!((&row["agent"], &row["model_calls"]), (&json!("greeter"), &json!(2)));
    assert_eq!((&row["input_tokens"], &row["cost_usd"]), (&json!(24), &json!(0.028)));
    let (by_day, _) = sandbox.json(&["cost", "--by", "day"]);
    assert!(by_day[0]["agent"].is_null() && by_day[0]["day"].is_string(), "{by_day}");
    let table = sandbox.polity(&["cost", "--by", "agent"]).out;
    assert!(table.starts_with("AGENT    CALLS") && table.contains("$0.0280"), "{table}");
    command_output(&sandbox.command(&["cost", "--by", "month"]).output().unwrap()).exits(2);
}

#[test]
fn dead_server_does_not_affect_others() {
    let sandbox = home("", "{}", &[]);
    sandbox.write("once.sh", "test -e gone && exit 1; touch gone; exec python3 \"$@\"");
    let args = json!(["once.sh", fixture()]);
    sandbox.write(
        "config/mcp_servers.yaml",
        &json!({"servers": [
            {"name": "kit", "transport": "stdio", "config": {"command": "sh", "args": args}},
            {"name": "sound", "transport": "stdio",
                "config": {"command": "python3", "args": [fixture()]}},
        ]})
        .to_string(),
    );
    let agent = fs::read_to_string(sandbox.file("agents/worker.yaml")).unwrap();
    sandbox.write("agents/worker.yaml", &agent.replace("[kit/*]", "[kit/*, sound/*]"));
    let script = json!({"rules": [
        {"when": "^go$", "tool_calls": [{"tool": "kit/die"}]},
        {"when": "lost", "role": "tool",
            "tool_calls": [{"tool": "sound/echo", "arguments": {"text": "still here"}}]},
        {"when": "(.+)", "role": "tool", "reply": "it said: $1"},
    ]});
    sandbox.write("scripts/worker.yaml", &script.to_string());
    sandbox.polity(&["run", "worker", "go"]).prints("it said: still here\n");
}

#[test]
fn server_secrets_are_masked() {
    let sandbox = HomeSandbox::new();
    let server = npm_server("server-everything");
    sandbox.write(
        "config/mcp_servers.yaml",
        &json!({"servers": [{"name": "every", "transport": "stdio", "config": {
            "command": "node", "args": [server], "env": {"TOKEN": "${POLITY_TEST_TOKEN}"}}}]})
        .to_string(),
    );
    let mut call = sandbox.command(&["tool", "call", "every/get-env"]);
    let output = command_output(&call.env("POLITY_TEST_TOKEN", "tok-VERYSECRET").output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("TOKEN") && !output.out.contains("VERYSECRET"), "{output:?}");
}

#[test]
fn timed_out_call_names_the_limit() {
    let sandbox = home("", "{}", &[]);
    let node = "type: tool, tool: kit/sleep, arguments: {seconds: 30}";
    for (nodes, expected) in [
        (format!("nodes: {{one: {{{node}, timeout_seconds: 1}}}}"), "node one"),
        (
            format!(
                "nodes:\n  all: {{type: parallel, branches: [one], timeout_seconds: 1}}\n  \
                 one: {{{node}, timeout_seconds: 20}}"
            ),
            "node all",
        ),
    ] {
        let entry = &expected[5..];
        sandbox
            .write("workflows/flow.yaml", &format!("name: flow\nentry_point: {entry}\n{nodes}\n"));
        let output = sandbox.polity(&["run", "flow", "go"]).exits(5);
        let why = format!("no answer within 1 seconds, the timeout_seconds of {expected}");
        assert!(output.err.contains(&why), "{output:?}");
    }
}

#[test]
fn tool_list_survives_an_unreachable_server() {
    let sandbox = home("", "{}", &[]);
    let servers = fs::read_to_string(sandbox.file("config/mcp_servers.yaml")).unwrap();
    let mut servers: Value = serde_json::from_str(&servers).unwrap();
    let unreachable =
        json!({"name": "gone", "transport": "stdio", "config": {"command": "no-such-program"}});
    servers["servers"].as_array_mut().unwrap().push(unreachable);
    sandbox.write("config/mcp_servers.yaml", &servers.to_string());
    sandbox.write(
        "workflows/flow.yaml",
        "
name: flow
entry_point: first
nodes:
  first: {type: tool, tool: kit/echo, arguments: {text: '{{ input }}'}}
  second: {type: tool, tool: gone/echo, arguments: {text: x}}
  other: {type: tool, tool: kit/echo, arguments: {text: 'not {{ last }}'}}
edges:
  - {from: first, to: second, condition: \"last == 'second'\"}
  - {from: first, to: other, condition: \"last != 'second'\"}
",
    );
    sandbox.polity(&["run", "flow", "go", "--record", "tape.yaml"]).prints("not go\n");
    sandbox.polity(&["run", "flow", "go", "--replay", "tape.yaml"]).prints("not go\n");
    let output = sandbox.polity(&["run", "flow", "second"]);
    output.fails(1, "tools_unavailable: second: ").err_has("no-such-program");
}

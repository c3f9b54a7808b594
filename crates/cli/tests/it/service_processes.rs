//! Processes of MCP servers and notification commands, which belong to no execution.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cli_agents::as_plain_user;
use crate::sandbox::{HomeSandbox, kill};
use crate::tools::{self, calls};

/// Starts a daemon, which leaves its parent, its session and its process group. Never answers.
const DAEMON: &str = "(setsid sh -c 'echo $$ > daemon; exec sleep 1000' < /dev/null > /dev/null 2>&1 &); \
    echo $PPID > shim; exec sleep 1000";

/// A home with an agent that needs a server, and one that needs none.
fn home_with_server(script: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write_scripted_agent("worker", ", tools: [kit/*]");
    sandbox.write("scripts/worker.yaml", "default: {reply: done}");
    let config = json!({"command": "sh", "args": ["-c", script]});
    let servers = json!({"servers": [{"name": "kit", "transport": "stdio", "config": config}]});
    sandbox.write("config/mcp_servers.yaml", &servers.to_string());
    sandbox
}

fn records(sandbox: &HomeSandbox) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sandbox.file("data/runs")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn pid(sandbox: &HomeSandbox, file: &str) -> i32 {
    let pid = sandbox.wait_until("the server runs", || {
        fs::read_to_string(sandbox.file(file)).ok().filter(|pid| pid.ends_with('\n'))
    });
    pid.trim().parse().unwrap()
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn daemons_of_a_tool_server_with_a_killed_shim_are_killed_at_the_next_start() {
    let sandbox = home_with_server(DAEMON);
    let mut running = as_plain_user(&sandbox, &["run", "worker", "x"]).spawn().unwrap();
    let (daemon, shim) = (pid(&sandbox, "daemon"), pid(&sandbox, "shim"));
    // The shim would end the daemon, so it must not run between the two kills.
    send(shim, Signal::STOP);
    kill(&mut running);
    send(shim, Signal::KILL);
    assert!(is_alive(daemon), "nothing is left to clean up");
    assert_eq!(records(&sandbox).len(), 1);
    let output = as_plain_user(&sandbox, &["-q", "run", "greeter", "Ada"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    sandbox.wait_until("the daemon is gone", || (!is_alive(daemon)).then_some(()));
    sandbox.wait_until("the record is removed", || records(&sandbox).is_empty().then_some(()));
}

#[test]
fn daemons_of_a_tool_server_are_killed_if_only_its_shim_is() {
    let sandbox = home_with_server(DAEMON);
    let mut running = as_plain_user(&sandbox, &["run", "worker", "x"]).spawn().unwrap();
    let (daemon, shim) = (pid(&sandbox, "daemon"), pid(&sandbox, "shim"));
    send(shim, Signal::KILL);
    sandbox.wait_until("the daemon is gone", || (!is_alive(daemon)).then_some(()));
    kill(&mut running);
}

#[test]
fn running_tool_server_is_left_alone_by_other_processes() {
    let sandbox = home_with_server(DAEMON);
    let mut running = sandbox.start(&["run", "worker", "x"]);
    let daemon = pid(&sandbox, "daemon");
    sandbox.polity(&["-q", "run", "greeter", "Ada"]).exits(0);
    assert!(is_alive(daemon), "the server of a live process was ended");
    assert_eq!(records(&sandbox).len(), 1);
    kill(&mut running);
    sandbox.wait_until("the shim has ended the daemon", || (!is_alive(daemon)).then_some(()));
}

#[test]
fn records_of_services_are_removed_at_their_end() {
    let sandbox = tools::home("approval: [kit/count]\n", "{}", &[]);
    calls(&sandbox, &json!([{"tool": "kit/count", "arguments": {"file": "a"}}]));
    let script = "ls data/runs > runs.txt; echo $POLITY_RUN > run.txt; cat > asked.json";
    let notify = json!({"notify": {"on_review": {"command": ["sh", "-c", script]}}});
    sandbox.write("polity.yaml", &notify.to_string());
    sandbox.polity(&["run", "worker", "go"]).exits(3);
    let runs = fs::read_to_string(sandbox.file("runs.txt")).unwrap();
    let own = fs::read_to_string(sandbox.file("run.txt")).unwrap();
    let record = format!("{}.json", own.trim());
    assert!(runs.lines().any(|name| name == record), "{record}: {runs}");
    let asked: Value =
        serde_json::from_slice(&fs::read(sandbox.file("asked.json")).unwrap()).unwrap();
    assert!(asked.is_object(), "{asked}");
    assert_eq!(records(&sandbox), Vec::<String>::new());
}

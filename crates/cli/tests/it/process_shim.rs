//! The process shim: it leaves no process of an agent running.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use polity_drivers::EnvSource;
use polity_drivers::mcp::{McpOptions, McpTools};
use polity_drivers::process::ProcessLauncher;
use polity_engine::driver::{CallSite, ToolDriver, ToolRequest};
use polity_testkit::mcp::{environment, fixture_server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Map;

use crate::sandbox::HomeSandbox;

/// Starts a child that ignores SIGTERM in its own session, which starts another. Prints both
/// process ids and waits.
const FAMILY: &str = r#"setsid sh -c 'trap "" TERM; sleep 1000 & echo $! $$; wait' & wait"#;

/// The command that runs a program through the shim.
fn supervised(program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polity"));
    let parent = std::process::id().to_string();
    command.args(["__supervise", "new", &parent, "--"]).args(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the process ids that the process tree prints.
fn family(child: &mut Child) -> Vec<i32> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn wait_until_gone(pids: &[i32]) {
    HomeSandbox::empty().wait_until("the process tree has ended", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn shim_passes_the_exit_code_on() {
    for (program, code) in [
        (vec!["sh", "-c", "exit 0"], 0),
        (vec!["sh", "-c", "exit 7"], 7),
        (vec!["sh", "-c", "kill -KILL $$"], 128 + 9),
        (vec!["no-such-program"], 127),
    ] {
        let status = supervised(&program).status().unwrap();
        assert_eq!(status.code(), Some(code), "{program:?}");
    }
}

#[test]
fn shim_names_a_missing_executable() {
    let output = supervised(&["no-such-program"]).output().unwrap();
    let output = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output, "cannot start no-such-program: No such file or directory (os error 2)\n");
}

#[test]
fn shim_closes_pipes_with_the_process() {
    let mut child = supervised(&["sh", "-c", "echo last; exec >&-; sleep 1000"]).spawn().unwrap();
    let mut output = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut output).unwrap();
    assert_eq!(output, "last\n");
    send(&child, Signal::TERM);
    child.wait().unwrap();
}

#[test]
fn shim_kills_the_process_tree_on_request() {
    let mut child = supervised(&["sh", "-c", FAMILY]).spawn().unwrap();
    let family = family(&mut child);
    assert!(family.len() == 2 && family.iter().all(|pid| is_alive(*pid)));
    send(&child, Signal::TERM);
    let status = child.wait().unwrap();
    assert!(family.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(status.code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn shim_kills_the_process_tree_at_exit() {
    let script = "setsid sleep 1000 & echo $!; exit 5";
    let mut child = supervised(&["sh", "-c", script]).spawn().unwrap();
    let family = family(&mut child);
    assert_eq!((family.len(), child.wait().unwrap().code()), (1, Some(5)));
    assert!(family.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn shim_kills_the_process_tree_if_its_parent_dies() {
    let script = r#""$0" __supervise new $$ -- sh -c "$1" & wait"#;
    let mut parent = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_polity"), FAMILY])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let family = family(&mut parent);
    assert!(family.len() == 2 && family.iter().all(|pid| is_alive(*pid)));
    parent.kill().unwrap();
    assert_eq!(parent.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    wait_until_gone(&family);
}

#[test]
fn shim_starts_nothing_for_a_dead_parent() {
    let output = Command::new(env!("CARGO_BIN_EXE_polity"))
        .args(["__supervise", "new", "1", "--", "echo", "started"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(127), Vec::new()));
}

#[test]
fn tool_server_children_end_with_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sandbox = HomeSandbox::empty();
    let shim = ProcessLauncher::Shim(env!("CARGO_BIN_EXE_polity").into());
    let start = || {
        let options =
            McpOptions::new(sandbox.path().into(), EnvSource::new(environment), shim.clone());
        McpTools::new([fixture_server("test", &[])], options)
    };
    let spawn = async |tools: &McpTools| {
        let (tool, arguments) = (&"test/spawn".parse().unwrap(), &Map::new());
        let (limit, call_site, index) = (std::time::Duration::from_mins(1), CallSite::OUTSIDE, 0);
        let request = ToolRequest { tool, arguments, limit, limited_by: None, call_site, index };
        let reply = tools.call(request).await.unwrap();
        let pid: i32 = reply.content.parse().unwrap();
        assert!(is_alive(pid));
        pid
    };
    let shut_down = runtime.block_on(async {
        let tools = start();
        let pid = spawn(&tools).await;
        tools.shutdown().await;
        pid
    });
    assert!(!is_alive(shut_down));

    let tools = start();
    let forgotten = runtime.block_on(spawn(&tools));
    drop(runtime);
    wait_until_gone(&[forgotten]);
}

#[test]
fn shim_is_hidden_from_help() {
    let help = HomeSandbox::empty().polity(&["--help"]).out;
    assert!(!help.contains("__supervise"), "{help}");
}

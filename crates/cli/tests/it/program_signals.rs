//! Signals of programs: Polity passes none of its own on, and stops programs as they ask for.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::sandbox::{CommandOutput, HomeSandbox, command_output, finish};

/// Writes on both pipes while it tidies up, as programs do, and needs a moment.
const TIDY: &str = "trap 'echo stopping; echo stopping >&2; sleep 0.3; echo bye; \
    echo tidied >> note; exit 0' INT; echo $$ > pid; while :; do sleep 0.05; done";

/// Writes more than its pipes hold while it ends, once it may.
const TALKATIVE: &str = "tidy() { touch ending; until [ -e go ]; do sleep 0.05; done; i=0; \
    while [ $i -lt 3000 ]; do i=$((i + 1)); \
    echo 'a line of text on stdout while the program ends'; \
    echo 'a line of text on stderr while the program ends' >&2; done; \
    echo tidied >> note; exit 0; }; \
    trap tidy INT; echo $$ > pid; while :; do sleep 0.05; done";

/// Ignores every request to end.
const STUBBORN: &str = "trap '' INT TERM HUP; echo $$ > pid; while :; do sleep 0.05; done";

/// Starts a command with signals ignored and blocked, as `nohup`, a shell's background job or a
/// careless supervisor does.
const CARELESS: &str = "import os, signal, sys
ignored = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD,
           signal.SIGUSR2, signal.SIGTERM, signal.SIGTSTP}
for number in ignored: signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM})
os.execv(sys.argv[1], sys.argv[1:])";

/// Starts a command that does not ignore SIGHUP, even if the tests run under `nohup`.
const IN_A_TERMINAL: &str = "import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])";

/// Prints the blocked and ignored signals of a process.
const REPORT: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status";

const NO_SIGNALS: &str = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";

fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    for (name, script, grace) in
        [("tidy", TIDY, 60), ("talkative", TALKATIVE, 60), ("stubborn", STUBBORN, 1)]
    {
        let file = format!(
            "{{name: {name}, kind: cli, executable_path: sh, cli_args: [-c, {}], \
             working_directory: ., stop_signal: SIGINT, grace_seconds: {grace}, idempotent: true}}",
            serde_json::Value::from(script)
        );
        sandbox.write(&format!("agents/{name}.yaml"), &file);
    }
    sandbox
}

/// Waits until the program runs; returns its process id.
fn program(sandbox: &HomeSandbox) -> String {
    let pid = sandbox.wait_until("the program runs", || {
        fs::read_to_string(sandbox.file("pid")).ok().filter(|pid| pid.ends_with('\n'))
    });
    fs::remove_file(sandbox.file("pid")).unwrap();
    pid.trim().to_owned()
}

fn send(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

/// Sends a signal to Polity, waits for its exit and checks that it has left the task interrupted
/// and the program ended.
fn stop(sandbox: &HomeSandbox, running: Child, signal: &str) {
    let program = program(sandbox);
    send(signal, &running.id().to_string());
    finish(running).fails(1, "interrupted");
    assert!(!fs::exists(format!("/proc/{program}")).unwrap(), "the program outlived Polity");
    assert_eq!(sandbox.tasks()[0]["interrupted"], true);
}

/// Polity as a child of a Python program with this text, which is to replace itself.
fn through(sandbox: &HomeSandbox, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program, env!("CARGO_BIN_EXE_polity")]).args(args);
    command.current_dir(sandbox.path()).env_remove("POLITY_HOME");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn sigterm_stops_programs_with_stop_signal_and_grace_period() {
    for signal in ["-TERM", "-HUP"] {
        let sandbox = home();
        let start = |args: &[&str]| through(&sandbox, IN_A_TERMINAL, args).spawn().unwrap();
        stop(&sandbox, start(&["run", "tidy", "x"]), signal);
        assert_eq!(fs::read_to_string(sandbox.file("note")).unwrap(), "tidied\n", "{signal}");
        stop(&sandbox, start(&["task", "resume", "--all"]), signal);
        assert_eq!(fs::read_to_string(sandbox.file("note")).unwrap(), "tidied\ntidied\n");
    }
}

#[test]
fn sigterm_stops_programs_of_a_background_process() {
    let sandbox = home();
    sandbox.polity(&["run", "tidy", "x", "--detach"]).exits(0);
    let program = program(&sandbox);
    let shim = parent(&program).unwrap();
    let polity = parent(&shim).unwrap();
    send("-TERM", &polity);
    sandbox.wait_until("the process is gone", || {
        (!fs::exists(format!("/proc/{polity}")).unwrap()).then_some(())
    });
    assert_eq!(fs::read_to_string(sandbox.file("note")).unwrap(), "tidied\n");
    assert_eq!(sandbox.tasks()[0]["interrupted"], true);
}

fn parent(pid: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("PPid:")?.trim().to_owned()))
}

#[test]
fn sigterm_kills_programs_after_their_grace_period() {
    let sandbox = home();
    stop(&sandbox, sandbox.start(&["run", "stubborn", "x"]), "-TERM");
}

#[test]
fn ctrl_c_stops_programs_with_stop_signal_and_grace_period() {
    let sandbox = home();
    let running = sandbox.start(&["run", "tidy", "x"]);
    program(&sandbox);
    send("-INT", &running.id().to_string());
    finish(running).exits(4);
    assert_eq!(fs::read_to_string(sandbox.file("note")).unwrap(), "tidied\n");
}

/// Without a reader, its first line would kill the program with SIGPIPE.
#[test]
fn program_that_writes_while_it_ends_outlives_polity() {
    for signals in [&["-INT", "-INT"][..], &["-KILL"]] {
        let sandbox = home();
        let mut running = sandbox.start(&["run", "talkative", "x"]);
        let program = program(&sandbox);
        for signal in signals {
            send(signal, &running.id().to_string());
            // With the first signal, Polity or its death makes the shim ask the program to end.
            sandbox.wait_until("the program is asked to end", || {
                sandbox.file("ending").exists().then_some(())
            });
        }
        running.wait().unwrap();
        sandbox.write("go", "");
        sandbox.wait_until("the program has ended", || {
            (!fs::exists(format!("/proc/{program}")).unwrap()).then_some(())
        });
        assert_eq!(fs::read_to_string(sandbox.file("note")).unwrap(), "tidied\n", "{signals:?}");
    }
}

#[test]
fn hangup_does_not_end_a_run_under_nohup() {
    let sandbox = home();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_polity")]);
    command.args(["run", "tidy", "x"]).current_dir(sandbox.path()).env_remove("POLITY_HOME");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let program = program(&sandbox);
    send("-HUP", &running.id().to_string());
    send("-INT", &program);
    finish(running).exits(0);
}

/// Runs Polity with ignored and blocked signals.
fn careless(sandbox: &HomeSandbox, args: &[&str]) -> CommandOutput {
    command_output(&through(sandbox, CARELESS, args).output().unwrap())
}

#[test]
fn programs_inherit_no_ignored_or_blocked_signals() {
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("report", REPORT, "");
    let server = format!("{REPORT} > server.txt");
    let servers = serde_json::json!({
        "servers": [{
            "name": "kit", "transport": "stdio",
            "config": {"command": "sh", "args": ["-c", server]},
        }]
    });
    sandbox.write("config/mcp_servers.yaml", &servers.to_string());
    let output = careless(&sandbox, &["-q", "run", "report", "x"]);
    assert_eq!((output.code, &*output.out), (0, NO_SIGNALS), "{output:?}");
    careless(&sandbox, &["tool", "list"]);
    assert_eq!(fs::read_to_string(sandbox.file("server.txt")).unwrap(), NO_SIGNALS);
}

#[test]
fn full_shim_passes_no_ignored_or_blocked_signals_on() {
    let sandbox = HomeSandbox::empty();
    let script = "exec \"$0\" __supervise new $PPID -- grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let mut command = Command::new("python3");
    command.args(["-c", CARELESS, "/bin/sh", "-c", script, env!("CARGO_BIN_EXE_polity")]);
    let output = command_output(&command.current_dir(sandbox.path()).output().unwrap());
    // The C library ignores the two signals that it uses itself.
    let shown = output.out.replace("0000000180000000", "0000000000000000");
    assert_eq!((output.code, &*shown), (0, NO_SIGNALS), "{output:?}");
}

//! Signals to commands that follow work of a server, and restarts of the server meanwhile.

use std::process::Child;

use super::client::ServerProcess;
use crate::sandbox::{CommandOutput, HomeSandbox, finish};

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// A home with an agent that works until the file `ok` exists.
fn home() -> HomeSandbox {
    let home = HomeSandbox::bare();
    home.write_shell_agent(
        "worker",
        "echo run >> ran; while ! test -e ok; do sleep 0.05; done; echo done",
        ", access_type: read-only, idempotent: true",
    );
    home
}

fn wait_for_run(home: &HomeSandbox) {
    home.wait_until("the program runs", || home.file("ran").exists().then_some(()));
}

/// Starts a command that names the server, from another folder.
fn start_far(server: &ServerProcess<'_>, elsewhere: &HomeSandbox, args: &[&str]) -> Child {
    let url = format!("http://{}", server.address());
    let mut command = elsewhere.command(&[args, &["--server", &url]].concat());
    command.env("POLITY_TOKEN", &server.token).spawn().unwrap()
}

#[test]
fn first_interrupt_cancels_the_task_at_the_server() {
    for is_far in [false, true] {
        let (home, elsewhere) = (home(), HomeSandbox::empty());
        let server = ServerProcess::start(&home);
        let args = ["run", "worker", "x"];
        let child = if is_far { start_far(&server, &elsewhere, &args) } else { home.start(&args) };
        wait_for_run(&home);
        signal(&child, rustix::process::Signal::INT);
        let output = finish(child).exits(4);
        for part in ["cancelling", "cancelled", "polity task retry"] {
            assert!(output.err.contains(part), "{part}: {output:?}");
        }
        assert_eq!(home.get(&["task", "show", "last"])["status"], "cancelled");
    }
}

#[test]
fn termination_leaves_the_task_to_the_server() {
    let home = home();
    let _server = ServerProcess::start(&home);
    let child = home.start(&["run", "worker", "x"]);
    wait_for_run(&home);
    signal(&child, rustix::process::Signal::TERM);
    finish(child).fails(1, "goes on at the server");
    assert_eq!(home.get(&["task", "show", "last"])["status"], "running");
    home.write("ok", "");
    home.polity(&["task", "wait", "last"]).prints("done\n");
}

#[test]
fn running_task_is_cancelled_and_waited_for() {
    let (home, elsewhere) = (home(), HomeSandbox::empty());
    let server = ServerProcess::start(&home);
    let far = |args: &[&str]| -> CommandOutput { finish(start_far(&server, &elsewhere, args)) };
    far(&["run", "worker", "x", "--detach"]).exits(0);
    wait_for_run(&home);
    let wait = far(&["task", "wait", "last", "--timeout", "0"]);
    wait.fails(5, "is still running after 0 s, and goes on");
    let execution = home.get(&["execution", "list", "--active"])[0]["id"].clone();
    far(&["execution", "cancel", execution.as_str().unwrap()]).exits(0).out_has("is cancelled");
    far(&["task", "wait", "last"]).exits(4);
}

#[test]
fn killed_server_is_followed_to_its_next_start() {
    for is_far in [false, true] {
        let (home, elsewhere) = (home(), HomeSandbox::empty());
        let server = ServerProcess::start(&home);
        let address = server.address().to_owned();
        let args = ["run", "worker", "x"];
        let child = if is_far { start_far(&server, &elsewhere, &args) } else { home.start(&args) };
        wait_for_run(&home);
        server.kill();
        home.write("ok", "");
        // A local server is found on another port too.
        let listen = if is_far { address.as_str() } else { "127.0.0.1:0" };
        let _server = ServerProcess::start_at(&home, listen);
        let output = finish(child);
        assert_eq!((output.code, output.out.as_str()), (0, "done\n"), "{output:?}");
        assert_eq!(home.tasks().len(), 1);
        // Each step is shown once, in the order of the trace.
        let steps = |text: &str| -> Vec<String> {
            let is_step =
                |line: &&str| line.contains('·') || line.contains('✓') || line.contains('!');
            let name = |line: &str| line.trim_start_matches(['├', '└', '─', ' ']).to_owned();
            text.lines().filter(is_step).map(name).collect()
        };
        let trace = home.polity(&["task", "trace", "last"]).exits(0).out;
        assert_eq!(steps(&output.err), steps(&trace), "{output:?}\n{trace}");
        assert_eq!(output.err.matches("created").count(), 1, "{output:?}");
    }
}

//! Homes that were found, not named, and that another user may write to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::sandbox::HomeSandbox;

/// A user who owns no files.
const NOBODY: u32 = 65534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Expects an error that rejects the home above the current folder.
fn expect_refusal(sandbox: &HomeSandbox, path: &Path, reason: &str) {
    let below = sandbox.file("below");
    fs::create_dir_all(&below).unwrap();
    let output = sandbox.command(&["run", "greeter", "Ada"]).current_dir(&below).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let expected = format!("{}: {reason}", path.display());
    assert!(stderr.contains(&expected) && stderr.contains("--home"), "{expected}: {stderr}");
    // A home named by `--home` is trusted.
    let home = sandbox.path().to_str().unwrap();
    sandbox.polity(&["run", "greeter", "Ada", "--home", home]).prints("Hello, Ada.\n");
}

#[test]
fn home_that_others_may_write_to_is_refused() {
    let sandbox = HomeSandbox::new();
    for name in ["", "polity.yaml", "agents", "agents/greeter.yaml", "scripts/greeter.yaml"] {
        // Joining an empty name would add a trailing slash.
        let path = if name.is_empty() { sandbox.path().to_owned() } else { sandbox.file(name) };
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        set_mode(&path, mode | 0o002);
        expect_refusal(&sandbox, &path, "every user may write to it");
        set_mode(&path, mode);
    }
    sandbox.polity(&["run", "greeter", "Ada"]).prints("Hello, Ada.\n");
}

#[test]
fn home_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root may change the owner of a file.
        return;
    }
    let sandbox = HomeSandbox::new();
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let is_named = users.lines().any(|line| line.starts_with("nobody:x:65534:"));
    let user = if is_named { "nobody, uid 65534" } else { "uid 65534" };
    let reason = format!("it belongs to another user ({user})");
    for name in ["polity.yaml", "agents", "agents/greeter.yaml"] {
        let path = sandbox.file(name);
        chown(&path, Some(NOBODY), None).unwrap();
        expect_refusal(&sandbox, &path, &reason);
        chown(&path, Some(0), None).unwrap();
    }
}

#[test]
fn home_in_the_folder_of_the_user_is_checked_too() {
    let sandbox = HomeSandbox::new();
    let user = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(sandbox.path(), user.path().join(".polity")).unwrap();
    let run = || {
        let mut command = sandbox.command(&["run", "greeter", "Ada"]);
        command.current_dir("/").env("HOME", user.path()).output().unwrap()
    };
    assert!(run().status.success());
    set_mode(&sandbox.file("agents"), 0o777);
    let output = run();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("agents: every user may write to it"), "{stderr}");
}

/// Runs an agent of a home that was found. Returns the errors.
fn run_below(sandbox: &HomeSandbox, agent: &str) -> (Option<i32>, String) {
    let below = sandbox.file("below");
    fs::create_dir_all(&below).unwrap();
    let output = sandbox.command(&["-q", "run", agent, "x"]).current_dir(&below).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn program_in_a_found_home_that_others_may_write_to_is_not_run() {
    let sandbox = HomeSandbox::new();
    sandbox.write("tools/own.sh", "#!/bin/sh\necho done\n");
    set_mode(&sandbox.file("tools/own.sh"), 0o755);
    std::os::unix::fs::symlink("tools/own.sh", sandbox.file("link.sh")).unwrap();
    for (name, path) in [("tool", "./tools/own.sh"), ("linked", "./link.sh")] {
        let file = format!("{{name: {name}, kind: cli, executable_path: {path}}}");
        sandbox.write(&format!("agents/{name}.yaml"), &file);
    }
    sandbox.write_scripted_agent("worker", ", tools: [kit/*]");
    sandbox.write("scripts/worker.yaml", "default: {reply: done}");
    let server = "{name: kit, transport: stdio, config: {command: ./tools/own.sh}}";
    sandbox.write("config/mcp_servers.yaml", &format!("servers: [{server}]"));
    for (path, mode) in [("tools/own.sh", 0o777), ("tools", 0o777)] {
        let path = sandbox.file(path);
        set_mode(&path, mode);
        for agent in ["tool", "linked", "worker"] {
            let (code, stderr) = run_below(&sandbox, agent);
            assert_ne!(code, Some(0), "{agent}: {stderr}");
            let reason = format!("{}: every user may write to it", path.display());
            assert!(stderr.contains(&reason) && stderr.contains("--home"), "{agent}: {stderr}");
        }
        set_mode(&path, 0o755);
    }
    assert_eq!(run_below(&sandbox, "tool").0, Some(0));
    // A home named by `--home` is trusted.
    set_mode(&sandbox.file("tools/own.sh"), 0o777);
    let home = sandbox.path().to_str().unwrap();
    sandbox.polity(&["-q", "run", "tool", "x", "--home", home]).prints("done\n");
}

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
    for name in ["polity.yaml", "agents", "agents/greeter.yaml"] {
        let path = sandbox.file(name);
        chown(&path, Some(NOBODY), None).unwrap();
        expect_refusal(&sandbox, &path, "it belongs to another user (uid 65534)");
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

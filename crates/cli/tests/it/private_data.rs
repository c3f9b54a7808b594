//! The files of a home are private to its user, whatever the umask is and whatever was there before.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::sandbox::{CommandOutput, HomeSandbox, command_output, finish};

/// Runs the program with a umask that gives everyone access.
fn polity_with_open_umask(sandbox: &HomeSandbox, args: &[&str]) -> CommandOutput {
    let program = env!("CARGO_BIN_EXE_polity");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", program]).args(args);
    command.current_dir(sandbox.path()).env_remove("POLITY_HOME");
    command_output(&command.output().unwrap()).exits(0)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

/// A path and everything below it to which other users have access. Workspaces keep the modes of
/// their origin; the folder of all workspaces is private.
fn open_to_others(path: &Path) -> Vec<PathBuf> {
    let metadata = fs::symlink_metadata(path).unwrap();
    let mut open = Vec::new();
    if metadata.mode() & 0o077 != 0 {
        open.push(path.to_owned());
    }
    if metadata.is_dir() && !path.ends_with("data/workspaces") {
        for entry in fs::read_dir(path).unwrap() {
            open.extend(open_to_others(&entry.unwrap().path()));
        }
    }
    open
}

#[track_caller]
fn assert_private(sandbox: &HomeSandbox, paths: &[&str]) {
    for path in paths {
        assert_eq!(open_to_others(&sandbox.file(path)), Vec::<PathBuf>::new());
    }
}

fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    let fields = ", workspace: copy, artifacts: [made.txt], deduplicate_seconds: 60, \
                  input_pattern: file";
    let script = "echo told; echo warned >&2; echo made > made.txt; cat $1";
    let agent = format!(
        "{{name: maker, kind: cli, executable_path: sh, working_directory: project, \
          cli_args: [-c, '{script}', x, '{{{{input_file}}}}']{fields}}}"
    );
    sandbox.write("agents/maker.yaml", &agent);
    sandbox.write("project/here.txt", "");
    sandbox
}

#[test]
fn no_command_leaves_a_file_that_others_can_read() {
    let sandbox = home();
    let polity = |args: &[&str]| polity_with_open_umask(&sandbox, args);
    polity(&["run", "greeter", "Ada", "--record", "cassette.json"]);
    polity(&["run", "maker", "sk-proj-Zk3Jd8sQ1mP0vX7yT4uW9rB2nC5eH6gL", "--env", "TOKEN=secret"]);
    polity(&["backup", "backup.db"]);
    polity(&["task", "export", "last", "--out", "archive/of/tasks"]);
    polity(&["restore", "backup.db"]);
    polity(&["run", "greeter", "again"]);
    polity(&["agent", "disable", "greeter"]);
    polity(&["gc"]);
    assert_private(&sandbox, &["data", "cassette.json", "backup.db", "archive"]);
    let found = |path: &str| fs::read_dir(sandbox.file(path)).unwrap().count() > 0;
    assert!(["output", "workspaces", "places"].iter().all(|name| found(&format!("data/{name}"))));
}

#[test]
fn simulations_are_private() {
    let sandbox = HomeSandbox::society();
    let polity = |args: &[&str]| polity_with_open_umask(&sandbox, args);
    polity(&["sim", "run", "society", "--turns", "3"]);
    polity(&["sim", "run", "society", "--turns", "3", "--out", "elsewhere"]);
    polity(&["sim", "fork", "last", "--at", "1"]);
    assert_private(&sandbox, &["data", "elsewhere"]);
}

#[test]
fn files_of_a_running_process_are_private() {
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("slow", "echo > began; sleep 1000", "");
    let program = env!("CARGO_BIN_EXE_polity");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", program]);
    command.args(["run", "slow", "x", "--env", "TOKEN=some-secret-value"]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let running = command.current_dir(sandbox.path()).spawn().unwrap();
    sandbox.wait_until("it runs", || sandbox.file("began").exists().then_some(()));
    for name in ["polity.db", "polity.db-wal", "polity.db-shm", "polity.db.lock"] {
        assert_eq!(mode(&sandbox.file("data").join(name)), 0o600, "{name}");
    }
    for name in ["instances", "keys", "places", "runs"] {
        assert!(fs::read_dir(sandbox.file("data").join(name)).unwrap().count() > 0, "{name}");
    }
    assert_private(&sandbox, &["data"]);
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    finish(running).exits(4);
}

#[test]
fn open_data_folder_is_mended_and_reported_once() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    fs::create_dir_all(sandbox.file("data/output/deep")).unwrap();
    fs::write(sandbox.file("data/output/deep/stdout"), "text").unwrap();
    let outside = sandbox.file("outside.txt");
    fs::write(&outside, "mine").unwrap();
    symlink(&outside, sandbox.file("data/link")).unwrap();
    set_mode(&outside, 0o644);
    for path in ["", "/polity.db", "/output", "/output/deep", "/output/deep/stdout"] {
        set_mode(&sandbox.file(&format!("data{path}")), 0o777);
    }
    let warned =
        sandbox.polity(&["-q", "task", "list"]).exits(0).err_has("was open to other users");
    assert!(warned.err.contains("5 files and folders are private now"), "{warned:?}");
    fs::remove_file(sandbox.file("data/link")).unwrap();
    assert_private(&sandbox, &["data"]);
    assert_eq!(mode(&outside), 0o644);
    assert_eq!(sandbox.polity(&["-q", "task", "list"]).err, "");
}

#[test]
fn open_data_folder_made_before_the_first_command_is_mended() {
    for args in [&["run", "greeter", "Ada"][..], &["sim", "run", "society", "--turns", "1"]] {
        let sandbox = HomeSandbox::society();
        sandbox.write_scripted_agent("greeter", "");
        sandbox.write("scripts/greeter.yaml", "{default: {reply: hello}}");
        fs::create_dir(sandbox.file("data")).unwrap();
        set_mode(&sandbox.file("data"), 0o777);
        sandbox.polity(args).exits(0).err_has("was open to other users");
        assert_private(&sandbox, &["data"]);
    }
}

#[test]
fn data_folder_behind_a_link_must_be_private() {
    let sandbox = HomeSandbox::new();
    fs::create_dir(sandbox.file("disk")).unwrap();
    symlink("disk", sandbox.file("data")).unwrap();
    set_mode(&sandbox.file("disk"), 0o755);
    sandbox.polity(&["run", "greeter", "Ada"]).fails(2, "is a link to a folder").err_has("chmod");
    assert_eq!(mode(&sandbox.file("disk")), 0o755);
    set_mode(&sandbox.file("disk"), 0o700);
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
}

#[test]
fn data_folder_of_another_user_is_refused() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    let given_away = std::os::unix::fs::chown(sandbox.file("data"), Some(12345), None);
    if given_away.is_err() {
        // Only root can give a folder away.
        return;
    }
    for args in [&["task", "list"][..], &["run", "greeter", "Ada"], &["backup", "b.db"]] {
        sandbox.polity(args).fails(2, "belongs to another user (uid 12345)");
    }
}

#[test]
fn database_that_another_user_put_into_an_open_data_folder_is_refused() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    set_mode(&sandbox.file("data"), 0o777);
    let database = sandbox.file("data/polity.db");
    if std::os::unix::fs::chown(&database, Some(12345), None).is_err() {
        return;
    }
    // The second attempt finds it as well.
    for args in [&["task", "resume", "--all"][..], &["task", "list"]] {
        sandbox.polity(args).fails(2, "polity.db belongs to another user (uid 12345)");
    }
    std::os::unix::fs::chown(&database, Some(0), None).unwrap();
    sandbox.polity(&["task", "list"]).exits(0).err_has("was open to other users");
}

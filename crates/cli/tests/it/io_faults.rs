//! Read-only homes and full disks.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use polity_testkit::secret_files::all_files;

use crate::sandbox::{CommandOutput, HomeSandbox, command_output, kill};

/// Runs the program as a user without write access: root switches to nobody.
fn polity_as_nobody(sandbox: &HomeSandbox, args: &[&str]) -> CommandOutput {
    let program = env!("CARGO_BIN_EXE_polity");
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        // The user nobody may lack access to the build folder.
        let copy = sandbox.file("polity-program");
        if !copy.exists() {
            fs::copy(program, &copy).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(sandbox.path()).args(args).stdin(Stdio::null());
    command_output(&command.output().unwrap())
}

fn allow(sandbox: &HomeSandbox, mode: u32) {
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn read_only_home_is_an_error() {
    let sandbox = HomeSandbox::new();
    allow(&sandbox, 0o755);
    if rustix::process::geteuid().is_root() {
        // The program must be copied before the folder becomes read-only.
        allow(&sandbox, 0o755);
    }
    polity_as_nobody(&sandbox, &["--version"]).exits(0);
    allow(&sandbox, 0o555);
    let output = polity_as_nobody(&sandbox, &["run", "greeter", "Ada", "--json"]);
    allow(&sandbox, 0o755);
    let error = output.exits(1).error();
    assert_eq!(error.code, "not_writable");
    assert!(error.hint.contains("permissions"), "{error:?}");
    assert!(!sandbox.file("data").exists());
}

#[test]
fn queries_work_on_a_read_only_home() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]);
    polity_as_nobody(&sandbox, &["--version"]).exits(0);
    let data = sandbox.file("data");
    if rustix::process::geteuid().is_root() {
        // The files of a home are private, so the user must own them to read them.
        let nobody = Some(65534);
        for path in all_files(&data).iter().chain([&data, &sandbox.file("data/instances")]) {
            std::os::unix::fs::chown(path, nobody, nobody).unwrap();
        }
    }
    for path in [data.clone(), sandbox.path().to_owned(), sandbox.file("data/instances")] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let listed = polity_as_nobody(&sandbox, &["task", "list"]);
    let refused = polity_as_nobody(&sandbox, &["run", "greeter", "Bo"]);
    for path in [sandbox.path().to_owned(), data] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.contains("completed"), "{listed:?}");
    assert_eq!(refused.code, 1, "{refused:?}");
}

/// Simulates a full disk by limiting files to 100 kB. The program reads the file `input` on stdin.
fn on_a_full_disk(sandbox: &HomeSandbox, args: &str) -> CommandOutput {
    let program = env!("CARGO_BIN_EXE_polity");
    let script = format!("trap '' XFSZ; ulimit -f 100; exec {program} {args}");
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(sandbox.path())
        .stdin(fs::File::open(sandbox.file("input")).unwrap())
        .output();
    command_output(&output.unwrap())
}

/// Commands that only read.
const READING: [&[&str]; 9] = [
    &["task", "list"],
    &["task", "show", "last"],
    &["task", "trace", "last"],
    &["task", "checkpoints", "last"],
    &["execution", "list"],
    &["agent", "list"],
    &["agent", "status", "greeter"],
    &["review", "list"],
    &["cost"],
];

/// A folder on a small file system of its own. None if this user may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(kilobytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={kilobytes}k,mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }

    /// Leaves no free byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.path().join("filler")).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn queries_work_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(4000) else {
        eprintln!("skipped: this user may not mount a small file system");
        return;
    };
    let sandbox = HomeSandbox::new();
    let data = sandbox.file("data");
    std::os::unix::fs::symlink(disk.0.path(), &data).unwrap();
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    // Killed in the middle of a task, so that the log of the database stays.
    let mut child = sandbox.start(&["run", "greeter", "slow"]);
    sandbox.wait_for_status("running");
    kill(&mut child);
    disk.fill();
    for args in READING {
        sandbox.polity(args).exits(0);
    }
    let statuses: Vec<_> =
        sandbox.tasks().iter().map(|task| task["status"].as_str().unwrap().to_owned()).collect();
    assert_eq!(statuses, ["running", "completed"]);
    let refused = sandbox.polity(&["run", "greeter", "Bo", "--json"]).exits(1);
    assert!(["disk_full", "store_failed"].contains(&&*refused.error().code), "{refused:?}");
    fs::remove_file(disk.0.path().join("filler")).unwrap();
    sandbox.polity(&["task", "cancel", "last"]);
    sandbox.polity(&["run", "greeter", "Bo"]).prints("Hello, Bo.\n");
}

#[test]
fn failed_restore_leaves_no_files() {
    let sandbox = HomeSandbox::new();
    sandbox.write("input", "");
    sandbox.polity_with_input(&["run", "greeter", "-"], "x".repeat(300_000).as_bytes());
    sandbox.polity(&["backup", "large.db"]).exits(0);
    sandbox.polity(&["run", "greeter", "Ada"]);
    let files = || {
        let names = fs::read_dir(sandbox.file("data")).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    let output = on_a_full_disk(&sandbox, "restore large.db --json").exits(1);
    assert_eq!(output.error().code, "disk_full", "{output:?}");
    assert_eq!(files(), before);
    assert_eq!(sandbox.tasks().len(), 2);
}

#[test]
fn task_resumes_after_a_full_disk() {
    let sandbox = HomeSandbox::new();
    let answer = "y".repeat(300_000);
    sandbox.write(
        "scripts/greeter.yaml",
        &format!(
            "rules: [{{when: long, reply: \"{answer}\"}}]\ndefault: {{reply: \"Hello, $input.\"}}"
        ),
    );
    sandbox.polity(&["run", "greeter", "Ada"]);
    let limited = |args: &str| on_a_full_disk(&sandbox, args);
    sandbox.write("input", &"x".repeat(300_000));
    let refused = limited("run greeter - --json").exits(1);
    assert!(["disk_full", "store_failed"].contains(&&*refused.error().code), "{refused:?}");
    assert_eq!(sandbox.tasks().len(), 1, "the failed run left a task");

    // The task starts, but its answer does not fit on the disk.
    limited("run greeter long --json").exits(1);
    let task = &sandbox.tasks()[0];
    assert_eq!((task["status"].as_str(), &task["interrupted"]), (Some("running"), &true.into()));
    let resumed = sandbox.polity(&["task", "resume", "last"]);
    assert_eq!((resumed.code, resumed.out.trim_end()), (0, answer.as_str()));
    assert_eq!(sandbox.polity(&["run", "greeter", "Bo"]).out, "Hello, Bo.\n");
}

#[test]
fn fifos_in_the_data_folder_hold_no_command() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    fs::create_dir_all(sandbox.file("data/keys")).unwrap();
    let fifos = [
        "data/instances/5f0c1d6e-3b7a-4c58-9e2d-0123456789ab.lock",
        "data/keys/0123456789abcdef0123456789abcdef",
    ];
    for fifo in fifos {
        let (path, mode) = (sandbox.file(fifo), rustix::fs::Mode::RWXU);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
    }
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    sandbox.polity(&["task", "list"]).exits(0);
    for fifo in fifos {
        assert!(!sandbox.file(fifo).exists(), "{fifo}");
    }
}

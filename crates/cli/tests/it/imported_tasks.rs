//! Imported tasks run nothing until a person trusts them.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::reviews::{count_lines, home_awaiting_review};
use crate::sandbox::{HomeSandbox, kill};

/// An archive with an unfinished task, whose shell command leaves a line in a file.
struct UnfinishedArchive {
    _from: HomeSandbox,
    /// The file with a line for each run of the command.
    ran: PathBuf,
    out: PathBuf,
    id: String,
}

impl UnfinishedArchive {
    /// Runs the command, kills its Polity, and exports the task.
    fn new() -> Self {
        let from = HomeSandbox::bare();
        let (ran, go) = (from.file("ran"), from.file("go"));
        let script = format!(
            "echo x >> {ran}; until [ -e {go} ]; do sleep 0.02; done; echo done",
            ran = ran.display(),
            go = go.display()
        );
        let fields = ", idempotent: true, envs: {LD_PRELOAD: /evil.so}, env_allow: [MY_TOKEN]";
        from.write_shell_agent("coder", &script, fields);
        let mut child = from.start(&["run", "coder", "x"]);
        from.wait_until("it runs", || ran.exists().then_some(()));
        let id = from.wait_for_status("running");
        kill(&mut child);
        let out = from.file("out");
        from.polity(&["task", "export", &id, "--out", out.to_str().unwrap()]).exits(0);
        fs::write(go, "").unwrap();
        Self { _from: from, ran, out, id }
    }

    fn runs(&self) -> usize {
        fs::read_to_string(&self.ran).unwrap().lines().count()
    }

    fn import(&self) -> HomeSandbox {
        let to = HomeSandbox::bare();
        to.polity(&["task", "import", self.out.to_str().unwrap()]).exits(0);
        to
    }
}

#[test]
fn resume_all_runs_no_imported_task() {
    let archive = UnfinishedArchive::new();
    let to = archive.import();
    let output = to.polity(&["task", "resume", "--all"]);
    assert_eq!((output.code, output.out.as_str()), (0, "nothing to resume\n"), "{output:?}");
    assert!(output.err.contains("1 imported task not resumed"), "{output:?}");
    assert_eq!(to.get(&["task", "show", &archive.id])["needs_trust"], true);
    assert_eq!(archive.runs(), 1);
}

#[test]
fn imported_task_runs_only_with_trust_and_lists_what_it_would_run() {
    let archive = UnfinishedArchive::new();
    let to = archive.import();
    let refused = to.polity(&["task", "resume", &archive.id]);
    assert_eq!((refused.code, archive.runs()), (2, 1), "{refused:?}");
    for told in ["sh -c 'echo x >> ", "LD_PRELOAD=/evil.so", "MY_TOKEN", "--trust"] {
        assert!(refused.err.contains(told), "{told}: {refused:?}");
    }
    let refused = to.polity(&["--json", "task", "resume", &archive.id]);
    let error: Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!(error["error"]["code"], "untrusted");
    assert_eq!(error["error"]["access"][0]["command"][0], "sh");

    to.polity(&["task", "resume", &archive.id, "--trust"]).exits(0).out_has("done");
    assert_eq!(archive.runs(), 2);
    assert!(to.step_names(&archive.id).contains(&"trusted".to_owned()));
}

#[test]
fn import_lists_commands_and_variables() {
    let archive = UnfinishedArchive::new();
    let folder = archive.out.to_str().unwrap();
    let told = HomeSandbox::bare().polity(&["task", "import", folder]);
    for part in ["sh -c 'echo x >> ", "LD_PRELOAD=/evil.so", "MY_TOKEN", "--trust"] {
        assert!(told.out.contains(part), "{part}: {told:?}");
    }
    let told = HomeSandbox::bare().get(&["task", "import", folder]);
    let access = &told["untrusted"][0];
    assert_eq!(access["task_id"], archive.id.as_str());
    assert_eq!(access["access"][0]["variables"], json!(["LD_PRELOAD=/evil.so", "MY_TOKEN"]));
    assert_eq!(archive.runs(), 1);
}

/// Runs a task to its end and exports it.
fn ended_task() -> (HomeSandbox, PathBuf, String) {
    let from = HomeSandbox::new();
    let task = from.get(&["run", "greeter", "Ada"]);
    let id = task["id"].as_str().unwrap().to_owned();
    let out = from.file("out");
    from.polity(&["task", "export", &id, "--out", out.to_str().unwrap()]).exits(0);
    (from, out, id)
}

#[test]
fn trust_of_another_home_does_not_count() {
    let (_from, out, id) = ended_task();
    let to = HomeSandbox::bare();
    to.polity(&["task", "import", out.to_str().unwrap()]).exits(0);
    to.polity(&["task", "fork", &id, "--from", "0", "--trust"]).exits(0);
    let again = to.file("again");
    to.polity(&["task", "export", &id, "--out", again.to_str().unwrap()]).exits(0);
    let third = HomeSandbox::bare();
    third.polity(&["task", "import", again.to_str().unwrap()]).exits(0);
    third.polity(&["task", "fork", &id, "--from", "0"]).fails(2, "--trust");
}

#[test]
fn mark_of_an_imported_task_survives_backup_and_restore() {
    let archive = UnfinishedArchive::new();
    let to = archive.import();
    let backup = to.file("copy.db");
    to.polity(&["backup", backup.to_str().unwrap()]).exits(0);
    let restored = HomeSandbox::bare();
    restored.polity(&["restore", backup.to_str().unwrap()]).exits(0);
    restored.polity(&["task", "resume", "--all"]).exits(0);
    restored.polity(&["task", "resume", &archive.id]).fails(2, "--trust");
    assert_eq!(archive.runs(), 1);
    // A second import of the same archive changes nothing.
    let folder = archive.out.to_str().unwrap();
    assert_eq!(restored.get(&["task", "import", folder])["present"], json!([archive.id]));
    restored.polity(&["task", "resume", &archive.id, "--trust"]).exits(0);
    assert_eq!(archive.runs(), 2);
}

#[test]
fn imported_review_is_answered_only_with_trust() {
    let (from, id) = home_awaiting_review();
    let out = from.file("out");
    from.polity(&["task", "export", &id, "--out", out.to_str().unwrap()]).exits(0);
    let to = HomeSandbox::bare();
    fs::create_dir_all(to.file("config")).unwrap();
    fs::copy(from.file("config/mcp_servers.yaml"), to.file("config/mcp_servers.yaml")).unwrap();
    to.polity(&["task", "import", out.to_str().unwrap()]).exits(0);
    for args in [
        ["review", "approve", &id].as_slice(),
        &["review", "approve", &id, "--detach"],
        &["review", "reject", &id],
    ] {
        to.polity(args).fails(2, "--trust");
    }
    assert_eq!(to.get(&["task", "show", &id])["status"], "awaiting_human");
    assert_eq!(count_lines(&to, "a"), 0);
    to.polity(&["review", "approve", &id, "--trust"]).exits(0);
    assert_eq!(count_lines(&to, "a"), 1);
}

#[test]
fn fork_of_an_imported_task_needs_trust() {
    let (_from, out, id) = ended_task();
    let to = HomeSandbox::bare();
    to.polity(&["task", "import", out.to_str().unwrap()]).exits(0);
    let id = id.as_str();
    let fork = ["task", "fork", id, "--from", "0"];
    let before = to.tasks().len();
    to.polity(&fork).fails(2, "--trust");
    to.polity(&[fork.as_slice(), &["--detach"]].concat()).fails(2, "--trust");
    assert_eq!(to.tasks().len(), before);
    to.polity(&[fork.as_slice(), &["--trust"]].concat()).exits(0);
    // Trust is given once, and counts for the next fork.
    to.polity(&fork).exits(0);
}

#[test]
fn cancel_of_an_imported_task_runs_nothing() {
    let archive = UnfinishedArchive::new();
    let to = archive.import();
    to.polity(&["task", "cancel", &archive.id]).exits(0);
    assert_eq!(to.get(&["task", "show", &archive.id])["status"], "cancelled");
    assert_eq!(archive.runs(), 1);
}

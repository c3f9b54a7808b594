//! Secrets in the input of a task are in no file of the home, also after kills and cancels.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use polity_testkit::secret_files::files_with_secret;

use crate::sandbox::{HomeSandbox, finish, kill};

const IN_INPUT: &str = "sk-proj-Zk3Jd8sQ1mP0vX7yT4uW9rB2nC5eH6gL";
const IN_PARAM: &str = "canary-parameter-0123456789";
const IN_ENV: &str = "canary-variable-9876543210";

/// A home with an agent that runs until a file appears.
fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    let script =
        "cat; echo \"$TOKEN\"; echo > began; while ! [ -e go ]; do sleep 0.05; done; exit 0";
    sandbox.write_shell_agent("waits", script, ", access_type: read-only");
    sandbox
}

fn start(sandbox: &HomeSandbox) -> Child {
    let input = format!("the key is {IN_INPUT}");
    let (param, env) = (format!("password={IN_PARAM}"), format!("TOKEN={IN_ENV}"));
    let running = sandbox.start(&["run", "waits", &input, "--param", &param, "--env", &env]);
    sandbox.wait_until("it runs", || sandbox.file("began").exists().then_some(()));
    running
}

/// A reader whose open transaction keeps everything in the write-ahead log.
fn open_reader(sandbox: &HomeSandbox) -> rusqlite::Connection {
    let reader = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    reader
}

#[track_caller]
fn assert_no_secret(sandbox: &HomeSandbox) {
    for secret in [IN_INPUT, IN_PARAM, IN_ENV] {
        let files = files_with_secret(sandbox.path(), secret);
        assert_eq!(files, Vec::<PathBuf>::new(), "{secret}");
    }
}

fn keys(sandbox: &HomeSandbox) -> usize {
    fs::read_dir(sandbox.file("data/keys")).unwrap().count()
}

#[test]
fn secrets_of_a_completed_task_are_in_no_file() {
    let sandbox = home();
    let running = start(&sandbox);
    let reader = open_reader(&sandbox);
    assert_no_secret(&sandbox);
    assert_eq!(keys(&sandbox), 1);
    sandbox.write("go", "");
    finish(running).exits(0).out_has("the key is ***");
    assert_eq!(keys(&sandbox), 0);
    assert_no_secret(&sandbox);
    drop(reader);
    assert_no_secret(&sandbox);
}

#[test]
fn secrets_of_a_task_cancelled_by_another_process_are_in_no_file() {
    let sandbox = home();
    let running = start(&sandbox);
    let _reader = open_reader(&sandbox);
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    finish(running).exits(4);
    assert_eq!(keys(&sandbox), 0);
    assert_no_secret(&sandbox);
}

#[test]
fn secrets_of_a_killed_task_are_in_no_file_and_the_task_resumes() {
    let sandbox = home();
    let mut running = start(&sandbox);
    let _reader = open_reader(&sandbox);
    kill(&mut running);
    assert_no_secret(&sandbox);
    sandbox.write("go", "");
    // The resumed run has the secrets again, and masks them.
    let resumed = sandbox.polity(&["task", "resume", "last"]).exits(0);
    assert!(resumed.out.contains("the key is ***"), "{resumed:?}");
    assert_eq!(keys(&sandbox), 0);
    assert_no_secret(&sandbox);
}

#[test]
fn secrets_of_a_killed_and_cancelled_task_are_in_no_file() {
    let sandbox = home();
    let mut running = start(&sandbox);
    kill(&mut running);
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    assert_eq!(keys(&sandbox), 0);
    assert_no_secret(&sandbox);
}

#[test]
fn killed_backup_has_no_secret() {
    let sandbox = home();
    let running = start(&sandbox);
    let database = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
    // The copy takes long enough to be killed.
    database.execute_batch(
        "CREATE TABLE ballast AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
         WHERE i < 30000) SELECT i, randomblob(1000) FROM n;",
    )
    .unwrap();
    let unfinished = sandbox.file("backup.db.unfinished");
    let mut backup = sandbox.start(&["backup", "backup.db"]);
    sandbox.wait_until("the backup grows", || {
        let has_content = fs::metadata(&unfinished).is_ok_and(|copy| copy.len() > 0);
        (has_content || sandbox.file("backup.db").exists()).then_some(())
    });
    kill(&mut backup);
    assert_no_secret(&sandbox);
    if !sandbox.file("backup.db").exists() {
        sandbox.polity(&["backup", "backup.db"]).exits(0);
    }
    assert!(!unfinished.exists());
    assert_no_secret(&sandbox);
    sandbox.write("go", "");
    finish(running).exits(0);
}

#[test]
fn restored_task_without_its_secrets_fails_with_the_reason() {
    let sandbox = home();
    let mut running = start(&sandbox);
    sandbox.polity(&["backup", "backup.db"]).exits(0);
    kill(&mut running);
    sandbox.polity(&["restore", "backup.db"]).exits(0);
    sandbox.write("go", "");
    let resumed = sandbox.polity(&["task", "resume", "last"]);
    resumed.exits(1).err_has("contained secrets and is lost");
    let task = &sandbox.tasks()[0];
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error_code"], "system_error");
    assert_eq!(keys(&sandbox), 0);
}

#[test]
fn killed_run_leaves_no_input_file_once_its_task_has_ended() {
    let sandbox = HomeSandbox::new();
    let script = "echo > began; while ! [ -e go ]; do sleep 0.05; done";
    sandbox.write_shell_agent("reads", script, ", input_pattern: file");
    let mut running = sandbox.start(&["run", "reads", &format!("the key is {IN_INPUT}")]);
    sandbox.wait_until("it runs", || sandbox.file("began").exists().then_some(()));
    let files = files_with_secret(sandbox.path(), IN_INPUT);
    let [input] = files.as_slice() else { panic!("{files:?}") };
    kill(&mut running);
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    assert_no_secret(&sandbox);
    // An earlier version, or a process that died, may have left the file of an ended task.
    fs::create_dir(input.parent().unwrap()).unwrap();
    fs::write(input, IN_INPUT).unwrap();
    sandbox.polity(&["gc"]).exits(0);
    assert_no_secret(&sandbox);
}

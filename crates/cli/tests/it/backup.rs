//! `polity backup`, `polity restore`, and a database that cannot be used.

use std::fs;

use crate::sandbox::HomeSandbox;

#[test]
fn backup_round_trips() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["backup", "b.db"]).exits(1);
    sandbox.polity(&["run", "greeter", "one"]);
    sandbox.polity(&["backup", "b.db"]).exits(0);
    sandbox.polity(&["backup", "b.db"]).exits(1);

    sandbox.polity(&["run", "greeter", "two"]);
    assert_eq!(sandbox.tasks().len(), 2);
    let output = sandbox.polity(&["restore", "b.db"]);
    output.exits(0).out_has("kept as data/polity.db.before-restore-1");
    assert_eq!(sandbox.tasks().len(), 1);
    sandbox.polity(&["run", "greeter", "three"]).exits(0);
}

#[test]
fn restore_is_rejected_while_a_process_runs() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "one"]);
    sandbox.polity(&["backup", "b.db"]);
    let mut running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    sandbox.polity(&["restore", "b.db"]).fails(1, "is in use by another process");
    sandbox.polity(&["task", "cancel", &id]);
    running.wait().unwrap();
}

#[test]
fn database_is_private_to_its_user() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "one"]);
    let mode = fs::metadata(sandbox.file("data")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn invalid_backup_changes_nothing() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "one"]);
    sandbox.write("junk.db", "junk");
    for file in ["junk.db", "missing.db"] {
        sandbox.polity(&["restore", file]).exits(1);
    }
    assert_eq!(sandbox.tasks().len(), 1);
}

#[test]
fn restore_of_a_fifo_names_its_type() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "one"]);
    let made = std::process::Command::new("mkfifo").arg(sandbox.file("pipe.db")).status().unwrap();
    assert!(made.success());
    for (file, reason) in [
        ("pipe.db", "pipe.db: it is a FIFO, not a regular file"),
        ("agents", "agents: it is a folder, not a regular file"),
        ("missing.db", "there is no missing.db"),
    ] {
        let output = sandbox.polity(&["restore", file]).fails(1, reason);
        assert!(output.err.contains("nothing was changed"), "{output:?}");
    }
    assert_eq!(sandbox.tasks().len(), 1);
}

#[test]
fn damaged_database_is_reported_and_untouched() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "one"]);
    let database = sandbox.file("data/polity.db");
    fs::write(&database, "overwritten by accident").unwrap();
    for args in [vec!["run", "greeter", "two"], vec!["task", "list"]] {
        let error = sandbox.error(1, &args);
        assert_eq!(error.code, "store_damaged");
        assert!(error.hint.contains("polity restore"), "{error:?}");
    }
    assert_eq!(fs::read_to_string(&database).unwrap(), "overwritten by accident");
}

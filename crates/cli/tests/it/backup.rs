//! `polity backup`, `polity restore`, and a database that cannot be used.

use std::fs;

use crate::sandbox::HomeSandbox;

#[test]
fn backup_round_trips() {
    let sandbox = HomeSandbox::new();
    let nothing = sandbox.polity(&["backup", "b.db"]);
    assert_eq!(nothing.code, 1, "{nothing:?}");
    sandbox.polity(&["run", "greeter", "one"]);
    let output = sandbox.polity(&["backup", "b.db"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(sandbox.polity(&["backup", "b.db"]).code, 1);

    sandbox.polity(&["run", "greeter", "two"]);
    assert_eq!(sandbox.tasks().len(), 2);
    let output = sandbox.polity(&["restore", "b.db"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("kept as data/polity.db.before-restore-1"), "{output:?}");
    assert_eq!(sandbox.tasks().len(), 1);
    assert_eq!(sandbox.polity(&["run", "greeter", "three"]).code, 0);
}

#[test]
fn restore_is_rejected_while_a_process_runs() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "one"]);
    sandbox.polity(&["backup", "b.db"]);
    let mut running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    let output = sandbox.polity(&["restore", "b.db"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("is in use by another process"), "{output:?}");
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
        assert_eq!(sandbox.polity(&["restore", file]).code, 1);
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
        let output = sandbox.polity(&[args.as_slice(), &["--json"]].concat());
        assert_eq!((output.code, output.error()["code"].as_str()), (1, Some("store_damaged")));
        assert!(output.error()["hint"].as_str().unwrap().contains("polity restore"), "{output:?}");
    }
    assert_eq!(fs::read_to_string(&database).unwrap(), "overwritten by accident");
}

//! Several processes on one home: concurrent, sequential and conflicting.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;

use crate::sandbox::{HomeSandbox, finish, kill};

fn signal(child: &Child, signal: &str) {
    let sent = std::process::Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

#[test]
fn concurrent_runs_on_one_home_succeed() {
    let sandbox = HomeSandbox::new();
    let children: Vec<_> =
        (0..8).map(|number| sandbox.start(&["run", "greeter", &format!("n{number}")])).collect();
    for (number, child) in (0..).zip(children) {
        let output = finish(child);
        assert_eq!(
            (output.code, output.out),
            (0, format!("Hello, n{number}.\n")),
            "{}",
            output.err
        );
    }
    let tasks = sandbox.tasks();
    assert_eq!(tasks.len(), 8);
    assert!(tasks.iter().all(|task| task["status"] == "completed"));
}

/// The number of processes that start at once.
fn many() -> usize {
    if std::env::var_os("POLITY_TEST_LONG").is_some() { 1000 } else { 60 }
}

/// Starts runs at once and expects all of them to succeed.
fn assert_all_run(sandbox: &HomeSandbox) {
    let start = |number| {
        let mut command = sandbox.command(&["-q", "run", "greeter", &format!("n{number}")]);
        (number, command.spawn().unwrap())
    };
    let children: Vec<_> = (0..many()).map(start).collect();
    for (number, child) in children {
        finish(child).prints(&format!("Hello, n{number}.\n"));
    }
}

#[test]
fn no_process_of_many_gives_up_on_a_busy_database() {
    let sandbox = HomeSandbox::new();
    assert_all_run(&sandbox);
    let database = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
    let sql = "SELECT count(*) FROM tasks WHERE status = 'completed'";
    let completed: usize = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(completed, many());
}

#[test]
fn no_process_of_many_gives_up_on_an_older_database() {
    let sandbox = HomeSandbox::new();
    let journal = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals/0.1.0.db");
    std::fs::create_dir(sandbox.file("data")).unwrap();
    std::fs::copy(journal, sandbox.file("data/polity.db")).unwrap();
    assert_all_run(&sandbox);
}

#[test]
fn cancel_works_from_another_process() {
    let sandbox = HomeSandbox::new();
    let running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    let (task, code) = sandbox.json(&["task", "cancel", &id]);
    assert_eq!((code, task["status"].as_str()), (0, Some("cancelled")));
    finish(running).fails(4, "cancel requested");
}

#[test]
fn ctrl_c_cancels() {
    let sandbox = HomeSandbox::new();
    let running = sandbox.start(&["run", "greeter", "slow"]);
    sandbox.wait_for_status("running");
    signal(&running, "-INT");
    finish(running).exits(4);
    assert_eq!(sandbox.tasks()[0]["status"], "cancelled");
}

#[test]
fn resume_rejects_a_task_with_a_live_owner() {
    let sandbox = HomeSandbox::new();
    let mut running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    assert_eq!(sandbox.tasks()[0]["interrupted"], false);
    sandbox.polity(&["task", "resume", &id]).fails(1, "is running in another process");
    assert_eq!(sandbox.polity(&["task", "resume", "--all"]).out, "nothing to resume\n");
    sandbox.polity(&["task", "cancel", &id]);
    running.wait().unwrap();
}

#[test]
fn killed_run_is_interrupted_and_resumed() {
    let sandbox = HomeSandbox::new();
    let mut running = sandbox.start(&["run", "greeter", "think"]);
    let id = sandbox.wait_for_status("running");
    kill(&mut running);

    let task = &sandbox.tasks()[0];
    assert_eq!(task["status"], "running");
    assert_eq!(task["interrupted"], true);
    sandbox.polity(&["task", "list"]).out_has("running (interrupted)");
    sandbox.polity(&["task", "show", &id]).out_has("its process has ended; resume it with");
    let trace = sandbox.polity(&["task", "trace", &id]).out;
    assert!(trace.contains("called; no answer yet"), "{trace}");

    let resumed = sandbox.polity(&["task", "resume", &id]).prints("thought\n");
    for step in ["created", "resumed", "thought", "completed"] {
        assert!(resumed.err.contains(step), "{resumed:?}");
    }
    let names = ["created", "started", "model_call", "resumed", "model_call", "completed"];
    assert_eq!(sandbox.step_names(&id), names);
}

#[test]
fn resume_all_resumes_every_killed_run() {
    let sandbox = HomeSandbox::new();
    let mut children: Vec<_> =
        (0..3).map(|_| sandbox.start(&["run", "greeter", "think"])).collect();
    sandbox.wait_until("three tasks are running", || {
        let tasks = sandbox.tasks();
        let running = tasks.iter().filter(|task| task["status"] == "running").count();
        (running == 3).then_some(())
    });
    for child in &mut children {
        kill(child);
    }
    let resumed = sandbox.get(&["task", "resume", "--all"]);
    assert_eq!(resumed.as_array().unwrap().len(), 3);
    assert!(sandbox.tasks().iter().all(|task| task["status"] == "completed"));
}

#[test]
fn wait_fails_on_an_interrupted_task() {
    let sandbox = HomeSandbox::new();
    let mut running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    kill(&mut running);
    // The hung task would never end by itself.
    sandbox.polity(&["task", "wait", &id]).fails(1, &format!("polity task resume {id}"));
    let cancelled = sandbox.polity(&["task", "cancel", &id]);
    assert_eq!(cancelled.out, format!("task {id} is cancelled\n"));
}

#[test]
fn second_ctrl_c_quits_and_leaves_the_task_interrupted() {
    let sandbox = HomeSandbox::new();
    let mut running = sandbox.start(&["run", "greeter", "slow"]);
    sandbox.wait_for_status("running");
    // The open transaction blocks the cancel event, like a hanging disk.
    let journal = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut output = String::new();
    let mut stderr = BufReader::new(running.stderr.take().unwrap());
    signal(&running, "-INT");
    while !output.contains("cancelling") {
        assert_ne!(stderr.read_line(&mut output).unwrap(), 0, "{output}");
    }
    signal(&running, "-INT");
    let code = running.wait().unwrap().code();
    stderr.read_to_string(&mut output).unwrap();
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("interrupted") && output.contains("polity task resume"), "{output}");
    drop(journal);
    let task = &sandbox.tasks()[0];
    assert_eq!((task["status"].as_str(), &task["interrupted"]), (Some("running"), &true.into()));
}

#[test]
fn ctrl_c_at_the_end_keeps_result_and_exit_code() {
    let sandbox = HomeSandbox::new();
    for pause_ms in (0..24).map(|step| step * 2) {
        let running = sandbox.start(&["run", "greeter", "Ada", "--json"]);
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        signal(&running, "-INT");
        let ended = running.wait_with_output().unwrap();
        let status = ended.status;
        if status.code().is_none() {
            // The signal arrived before the program installed its handler.
            continue;
        }
        let task: serde_json::Value = serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error} after {pause_ms} ms: {ended:?}"));
        let expected = match task["status"].as_str() {
            Some("completed") => 0,
            Some("cancelled") => 4,
            other => panic!("{other:?}"),
        };
        assert_eq!(status.code(), Some(expected), "{task}");
        assert_eq!(task["result"].is_string(), expected == 0, "{task}");
    }
}

#[test]
fn concurrent_cancels_succeed() {
    let sandbox = HomeSandbox::new();
    let mut running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    kill(&mut running);
    let cancels: Vec<_> = (0..6).map(|_| sandbox.start(&["task", "cancel", &id])).collect();
    for cancel in cancels {
        let output = finish(cancel);
        assert_eq!(
            (output.code, output.out),
            (0, format!("task {id} is cancelled\n")),
            "{}",
            output.err
        );
    }
}

//! Run folders that are damaged, of another format, or unfinished.

use std::fs;

use serde_json::Value;

use crate::sandbox::{HomeSandbox, kill};

#[test]
fn damaged_checkpoint_is_rejected_and_an_earlier_one_works() {
    let sandbox = HomeSandbox::society();
    let out = sandbox.file("run");
    let out = out.to_str().unwrap();
    let original = sandbox.get(&["sim", "run", "society", "--out", out]);
    let path = sandbox.file("run/checkpoints/turn_000020.json");
    let text = fs::read_to_string(&path).unwrap();
    let edited = text.replacen("\"ticks_in_state\":0", "\"ticks_in_state\":1", 1);
    for (changed, reason) in [
        (text[..text.len() / 2].to_owned(), "it is truncated"),
        (edited, "its content does not match its checksum"),
    ] {
        fs::write(&path, changed).unwrap();
        let error = sandbox.error(1, &["sim", "resume", out, "--turns", "21"]);
        assert!(error.code == "damaged" && error.message.contains(reason), "{error:?}");
        assert!(error.message.contains("run/checkpoints/turn_000020.json"), "{error:?}");
        assert!(error.message.ends_with("; continue from the end of turn 19 instead"), "{error:?}");
        assert_eq!(error.hint, format!("`polity sim resume {out} --from 19`"));
    }
    let resumed = sandbox.get(&["sim", "resume", out, "--from", "19"]);
    assert_eq!(resumed["digest"], original["digest"]);
    for taken in [out, sandbox.path().to_str().unwrap()] {
        sandbox.polity(&["sim", "run", "society", "--out", taken]).exits(1);
    }
}

#[test]
fn run_of_an_older_format_is_listed_but_not_resumed() {
    let sandbox = HomeSandbox::society();
    sandbox.get(&["sim", "run", "society", "--turns", "3"]);
    let run = sandbox.get(&["sim", "status", "last"]);
    assert_eq!(run["version"]["format"], 4);
    let path = std::path::Path::new(run["folder"].as_str().unwrap()).join("run.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record.as_object_mut().unwrap().remove("version").unwrap();
    fs::write(&path, record.to_string()).unwrap();
    for args in [
        &["resume", "last", "--turns", "4"][..],
        &["fork", "last", "--at", "1"],
        &["export", "last", "--agent", "ada"],
    ] {
        let error = sandbox.error(1, &[&["sim"], args].concat());
        assert!(error.message.contains("has an older format"), "{error:?}");
        assert!(error.hint.contains("the version of Polity that wrote it"), "{error:?}");
    }
    let listed = sandbox.get(&["sim", "status"]);
    assert_eq!((&listed[0]["run_id"], &listed[0]["version"]), (&run["run_id"], &Value::Null));
    assert_eq!(listed[0]["summary"], run["summary"]);
}

#[test]
fn damaged_request_file_changes_nothing() {
    let sandbox = HomeSandbox::society();
    let run = sandbox.get(&["sim", "run", "society"]);
    let folder = sandbox.get(&["sim", "status", "last"])["folder"].as_str().unwrap().to_owned();
    let requests = std::path::Path::new(&folder).join("requests.jsonl");
    fs::write(&requests, "\n{\"request\": {\"req\n").unwrap();
    let before = sandbox.get(&["sim", "status"]);
    for command in [["fork", "--at"], ["resume", "--from"]] {
        let error = sandbox.error(1, &["sim", command[0], "last", command[1], "5"]);
        let reason = "line 2 is neither a request nor an answer";
        assert!(error.message.contains(reason), "{error:?}");
        assert_eq!(sandbox.get(&["sim", "status"]), before);
    }
    fs::write(&requests, "\n").unwrap();
    let again = sandbox.get(&["sim", "resume", "last", "--from", "5"]);
    assert_eq!(again["digest"], run["digest"]);
}

/// Whatever a killed `sim run` leaves is listed and can be resumed, or the next run removes it.
#[test]
fn run_killed_at_its_start_is_listed_or_swept() {
    let sandbox = HomeSandbox::society();
    let runs = sandbox.file("data/simulations");
    let folders = || -> Vec<String> {
        let entries = fs::read_dir(&runs).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !(name.starts_with('.') && name.ends_with(".unfinished")));
        names.sort();
        names
    };
    let listed = || -> Vec<String> {
        let runs = sandbox.get(&["sim", "status"]);
        let ids = runs.as_array().unwrap().iter();
        let mut ids: Vec<String> =
            ids.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    for step in 0..40 {
        let mut child = sandbox.start(&["sim", "run", "society", "--turns", "10000000"]);
        // The kills come at many different steps; the promise holds for all of them.
        std::thread::sleep(std::time::Duration::from_micros(step * 1_500));
        kill(&mut child);
        assert_eq!(listed(), folders(), "after a kill in step {step}");
    }
    for id in listed() {
        let run = sandbox.get(&["sim", "status", &id]);
        assert_eq!(run["interrupted"], true, "{run}");
        let turns = (run["turn"].as_u64().unwrap() + 1).to_string();
        sandbox.get(&["sim", "resume", &id, "--turns", &turns]);
    }
    sandbox.get(&["sim", "run", "society", "--turns", "1"]);
    assert_eq!(fs::read_dir(&runs).unwrap().count(), listed().len(), "nothing is left unlisted");
}

//! `polity task export` and `import`, with intact and damaged archives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use polity_model::digest::Digest;
use serde_json::{Value, json};

use crate::reviews::{count_lines, home_awaiting_review};
use crate::sandbox::{CommandOutput, HomeSandbox};
use crate::sub_agents::{DELEGATES_ONCE, DIGS, home};
use crate::tools;

fn export(sandbox: &HomeSandbox, id: &str, folder: &str) -> PathBuf {
    let out = sandbox.file(folder);
    sandbox.polity(&["task", "export", id, "--out", out.to_str().unwrap()]).exits(0);
    out
}

fn import(sandbox: &HomeSandbox, folder: &Path) -> CommandOutput {
    sandbox.polity(&["task", "import", folder.to_str().unwrap()])
}

/// Returns every file below a folder with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut content_of = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                content_of.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
            }
        }
    }
    content_of
}

/// Imports into a new home and compares every query with the original home.
fn round_trip(from: &HomeSandbox, id: &str) -> HomeSandbox {
    let out = export(from, id, "out");
    let to = HomeSandbox::bare();
    import(&to, &out).exits(0);
    assert_eq!(files(&export(&to, id, "again")), files(&out));
    for task in from.tasks() {
        let id = task["id"].as_str().unwrap();
        for what in ["show", "checkpoints"] {
            for args in [["task", what, id].as_slice(), &["task", what, id, "--json"]] {
                assert_eq!(to.polity(args).out, from.polity(args).out, "{args:?}");
            }
        }
        let (mut there, here) = (from.get(&["task", "trace", id]), to.get(&["task", "trace", id]));
        let imported = here["steps"].as_array().unwrap().last().unwrap();
        assert_eq!(imported["step_name"], "imported");
        there["updated_at"] = imported["timestamp"].clone();
        there["steps"].as_array_mut().unwrap().push(imported.clone());
        assert_eq!(here, there);
    }
    to
}

#[test]
fn sub_agent_task_round_trips_through_an_archive() {
    let from = home("", DELEGATES_ONCE, DIGS);
    let (task, _) = from.json(&["run", "boss", "go", "--param", "x=0.1", "--class", "c"]);
    let id = task["id"].as_str().unwrap();
    let to = round_trip(&from, id);
    let folder = from.file("out").join("tasks").join(id);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    assert_eq!(read("task.json"), from.json(&["task", "show", id]).0);
    assert_eq!(read("trace.json"), from.json(&["task", "trace", id]).0);
    let (checkpoints, _) = from.json(&["task", "checkpoints", id]);
    assert_eq!(read("checkpoint_000.json"), checkpoints[0]);
    // Both tasks have three files; the root has a checkpoint after its first turn and at its end.
    assert_eq!(files(&from.file("out/tasks")).len(), 9);
    // Costs count only in the home that paid them.
    assert_eq!(to.polity(&["cost"]).out, "no model has been called yet\n");
    assert_eq!(to.json(&["task", "show", id]).0["total_usage"], task["total_usage"]);

    // The archive of a part contains its root task, and importing it imports both.
    let (sessions, _) = from.json(&["session", "list"]);
    let part = sessions[0]["session_id"].as_str().unwrap();
    from.polity(&["task", "export", part, "--out", "elsewhere"]).fails(2, id);
    let other = HomeSandbox::bare();
    let output = import(&other, &from.file("out").join("tasks").join(part));
    assert_eq!((output.code, other.tasks().len()), (0, 2), "{output:?}");
}

#[test]
fn import_names_a_missing_part() {
    let from = home("", DELEGATES_ONCE, DIGS);
    let (task, _) = from.json(&["run", "boss", "go"]);
    let id = task["id"].as_str().unwrap();
    let out = export(&from, id, "out");
    let (sessions, _) = from.json(&["session", "list"]);
    let part = out.join("tasks").join(sessions[0]["session_id"].as_str().unwrap());
    fs::remove_dir_all(&part).unwrap();
    let to = HomeSandbox::bare();
    let output = import(&to, &out);
    assert_eq!((output.code, to.tasks().len()), (1, 0), "{output:?}");
    let expected = format!("{}: the folder is missing; it is a part of task {id}", part.display());
    assert!(output.err.contains(&expected), "{output:?}");
}

#[test]
fn tool_task_round_trips_through_an_archive() {
    let from = tools::home("", "{}", &[]);
    tools::calls(
        &from,
        &json!([{"tool": "kit/echo", "arguments": {"text": "hi"}}, {"tool": "kit/nothing"}]),
    );
    let task = from.get(&["run", "worker", "go"]);
    round_trip(&from, task["id"].as_str().unwrap());
}

#[test]
fn imported_review_is_answered_in_another_home() {
    let (from, id) = home_awaiting_review();
    let out = export(&from, &id, "out");
    let to = HomeSandbox::bare();
    fs::create_dir_all(to.file("config")).unwrap();
    fs::copy(from.file("config/mcp_servers.yaml"), to.file("config/mcp_servers.yaml")).unwrap();
    assert_eq!(import(&to, &out).code, 0);
    assert_eq!(to.json(&["review", "list"]).0, from.json(&["review", "list"]).0);
    assert_eq!(count_lines(&to, "a"), 0);
    to.polity(&["review", "approve", &id, "--trust"]).prints("it said: counted\n");
    assert_eq!((count_lines(&to, "a"), count_lines(&from, "a")), (1, 0));
    // The imported task has new events, so the archive no longer matches.
    import(&to, &out).fails(1, "it has continued here since the export");
}

#[test]
fn running_task_is_exported_and_resumed_elsewhere() {
    let from = HomeSandbox::new();
    let mut child = from.start(&["run", "greeter", "slow"]);
    let id = from.wait_for_status("running");
    let out = export(&from, &id, "out");
    let task = out.join("tasks").join(&id).join("task.json");
    let exported: Value = serde_json::from_slice(&fs::read(task).unwrap()).unwrap();
    assert_eq!((&exported["status"], &exported["interrupted"]), (&json!("running"), &json!(false)));
    let to = HomeSandbox::bare();
    import(&to, &out).exits(0).out_has("interrupted");
    let interrupted = || to.json(&["task", "show", &id]).0["interrupted"].clone();
    assert_eq!(interrupted(), true);
    let again = export(&to, &id, "again");
    let task = again.join("tasks").join(&id).join("task.json");
    assert!(fs::read_to_string(task).unwrap().contains("\"interrupted\": true"));
    import(&HomeSandbox::bare(), &again).exits(0);
    let mut resumed = to.start(&["task", "resume", &id, "--trust"]);
    to.wait_until("the task has an owner", || (interrupted() == false).then_some(()));
    for (home, child) in [(&to, &mut resumed), (&from, &mut child)] {
        home.polity(&["task", "cancel", &id]).exits(0);
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }
}

#[test]
fn import_is_idempotent() {
    let from = home("", DELEGATES_ONCE, DIGS);
    let (task, _) = from.json(&["run", "boss", "go"]);
    let id = task["id"].as_str().unwrap();
    let out = export(&from, id, "out");
    let to = HomeSandbox::bare();
    let ids = |(answer, code): (Value, i32), name: &str| {
        assert_eq!(code, 0);
        answer[name].as_array().unwrap().len()
    };
    let args = ["task", "import", out.to_str().unwrap()];
    assert_eq!(ids(to.json(&args), "imported"), 2);
    assert_eq!(ids(to.json(&args), "present"), 2);
    assert!(import(&to, &out).out.contains("is already in this home, unchanged"));
    assert_eq!(to.tasks().len(), 2);
    // The original home reports its own tasks as present.
    assert_eq!(ids(from.json(&args), "present"), 2);
}

#[test]
fn export_replaces_a_folder_only_with_force() {
    let sandbox = HomeSandbox::new();
    let (task, _) = sandbox.json(&["run", "greeter", "Ada"]);
    let id = task["id"].as_str().unwrap();
    let out = export(&sandbox, id, "out");
    let before = files(&out);
    let stray = out.join("tasks").join(id).join("checkpoint_077.json");
    fs::write(&stray, "{}").unwrap();
    let args = ["task", "export", id, "--out", out.to_str().unwrap()];
    sandbox.polity(&args).fails(1, "--force");
    assert!(stray.exists());
    sandbox.polity(&[&args[..], &["--force"]].concat()).exits(0);
    assert_eq!(files(&out), before);
    sandbox.polity(&["task", "export", "ffffffff", "--out", "x"]).fails(1, "there is no task");
    assert!(!sandbox.file("x").exists());
}

/// Damages a copy of an archive and expects an error that names the file and imports nothing.
fn import_error(to: &HomeSandbox, archive: &Path, file: &Path, bytes: Option<&[u8]>) -> String {
    let original = fs::read(archive.join(file)).unwrap();
    match bytes {
        Some(bytes) => fs::write(archive.join(file), bytes).unwrap(),
        None => fs::remove_file(archive.join(file)).unwrap(),
    }
    let output = import(to, archive);
    fs::write(archive.join(file), original).unwrap();
    assert_eq!(output.code, 1, "{}: {output:?}", file.display());
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(output.err.contains(name), "{name} is not named: {output:?}");
    assert!(output.err.contains("nothing was imported"), "{output:?}");
    assert!(!to.file("data").exists(), "{name} left a data folder");
    output.err
}

#[test]
fn import_names_the_damaged_file() {
    let from = home("", DELEGATES_ONCE, DIGS);
    let (task, _) = from.json(&["run", "boss", "go"]);
    let out = export(&from, task["id"].as_str().unwrap(), "out");
    let to = HomeSandbox::bare();
    let files = files(&out);
    assert!(files.len() >= 8, "{:?}", files.keys());
    for (file, bytes) in &files {
        let missing = import_error(&to, &out, file, None);
        assert!(missing.contains("the file is missing"), "{missing}");
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            import_error(&to, &out, file, Some(&bytes[..length]));
        }
        // Changes an alphanumeric byte in the middle: a time, an id, a number or a word.
        let index = bytes.len() / 2
            + bytes[bytes.len() / 2..].iter().position(u8::is_ascii_alphanumeric).unwrap();
        let mut changed = bytes.clone();
        changed[index] = if changed[index] == b'1' { b'2' } else { b'1' };
        let error = import_error(&to, &out, file, Some(&changed));
        assert!(error.contains(", line "), "{error}");
    }
    let output = import(&to, &out);
    assert_eq!((output.code, to.tasks().len()), (0, 2), "{output:?}");
}

/// Rewrites a journal with changed events and a matching digest.
fn forge(text: &str, change: impl Fn(usize, Value) -> Option<Value>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut forged = lines[0].to_owned() + "\n";
    let mut events = 0;
    for (index, line) in lines[1..lines.len() - 1].iter().enumerate() {
        if let Some(mut line) = change(index + 2, serde_json::from_str(line).unwrap()) {
            events += 1;
            line["sequence"] = json!(events);
            forged += &line.to_string();
            forged.push('\n');
        }
    }
    let digest = Digest::of(forged.as_bytes());
    forged + &json!({"events": events, "sha256": digest}).to_string() + "\n"
}

#[test]
fn import_names_the_line_of_an_impossible_event() {
    let from = HomeSandbox::new();
    let (task, _) = from.json(&["run", "greeter", "Ada"]);
    let id = task["id"].as_str().unwrap();
    let out = export(&from, id, "out");
    let file = Path::new("tasks").join(id).join("journal.jsonl");
    let text = fs::read_to_string(out.join(&file)).unwrap();
    let line_of = |kind: &str| text.lines().position(|line| line.contains(kind)).unwrap() + 1;
    let (started, called) = (line_of("task_started"), line_of("model_called"));
    let to = HomeSandbox::bare();
    let import_forged = |forged: String| import_error(&to, &out, &file, Some(forged.as_bytes()));

    // The store rejects a task that completes before it starts.
    let error = import_forged(forge(&text, |line, event| (line != started).then_some(event)));
    assert!(error.contains("this event is not valid here"), "{error}");
    // The engine rejects a model answer without a model call.
    let error = import_forged(forge(&text, |line, event| (line != called).then_some(event)));
    let answered = line_of("model_answered") - 1;
    assert!(error.contains(&format!("line {answered}: this event is not valid here")), "{error}");
    // The journal is valid, but does not agree with the checkpoint.
    let changed = forge(&text, |_, event| {
        let forged = event.to_string().replace("Hello, Ada.", "Hello, Eve.");
        Some(serde_json::from_str(&forged).unwrap())
    });
    fs::write(out.join(&file), changed).unwrap();
    let output = import(&to, &out);
    fs::write(out.join(&file), &text).unwrap();
    let expected = "checkpoint_000.json, line 13: this does not agree with the journal";
    assert!(output.code == 1 && output.err.contains(expected), "{output:?}");
    let mut definitions: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    for json in definitions["definitions"].as_object_mut().unwrap().values_mut() {
        *json = json!(json.as_str().unwrap().replace("greet", "insult"));
    }
    let rest: Vec<&str> = text.lines().skip(1).collect();
    let error = import_forged(format!("{definitions}\n{}\n", rest.join("\n")));
    assert!(error.contains("line 1: the definition"), "{error}");
    // The journal has no such checkpoint.
    let stray = file.with_file_name("checkpoint_077.json");
    fs::write(out.join(&stray), "{}").unwrap();
    assert!(import_error(&to, &out, &stray, Some(b"{}")).contains("no such checkpoint"));
}

#[test]
fn task_that_is_its_own_parent_is_not_imported() {
    let from = HomeSandbox::new();
    let (task, _) = from.json(&["run", "greeter", "Ada"]);
    let id = task["id"].as_str().unwrap();
    let out = export(&from, id, "out");
    let file = Path::new("tasks").join(id).join("journal.jsonl");
    let text = fs::read_to_string(out.join(&file)).unwrap();
    let to = HomeSandbox::bare();
    for (field, value) in [
        ("parent_task_id", json!(id)),
        ("forked_from", json!({"task_id": id, "sequence": 1, "checkpoint": 0})),
    ] {
        let forged = forge(&text, |line, mut event| {
            if line == 2 {
                event["event"][field] = value.clone();
            }
            Some(event)
        });
        let error = import_error(&to, &out, &file, Some(forged.as_bytes()));
        assert!(error.contains("line 2: this task is its own ancestor"), "{field}: {error}");
    }
}

#[test]
fn import_of_a_fifo_names_its_type() {
    let from = HomeSandbox::new();
    let (task, _) = from.json(&["run", "greeter", "Ada"]);
    let id = task["id"].as_str().unwrap();
    let out = export(&from, id, "out");
    let to = HomeSandbox::bare();
    for name in ["journal.jsonl", "task.json"] {
        let path = out.join("tasks").join(id).join(name);
        let original = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reason = format!("{name}: it is a FIFO, not a regular file");
        import(&to, &out).fails(1, &reason).err_has("nothing was imported");
        fs::remove_file(&path).unwrap();
        fs::write(&path, original).unwrap();
    }
    import(&to, &out).exits(0);
}

#[test]
fn import_distinguishes_empty_and_damaged_folders() {
    let sandbox = HomeSandbox::bare();
    sandbox.write("empty/tasks/.hidden/x", "");
    sandbox.write("strange/tasks/notes/x", "");
    for (folder, expected) in [
        ("nowhere", "there is no exported task"),
        ("empty", "there is no exported task"),
        ("config", "there is no exported task"),
        ("strange", "named by a task's id"),
    ] {
        import(&sandbox, &sandbox.file(folder)).fails(1, expected);
    }
}

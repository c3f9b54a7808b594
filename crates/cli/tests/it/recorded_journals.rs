//! Journals of earlier versions stay readable.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polity_engine::runtime::{ForkRequest, Runtime};
use polity_model::state::StateUpdates;
use polity_store::{CommitDurability, SqliteStore, Store, StoreAccess};
use polity_testkit::runtime::{FakeModels, TestLeases, runtime_deps};
use polity_testkit::task_fixtures::instance_id;
use serde_json::{Value, json};

use crate::sandbox::HomeSandbox;
use crate::tools::home;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals")
}

/// Returns the documents of every task.
fn task_documents(sandbox: &HomeSandbox) -> Vec<Value> {
    let show = |task: &Value| {
        let id = task["id"].as_str().unwrap();
        let view = |what: &str| sandbox.json(&["task", what, id]).0;
        json!({"task": view("show"), "trace": view("trace"), "checkpoints": view("checkpoints")})
    };
    sandbox.tasks().iter().map(show).collect()
}

/// Expects every recorded field with its value. New fields are allowed.
fn assert_contains(path: &str, then: &Value, now: &Value) {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (name, then) in then {
                let path = format!("{path}.{name}");
                let now = now.get(name).unwrap_or_else(|| panic!("{path} is missing"));
                assert_contains(&path, then, now);
            }
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            for (index, (then, now)) in then.iter().zip(now).enumerate() {
                assert_contains(&format!("{path}[{index}]"), then, now);
            }
        }
        _ => assert_eq!(now, then, "{path}"),
    }
}

#[test]
fn recorded_journals_replay_and_resume() {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let journals: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|ending| ending == "db")).collect();
    assert!(!journals.is_empty());
    for journal in journals {
        let sandbox = HomeSandbox::new();
        let restored = sandbox.polity(&["restore", journal.to_str().unwrap()]);
        assert_eq!(restored.code, 0, "{journal:?}: {restored:?}");
        let expected = fs::read_to_string(journal.with_extension("json")).unwrap();
        let expected: Vec<Value> = serde_json::from_str(&expected).unwrap();
        let tasks = sandbox.tasks();
        assert_eq!(tasks.len(), expected.len(), "{journal:?}");
        for (then, now) in expected.iter().zip(task_documents(&sandbox)) {
            let name = journal.file_stem().unwrap().to_str().unwrap();
            assert_contains(&format!("{name}: {}", then["task"]["id"]), then, &now);
        }
        let (reviews, _) = sandbox.json(&["review", "list"]);
        let reviews = reviews.as_array().unwrap();
        assert!(!reviews.is_empty(), "{journal:?}");
        for review in reviews {
            let id = review["task_id"].as_str().unwrap();
            sandbox.polity(&["review", "approve", id, "--message", "yes"]).prints("Hello, yes.\n");
        }
    }
}

const DONE: &str = "
name: done
entry_point: greet
nodes:
  greet: {type: agent, agent: greeter, outputs: [greeting]}
  both: {type: parallel, branches: [said, again], join: all}
  said: {type: tool, tool: kit/echo, arguments: {text: 'said {{ metadata.greeting }}'}}
  again: {type: tool, tool: kit/add, arguments: {a: 1, b: 2}}
  which: {type: condition, expression: 'input == \"Ada\" ? \"short\" : \"long\"'}
  end: {type: agent, agent: greeter, input: end}
  never: {type: human, question: Never?}
edges:
  - {from: greet, to: both}
  - {from: both, to: which}
  - {from: which, to: {short: end, default: never}}
";

const WAITS: &str = "
name: waits
entry_point: greet
nodes:
  greet: {type: agent, agent: greeter}
  ask: {type: human, question: 'Is \"{{ last }}\" kind?'}
  end: {type: agent, agent: greeter, input: '{{ nodes.ask.output }}'}
edges: [{from: greet, to: ask}, {from: ask, to: end}]
";

fn written() -> HomeSandbox {
    let sandbox = home("", "{}", &[]);
    sandbox.write_scripted_agent("greeter", "");
    sandbox.write_scripted_agent("boss", ", sub_agents: [worker]");
    sandbox.write("scripts/greeter.yaml", "default: {reply: 'Hello, $input.'}");
    let part = json!([{"tool": "agent/worker", "arguments": {"task_description": "go"}}]);
    let boss = json!({"rules": [
        {"when": "^start$", "role": "user", "tool_calls": part},
        {"when": ".*", "role": "tool", "reply": "over"},
    ]});
    sandbox.write("scripts/boss.yaml", &boss.to_string());
    let calls = json!([
        {"tool": "kit/echo", "arguments": {"text": "one"}},
        {"tool": "kit/fail", "arguments": {}},
    ]);
    crate::tools::calls(&sandbox, &calls);
    sandbox.write("workflows/done.yaml", DONE);
    sandbox.write("workflows/waits.yaml", WAITS);
    sandbox
}

/// Forks the newest task of `done` from its last checkpoint but one.
fn fork(sandbox: &HomeSandbox) {
    let path = sandbox.file("data/polity.db");
    let store = SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Full)).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let rows = store.task_rows(&polity_store::TaskFilter::default()).wait().unwrap();
    let done = rows.into_iter().find(|row| row.assigned_agent.as_str() == "done").unwrap().id;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let models = Arc::new(FakeModels::new([], Duration::ZERO));
        let leases = Arc::new(TestLeases::default());
        let deps = runtime_deps(store, models, &leases, instance_id(1), 1);
        let runtime = Runtime::start(deps).await.unwrap();
        let updates = json!({"metadata.greeting": "Good day."});
        let updates = StateUpdates::new(updates.as_object().unwrap().clone()).unwrap();
        // Only the final node runs again.
        runtime.fork(ForkRequest::new(done, 4, updates)).await.unwrap().wait().await.unwrap();
    });
}

/// Saves the journal in the repository if `POLITY_RECORD_AS` names it.
#[test]
fn record_journal() {
    let elsewhere = tempfile::tempdir().unwrap();
    let (folder, name) = match std::env::var("POLITY_RECORD_AS") {
        Ok(name) => (folder(), name),
        Err(_) => (elsewhere.path().to_owned(), "today".to_owned()),
    };
    let (journal, expected) =
        (folder.join(format!("{name}.db")), folder.join(format!("{name}.json")));
    assert!(!journal.exists() && !expected.exists(), "{name} is there already");
    let sandbox = written();
    for (args, code) in
        [(["run", "boss", "start"], 0), (["run", "done", "Ada"], 0), (["run", "waits", "Ada"], 3)]
    {
        sandbox.polity(&args).exits(code);
    }
    fork(&sandbox);
    sandbox.polity(&["backup", journal.to_str().unwrap()]).exits(0);
    let task_documents = serde_json::to_string_pretty(&task_documents(&sandbox)).unwrap();
    fs::write(expected, task_documents + "\n").unwrap();
}

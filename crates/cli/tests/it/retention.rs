//! Retention policies and `polity gc`.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::HomeSandbox;
use crate::sub_agents::{DELEGATES_ONCE, DIGS, home};

fn run(sandbox: &HomeSandbox, args: &[&str]) -> String {
    let task = sandbox.get(&[&["run", "greeter", "Ada"], args].concat());
    task["id"].as_str().unwrap().to_owned()
}

fn decision<'a>(answer: &'a Value, id: &str) -> &'a Value {
    let decisions = answer["decisions"].as_array().unwrap();
    decisions.iter().find(|each| each["task_id"] == id).unwrap()
}

#[test]
fn gc_dry_run_explains_and_gc_removes() {
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "config/retention_policy.yaml",
        "default_days: 5\nby_task: {critical: 30, fleeting: 0}\nby_status: {failed: 14}\n",
    );
    let own = run(&sandbox, &["--retention-days", "0", "--class", "critical"]);
    let fleeting = run(&sandbox, &["--class", "fleeting"]);
    let critical = run(&sandbox, &["--class", "critical"]);
    let plain = run(&sandbox, &[]);
    sandbox.polity(&["run", "greeter", "forbidden"]).exits(1);

    let dry = sandbox.get(&["gc", "--dry-run"]);
    assert_eq!(
        (&dry["dry_run"], &dry["removed"], &dry["kept"]),
        (&json!(true), &json!(2), &json!(3))
    );
    for (id, action, rule) in [
        (&own, "remove", "its own retention_days 0"),
        (&fleeting, "remove", "class fleeting: 0"),
        (&critical, "keep", "class critical: 30"),
        (&plain, "keep", "default: 5"),
    ] {
        let decided = decision(&dry, id);
        assert_eq!((&decided["action"], &decided["rule"]), (&json!(action), &json!(rule)));
        assert_eq!(decided["status"], "completed");
        assert_eq!(decided["assigned_agent"], "greeter");
        assert!(decided["completed_at"].is_string() && decided["due_at"].is_string());
    }
    assert_eq!(sandbox.tasks().len(), 5);
    let text = sandbox.polity(&["gc", "--dry-run"]).out;
    assert!(text.ends_with("nothing was changed\n"), "{text}");
    let heading: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["TASK", "ACTION", "STATUS", "ENDED", "AGENT", "REASON"]);
    for (id, action, reason) in [
        (&own, "remove", "its own retention_days 0, due since "),
        (&critical, "keep", "class critical: 30, kept until "),
    ] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&id[..8])).collect();
        let [line] = lines.as_slice() else { panic!("{text}") };
        assert!(line.contains(action) && line.contains(reason), "{line}");
    }
    assert!(text.contains("status failed: 14, kept until "), "{text}");

    let spent = sandbox.polity(&["cost"]).out;
    let removed = sandbox.polity(&["gc"]);
    assert!(removed.out.ends_with("removed 2 tasks, kept 3 tasks\n"), "{removed:?}");
    assert!(removed.out.contains("1     default: 5"), "{removed:?}");
    assert_eq!(sandbox.tasks().len(), 3);
    sandbox.polity(&["task", "show", &own]).exits(1);
    assert_eq!(sandbox.polity(&["cost"]).out, spent);
    let (again, _) = sandbox.json(&["gc"]);
    assert_eq!((&again["removed"], &again["kept"]), (&json!(0), &json!(3)));
    assert_eq!(run(&sandbox, &[]).len(), 36, "the home still runs tasks");
}

#[test]
fn gc_keeps_running_tasks() {
    let sandbox = HomeSandbox::new();
    run(&sandbox, &["--retention-days", "0"]);
    let mut slow = sandbox.start(&["run", "greeter", "slow", "--retention-days", "0"]);
    let running = sandbox.wait_for_status("running");
    let (answer, code) = sandbox.json(&["gc"]);
    assert_eq!((code, &answer["removed"]), (0, &json!(1)), "{answer}");
    let lives = decision(&answer, &running);
    assert_eq!((&lives["rule"], &lives["due_at"]), (&json!("still running"), &Value::Null));
    sandbox.polity(&["task", "cancel", &running]).exits(0);
    slow.wait().unwrap();
    assert_eq!(sandbox.json(&["gc"]).0["removed"], 1);
    assert_eq!(sandbox.tasks(), Vec::<Value>::new());
}

#[test]
fn gc_removes_parts_and_their_output() {
    let sandbox = home("", DELEGATES_ONCE, DIGS);
    let (task, _) = sandbox.json(&["run", "boss", "go", "--retention-days", "0"]);
    let executions: Vec<String> = {
        let connection = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
        let mut all = connection.prepare("SELECT body FROM executions").unwrap();
        let bodies = all.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let id = |body: String| serde_json::from_str::<Value>(&body).unwrap()["id"].clone();
        bodies.map(|body| id(body.unwrap()).as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(executions.len(), 2);
    sandbox.write(&format!("data/output/{}", executions[0]), "said");
    sandbox.write(&format!("data/output/{}/stdout", executions[1]), "said");
    sandbox.write("data/output/another", "stays");
    let (answer, _) = sandbox.json(&["gc"]);
    assert_eq!(answer["removed"], 2, "{answer}");
    let with = format!("goes with task {}", &task["id"].as_str().unwrap()[..8]);
    assert!(answer["decisions"].as_array().unwrap().iter().any(|each| each["rule"] == *with));
    assert_eq!(sandbox.tasks(), Vec::<Value>::new());
    let left: Vec<_> = fs::read_dir(sandbox.file("data/output")).unwrap().collect();
    assert_eq!(left.len(), 1);
    let connection = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
    for table in ["events", "messages", "checkpoints", "executions", "pins", "definitions"] {
        let count = |row: &rusqlite::Row<'_>| row.get::<_, u64>(0);
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(connection.query_row(&sql, [], count).unwrap(), 0, "{table}");
    }
}

#[test]
fn invalid_policy_removes_nothing() {
    let sandbox = HomeSandbox::new();
    run(&sandbox, &["--retention-days", "0"]);
    sandbox.write("config/retention_policy.yaml", "by_status: {complete: 30}\n");
    for args in [["gc"].as_slice(), &["gc", "--dry-run"]] {
        sandbox.polity(args).fails(2, "did you mean \"completed\"?");
    }
    assert_eq!(sandbox.tasks().len(), 1);
}

#[test]
fn gc_of_an_empty_home_creates_nothing() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["gc"]).prints("removed 0 tasks, kept 0 tasks\n");
    assert!(!sandbox.file("data").exists());
}

#[test]
fn gc_summarizes_many_kept_tasks() {
    let sandbox = HomeSandbox::new();
    let id = run(&sandbox, &[]);
    // Copied rows replace many runs.
    let connection = rusqlite::Connection::open(sandbox.file("data/polity.db")).unwrap();
    connection
        .execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) \
             INSERT INTO tasks SELECT created_position + 1000 + i, randomblob(16), status, \
             assigned_agent, owner, epoch, created_at, started_at, completed_at, error_code, \
             class, retention_days, parent_task_id, input_tokens, output_tokens, cost_pico_usd, \
             message_count, checkpoint_count, answer_position, result_position, \
             failure_position, forked_from, review_deadline, request, shared_with, usage_unknown, \
             estimated_tokens, estimated_cost_pico_usd, map_item FROM tasks, n",
        )
        .unwrap();
    let text = sandbox.polity(&["gc", "--dry-run"]).out;
    assert!(text.contains("61    default: 7") && !text.contains(&id[..8]), "{text}");
}

#[test]
fn deep_folders_of_a_kept_workspace_do_not_abort_gc() {
    let sandbox = HomeSandbox::new();
    let nest = "import os\nfor _ in range(2500):\n    os.mkdir('d')\n    os.chdir('d')\n";
    sandbox.write("nest.py", nest);
    let script = "python3 nest.py && echo done";
    sandbox.write_shell_agent("nests", script, ", workspace: copy");
    sandbox.write_shell_agent("fails", &format!("{script}; exit 1"), ", workspace: copy");
    // Fewer descriptors than there are levels.
    let limited = |args: &str| {
        let shell = format!("ulimit -n 256; exec {} {args}", env!("CARGO_BIN_EXE_polity"));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &shell]).current_dir(sandbox.path()).env_remove("POLITY_HOME");
        crate::sandbox::command_output(&command.output().unwrap())
    };
    let workspaces = || fs::read_dir(sandbox.file("data/workspaces")).unwrap().count();
    limited("run fails x").exits(1);
    assert_eq!(workspaces(), 0);
    limited("run nests x --retention-days 0").exits(0);
    assert_eq!(workspaces(), 1);
    limited("gc").exits(0);
    assert_eq!(workspaces(), 0);
}

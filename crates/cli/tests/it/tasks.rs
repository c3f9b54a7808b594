//! `polity task`: `list`, `show`, `trace`, `watch` and `wait`.

use crate::sandbox::HomeSandbox;

#[test]
fn task_list_is_sorted_and_filtered() {
    let sandbox = HomeSandbox::new();
    assert_eq!(sandbox.polity(&["task", "list"]).out, "no tasks\n");
    assert!(!sandbox.file("data").exists(), "queries create no data folder");
    for input in ["one", "two", "forbidden"] {
        sandbox.polity(&["run", "greeter", input]);
    }
    let inputs: Vec<_> = sandbox
        .tasks()
        .iter()
        .map(|task| task["description"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(inputs, ["forbidden", "two", "one"]);
    let list = |args: &[&str]| sandbox.json(&[&["task", "list"], args].concat()).0;
    assert_eq!(list(&["--status", "failed"]).as_array().unwrap().len(), 1);
    assert_eq!(list(&["--limit", "2"]).as_array().unwrap().len(), 2);
    assert_eq!(list(&["--agent", "nobody"]).as_array().unwrap().len(), 0);
    let table = sandbox.polity(&["task", "list"]).out;
    assert!(table.starts_with("ID        STATUS"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours when piped: {table}");
}

#[test]
fn task_is_found_by_id_prefix() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]);
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    for part in [&id[..], &id[..8], &id.to_uppercase()] {
        let (task, code) = sandbox.json(&["task", "show", part]);
        assert_eq!((code, task["result"].as_str()), (0, Some("Hello, Ada.")));
    }
    sandbox.polity(&["task", "show", ""]).exits(2);
    for unknown in ["ffffffff-0000-4000-8000-000000000000", "zzz"] {
        assert_eq!(sandbox.error(1, &["task", "show", unknown]).code, "not_found");
    }
}

#[test]
fn trace_has_every_step_and_field() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "overload"]);
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    let (trace, _) = sandbox.json(&["task", "trace", &id]);
    assert_eq!(trace["task_id"], id.as_str());
    assert!(trace["sub_agent_sessions"].is_object());
    let steps = trace["steps"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| step["step_name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "created",
            "started",
            "model_call",
            "retry",
            "model_call",
            "retry",
            "model_call",
            "completed"
        ]
    );
    for step in steps {
        for field in
            ["step_name", "message", "timestamp", "status", "agent", "tool_calls", "duration_ms"]
        {
            assert!(step.get(field).is_some(), "{field}: {step}");
        }
        assert_eq!(step["agent"], "greeter");
    }
    assert_eq!(steps[2]["status"], "error");
    assert_eq!(steps[3]["status"], "warning");
    let output = sandbox.polity(&["task", "trace", &id]);
    output.out_has("├─ ✗ model call").out_has("3 model calls, 12+4 tokens");
}

#[test]
fn checkpoints_contain_the_whole_state() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada", "--param", "topic=rain"]);
    let (checkpoints, _) = sandbox.json(&["task", "checkpoints", "last"]);
    let checkpoint = &checkpoints[0];
    assert_eq!(checkpoints.as_array().unwrap().len(), 1);
    assert_eq!((&checkpoint["sequence"], &checkpoint["position"]), (&0.into(), &"greeter".into()));
    assert_eq!(checkpoint["awaiting_human"], false);
    let state = &checkpoint["state"];
    assert_eq!(state["current_agent"], "greeter");
    assert_eq!(state["metadata"], serde_json::json!({"topic": "rain"}));
    let output: Vec<_> = state["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
        .collect();
    assert_eq!(output, [("user", "Ada"), ("assistant", "Hello, Ada.")]);
    let table = sandbox.polity(&["task", "checkpoints", "last"]).out;
    assert!(table.starts_with("SEQUENCE  POSITION"), "{table}");
    sandbox.polity(&["run", "greeter", "forbidden"]);
    assert_eq!(sandbox.polity(&["task", "checkpoints", "last"]).out, "no checkpoints\n");
}

#[test]
fn unknown_tool_appears_in_the_trace() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "tool"]);
    let (trace, _) = sandbox.json(&["task", "trace", "last"]);
    let call = &trace["steps"][3]["tool_calls"][0];
    assert_eq!((&call["server"], &call["tool"]), (&"clock".into(), &"now".into()), "{trace}");
    assert!(call["arguments"].is_object());
    assert!(call["error"].as_str().unwrap().contains("there is no tool clock/now"), "{call}");
}

#[test]
fn task_show_prints_details() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "forbidden"]);
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    let shown = sandbox.polity(&["task", "show", &id]).out;
    for expected in ["status     failed", "input      forbidden", "model_rejected: the scripted"] {
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn watch_and_wait_follow_another_process() {
    let sandbox = HomeSandbox::new();
    let mut running = sandbox.start(&["run", "greeter", "think"]);
    let id = sandbox.wait_for_status("running");
    sandbox.polity(&["task", "watch", &id]).prints("thought\n").err_has("model call");
    let (waited, code) = sandbox.json(&["task", "wait", &id]);
    assert_eq!((code, waited["status"].as_str()), (0, Some("completed")));
    assert_eq!(running.wait().unwrap().code(), Some(0));
    let (trace, _) = sandbox.json(&["task", "watch", &id]);
    assert_eq!(trace["task_id"], id.as_str());
}

#[test]
fn wait_with_a_timeout_ends_and_the_task_goes_on() {
    let sandbox = HomeSandbox::new();
    let id = sandbox.polity(&["run", "greeter", "think", "--detach"]).exits(0).out;
    let id = id.trim();
    let waited = sandbox.polity(&["task", "wait", id, "--timeout", "0s"]).exits(5);
    waited.err_has("and goes on");
    sandbox.polity(&["task", "wait", id, "--timeout", "5m"]).prints("thought\n");
    sandbox.polity(&["task", "wait", id, "--timeout", "soon"]).exits(2);
}

#[test]
fn detached_task_runs_in_the_background() {
    let sandbox = HomeSandbox::new();
    let output = sandbox.polity(&["run", "greeter", "think", "--detach"]).exits(0);
    let id = output.out.trim();
    assert_eq!(id.len(), 36, "{output:?}");
    sandbox.polity(&["task", "wait", "last"]).prints("thought\n");
}

#[test]
fn detached_task_has_one_owner() {
    let sandbox = HomeSandbox::new();
    let output = sandbox.polity_with_input(&["run", "greeter", "-", "--detach"], b"think");
    let id = output.out.trim();
    sandbox.polity(&["task", "wait", id]);
    assert_eq!(sandbox.step_names(id), ["created", "started", "model_call", "completed"]);
}

#[test]
fn detached_task_keeps_its_input() {
    let sandbox = HomeSandbox::new();
    for args in [
        vec!["run", "greeter", "--detach", "--", "--detach"],
        vec!["run", "--detach", "greeter", "--", "-5 degrees"],
    ] {
        let output = sandbox.polity(&[&["--json"], args.as_slice()].concat()).exits(0);
        let task: serde_json::Value = serde_json::from_str(&output.out).unwrap();
        assert_eq!(task["description"], *args.last().unwrap());
        let waited = sandbox.polity(&["task", "wait", task["id"].as_str().unwrap()]);
        assert_eq!(waited.out, format!("Hello, {}.\n", args.last().unwrap()));
    }
}

#[test]
fn detach_reports_errors_like_a_run() {
    let sandbox = HomeSandbox::new();
    assert_eq!(sandbox.error(2, &["run", "nobody", "x", "--detach"]).code, "unknown_agent");
    sandbox.polity(&["run", "greeter", " ", "--detach"]).fails(2, "the input is empty");
}

#[test]
fn finished_task_rejects_cancel_and_resume() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["run", "greeter", "Ada"]);
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    for command in ["cancel", "resume"] {
        let error = sandbox.error(1, &["task", command, &id]);
        assert_eq!(error.code, "conflict");
        assert!(error.message.ends_with("is already completed"), "{error:?}");
    }
    assert_eq!(sandbox.polity(&["task", "resume", "--all"]).out, "nothing to resume\n");
    sandbox.polity(&["task", "resume"]).exits(2);
}

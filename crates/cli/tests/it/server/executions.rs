//! Executions, logs, pools, comparisons, exports and sessions over HTTP.

use serde_json::{Value, json};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

#[test]
fn execution_is_started_shown_followed_and_cancelled() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("talker", "echo one; echo two >&2; exec sleep 600", "");
    let server = ServerProcess::start(&home);
    let started = server.post("/api/v1/executions", &json!({"agent": "talker", "input": "x"}));
    let started = started.expect(202);
    let (task, execution) = (&started["task_id"], &started["execution_id"]);
    assert_eq!(&started["task"]["id"], task);
    assert_eq!(&started["execution"]["id"], execution);
    let execution = execution.as_str().unwrap();
    let logs = format!("/api/v1/tasks/{}/logs", task.as_str().unwrap());
    let read = |query: &str| server.get(&format!("{logs}?{query}")).expect(200)["items"].clone();
    let items = home.wait_until("both lines", || {
        let items = read("limit=4");
        (items[0]["bytes"] == 4 && items[1]["bytes"] == 4).then_some(items)
    });
    assert_eq!((&items[0]["text"], &items[1]["text"]), (&json!("one\n"), &json!("two\n")));
    assert_eq!((&items[0]["stream"], &items[1]["stream"]), (&json!("stdout"), &json!("stderr")));
    assert_eq!((&items[0]["run"], &items[0]["open"]), (&json!(1), &json!(true)));
    let rest = read(&format!("execution_id={execution}&stream=stdout&after=2"));
    assert_eq!((&rest[0]["text"], &rest[0]["next_after"]), (&json!("e\n"), &json!(4)));
    assert_eq!(read("stream=stderr&after=99")[0]["text"], "");
    for (query, field) in
        [("limit=3", "limit"), ("limit=1048577", "limit"), ("stream=out", "stream")]
    {
        let answer = server.get(&format!("{logs}?{query}"));
        assert_eq!(answer.expect_problem(422, "invalid_request")["field"], field, "{query}");
    }
    let other = "execution_id=00000000-0000-4000-8000-000000000000";
    server.get(&format!("{logs}?{other}")).expect_problem(404, "not_found");

    let pool = server.get("/api/v1/agents/talker/pool").expect(200);
    assert_eq!((&pool["running"], &pool["idle"]), (&json!(1), &json!(false)));
    assert_eq!((&pool["queue_length"], &pool["in_use"]), (&json!(0), &json!(1)));
    let available = pool["capacity"].as_u64().unwrap() - 1;
    assert_eq!(pool["available"], available);
    server.post(&format!("/api/v1/executions/{execution}/cancel"), &json!({}));
    let idle = server.get("/api/v1/agents/talker/pool?wait=60s").expect(200);
    assert_eq!((&idle["idle"], &idle["running"]), (&json!(true), &json!(0)));
    server.get("/api/v1/agents/talkr/pool").expect_problem(404, "unknown_agent");
}

#[test]
fn execution_of_a_model_agent_waits_and_its_key_is_kept() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let headers = "Content-Type: application/json\r\nIdempotency-Key: one\r\n";
    let send = |body: &str| server.send("POST", "/api/v1/executions?wait=60s", headers, body);
    let first = send(r#"{"agent": "greeter", "input": "Ada"}"#);
    assert_eq!(first.expect(200)["task"]["result"], "Hello, Ada.");
    let again = send(r#"{"input": "Ada", "agent": "greeter"}"#);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(200), first.expect(200));
    send(r#"{"agent": "greeter", "input": "Eve"}"#).expect_problem(422, "idempotency_key_reused");
    assert_eq!(home.tasks().len(), 1);
    let workflow = json!({"agent": "nobody", "input": "x"});
    server.post("/api/v1/executions", &workflow).expect_problem(404, "unknown_agent");
    let folder = json!({"agent": "greeter", "input": "x", "working_directory": "/no/such/folder"});
    let problem = server.post("/api/v1/executions", &folder).expect_problem(404, "not_found");
    assert_eq!(problem["field"], "working_directory");
}

#[test]
fn tasks_are_cancelled_by_a_filter() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("slow", "exec sleep 600", "");
    home.write_shell_agent("other", "exec sleep 600", "");
    let server = ServerProcess::start(&home);
    for agent in ["slow", "slow", "other"] {
        server.post("/api/v1/executions", &json!({"agent": agent, "input": "x"})).expect(202);
    }
    let cancel = |body: &Value| server.post("/api/v1/tasks/cancel", body);
    assert_eq!(cancel(&json!({})).expect_problem(422, "invalid_request")["field"], "all");
    cancel(&json!({"all": 1})).expect_problem(422, "invalid_request");
    let report = cancel(&json!({"agent": "slow"})).expect(200);
    assert_eq!(report["cancelled"].as_array().unwrap().len(), 2);
    assert_eq!((&report["failed"], &report["has_more"]), (&json!([]), &json!(false)));
    server.get("/api/v1/agents/slow/pool?wait=60s").expect(200);
    let running = server.get("/api/v1/tasks?agent=other").expect(200);
    assert_ne!(running["items"][0]["status"], "cancelled");
    assert_eq!(cancel(&json!({"all": true})).expect(200)["cancelled"].as_array().unwrap().len(), 1);
    home.wait_until("the end of all", || {
        let cancelled = server.get("/api/v1/tasks?status=cancelled").expect(200);
        (cancelled["items"].as_array().unwrap().len() == 3).then_some(())
    });
}

#[test]
fn tasks_are_compared_exported_and_drawn() {
    let home = HomeSandbox::new();
    home.write(
        "workflows/pair.yaml",
        "name: pair\nentry_point: a\nnodes:\n  a: {type: agent, agent: greeter, input: '{{ input }}'}\n",
    );
    let server = ServerProcess::start(&home);
    let run = |body: Value| {
        let task = server.post("/api/v1/tasks?wait=60s", &body).expect(200);
        task["id"].as_str().unwrap().to_owned()
    };
    let [a, b] = ["Ada", "Bob"].map(|input| run(json!({"agent": "greeter", "input": input})));
    let diff = server.get(&format!("/api/v1/tasks/{a}/diff/{b}")).expect(200);
    assert_eq!(diff, home.get(&["task", "diff", &a, &b]));
    assert_eq!(diff["same"], false);
    let unknown = "00000000-0000-4000-8000-000000000000";
    server.get(&format!("/api/v1/tasks/{a}/diff/{unknown}")).expect_problem(404, "not_found");

    let export = server.get(&format!("/api/v1/tasks/{a}/export")).expect(200);
    home.polity(&["task", "export", &a, "--out", home.file("out").to_str().unwrap()]).exits(0);
    let files = export["files"].as_object().unwrap();
    assert!(files.len() >= 4, "{files:?}");
    for (path, text) in files {
        let written = std::fs::read_to_string(home.file("out").join(path)).unwrap();
        assert_eq!(&json!(written), text, "{path}");
    }

    let flow = run(json!({"workflow": "pair", "input": "x"}));
    for path in ["/api/v1/workflows/pair/graph".to_owned(), format!("/api/v1/tasks/{flow}/graph")] {
        for (accept, query, kind) in [
            ("", "", "image/svg+xml"),
            ("Accept: text/vnd.mermaid\r\n", "", "text/vnd.mermaid; charset=utf-8"),
            ("Accept: text/vnd.mermaid\r\n", "?format=dot", "text/vnd.graphviz; charset=utf-8"),
        ] {
            let drawn = server.send("GET", &format!("{path}{query}"), accept, "");
            assert_eq!((drawn.status, drawn.header("content-type")), (200, Some(kind)), "{path}");
            assert!(!drawn.body.is_empty());
        }
    }
    let svg = server.get(&format!("/api/v1/tasks/{flow}/graph")).body;
    let expected = home.polity(&["workflow", "graph", "--task", &flow, "--format", "svg"]).exits(0);
    assert_eq!(svg, expected.out);
    server.get(&format!("/api/v1/tasks/{a}/graph")).expect_problem(404, "not_found");

    // The node's agent is a session of the workflow.
    let sessions = server.get("/api/v1/sessions").expect(200);
    assert_eq!(sessions["items"], home.get(&["session", "list"]));
    let id = sessions["items"][0]["session_id"].as_str().unwrap();
    let shown = server.get(&format!("/api/v1/sessions/{id}")).expect(200);
    assert_eq!(shown, home.get(&["session", "show", id]));
    let of_task = server.get(&format!("/api/v1/sessions?task={flow}")).expect(200);
    assert_eq!(of_task, sessions);
    server.get(&format!("/api/v1/sessions/{a}")).expect_problem(404, "not_found");
}

//! Remote A2A agents, with servers of the official SDKs.

mod servers;

use std::fs;
use std::process::Child;

use serde_json::json;

use self::servers::{SdkServer, StubServer, TcpRelay, card};
use crate::sandbox::{CommandOutput, HomeSandbox, command_output, finish, kill};

/// A home with one agent and its card URL.
fn home(card: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::empty();
    sandbox.write("polity.yaml", "limits: {remote_seconds: 60}");
    point(&sandbox, card, "");
    sandbox
}

/// Changes the agent's card URL.
fn point(sandbox: &HomeSandbox, card: &str, more: &str) {
    let agent = format!("name: painter\nkind: remote\nrole: paints\ncard_url: {card}\n{more}");
    sandbox.write("agents/painter.yaml", &agent);
}

/// A home and a server of the Python SDK with these arguments.
fn python(args: &[&str]) -> (HomeSandbox, SdkServer) {
    let sandbox = home("http://127.0.0.1:9/");
    let server = SdkServer::python(&sandbox, args);
    point(&sandbox, &server.card(), "");
    (sandbox, server)
}

fn run(sandbox: &HomeSandbox, input: &str) -> CommandOutput {
    sandbox.polity(&["-q", "run", "painter", input])
}

/// Starts a task that waits for a file, and waits until the server reports the remote task id.
fn start_waiting(sandbox: &HomeSandbox) -> (Child, String) {
    let input = format!("wait {}", sandbox.file("go").display());
    let child = sandbox.start(&["-q", "run", "painter", &input]);
    sandbox.wait_until("the server works", || {
        let (active, _) = sandbox.json(&["execution", "list", "--active"]);
        (active[0]["remote_task"]["task_id"].is_string()).then_some(())
    });
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    (child, id)
}

#[test]
fn both_sdks_work_over_every_binding() {
    let sandbox = home("http://127.0.0.1:9/");
    let python = |args: &[&str]| SdkServer::python(&sandbox, args);
    let javascript = |offers| SdkServer::javascript(&sandbox, offers);
    let servers = [
        (python(&["--offer", "JSONRPC/1.0", "--offer", "JSONRPC/0.3"]), "JSONRPC 1.0"),
        (python(&["--offer", "HTTP+JSON/1.0", "--no-streaming"]), "HTTP+JSON 1.0"),
        (python(&["--offer", "JSONRPC/0.3", "--card", "0.3"]), "JSONRPC 0.3"),
        (javascript("HTTP+JSON/1.0,JSONRPC/1.0"), "JSONRPC 1.0"),
        (javascript("HTTP+JSON/1.0"), "HTTP+JSON 1.0"),
        (javascript("JSONRPC/0.3"), "JSONRPC 0.3"),
    ];
    for (server, protocol) in servers {
        point(&sandbox, &server.card(), "");
        for (input, code, expected) in [
            ("a house", 0, "painted a house\n"),
            ("message hello", 0, "heard hello\n"),
            ("fail", 1, "out of paint"),
        ] {
            let output = run(&sandbox, input);
            assert_eq!(output.code, code, "{protocol}: {output:?}");
            assert!(
                format!("{}{}", output.out, output.err).contains(expected),
                "{protocol}: {output:?}"
            );
        }
        let output = run(&sandbox, "ask");
        assert_eq!(output.code, 3, "{protocol}: {output:?}");
        let output = sandbox.polity(&["-q", "review", "approve", "last", "--message", "blue"]);
        assert_eq!(
            (output.code, output.out.as_str()),
            (0, "painted it blue\n"),
            "{protocol}: {output:?}"
        );
        let (executions, _) = sandbox.json(&["execution", "list"]);
        assert_eq!(executions[0]["result"]["remote"]["protocol"], protocol, "{executions}");
    }
}

#[test]
fn remote_outcomes_map_to_task_statuses() {
    let (sandbox, server) = python(&["--offer", "JSONRPC/1.0"]);
    for (input, expected) in [
        ("stream", "one two three\n"),
        ("say hello", "said hello\n"),
        ("data", "{\"colour\":\"blue\"}\n"),
        ("file", "painted\n[file a.png, image/png: https://h/a.png]\n"),
    ] {
        run(&sandbox, input).prints(expected);
    }
    for (input, expected) in [
        ("reject", "does not take this work: not my work"),
        ("auth", "the museum wants a ticket; give the agent's file an auth"),
    ] {
        run(&sandbox, input).fails(1, "agent_failed").err_has(expected);
    }
    sandbox.polity(&["-q", "run", "painter", "x", "--param", "size=3"]).exits(0);
    assert_eq!(server.messages().last().unwrap()["metadata"], json!({"size": 3.0}));
    sandbox.write("polity.yaml", "limits: {output_bytes: 50000}");
    run(&sandbox, "flood").fails(1, "limits.output_bytes allows, which is 50000");
    // Polity cancelled this remote task and the one that required authentication.
    assert_eq!(server.cancelled(), 2);
    sandbox.write("polity.yaml", "limits: {remote_seconds: 1}");
    run(&sandbox, "wait /nowhere/to/be/found").fails(5, "limits.remote_seconds");
    assert_eq!(server.cancelled(), 3);
}

#[test]
fn text_of_a_server_on_the_python_sdk_of_0_3_is_not_doubled() {
    let sandbox = home("http://127.0.0.1:9/");
    let server = SdkServer::python_03(&sandbox);
    point(&sandbox, &server.card(), "");
    // The server waits for the file, so that Polity follows the task before its first piece.
    let go = sandbox.file("go");
    let running = sandbox.start(&["-q", "run", "painter", &go.display().to_string()]);
    sandbox.wait_until("Polity follows the task", || {
        let count = |event| server.events(event).len();
        (count("get") >= 2 || count("resubscribe") >= 1).then_some(())
    });
    sandbox.write("go", "");
    finish(running).prints("one two three\n");
    let (executions, _) = sandbox.json(&["execution", "list"]);
    assert_eq!(executions[0]["result"]["remote"]["protocol"], "JSONRPC 0.3", "{executions}");
}

#[test]
fn killed_process_resends_no_message() {
    let (sandbox, server) = python(&["--offer", "HTTP+JSON/1.0"]);
    let (mut running, id) = start_waiting(&sandbox);
    kill(&mut running);
    sandbox.write("go", "");
    sandbox.polity(&["-q", "task", "resume", &id]).prints("waited\n");
    assert_eq!(server.messages().len(), 1);
    assert!(
        sandbox.step_names("last").contains(&"remote_accepted".to_owned()),
        "{:?}",
        sandbox.step_names("last")
    );
}

#[test]
fn unreachable_server_is_retried() {
    let relay = TcpRelay::new();
    let sandbox = home(&card(relay.port));
    let address = format!("http://127.0.0.1:{}", relay.port);
    let server = SdkServer::python(&sandbox, &["--offer", "JSONRPC/1.0", "--address", &address]);
    relay.forward_to(server.port);
    let (running, _) = start_waiting(&sandbox);
    relay.cut();
    sandbox.write("go", "");
    std::thread::sleep(std::time::Duration::from_millis(300));
    relay.open();
    finish(running).prints("waited\n");
    assert_eq!(server.messages().len(), 1);
}

#[test]
fn cancel_reaches_the_server() {
    let sandbox = home("http://127.0.0.1:9/");
    let javascript = SdkServer::javascript(&sandbox, "JSONRPC/1.0");
    let python = SdkServer::python(&sandbox, &["--offer", "JSONRPC/0.3", "--card", "0.3"]);
    for server in [javascript, python] {
        point(&sandbox, &server.card(), "");
        let (running, id) = start_waiting(&sandbox);
        sandbox.polity(&["task", "cancel", &id]).exits(0);
        assert_eq!(finish(running).code, 4);
        assert_eq!(server.cancelled(), 1);
        assert_eq!(sandbox.step_names("last").last().unwrap(), "remote_cancelled");
        // Cancelling also reaches remote tasks that wait for input.
        assert_eq!(run(&sandbox, "ask").code, 3);
        sandbox.polity(&["task", "cancel", "last"]).exits(0);
        assert_eq!(sandbox.step_names("last").last().unwrap(), "remote_cancelled");
        assert_eq!(run(&sandbox, "ask").code, 3);
        sandbox.polity(&["review", "reject", "last"]).exits(1);
        assert_eq!(sandbox.step_names("last").last().unwrap(), "remote_cancelled");
        assert_eq!(server.cancelled(), 3);
    }
    // Remote steps survive an export and an import.
    let files = sandbox.file("kept");
    let files = files.to_str().unwrap();
    sandbox.polity(&["task", "export", "last", "--out", files]).exits(0);
    let other = HomeSandbox::new();
    other.polity(&["task", "import", files]).exits(0);
    let steps = [sandbox.step_names("last"), vec!["imported".to_owned()]].concat();
    assert_eq!(other.step_names("last"), steps);
}

#[test]
fn unconfirmed_message_needs_review() {
    let (sandbox, server) = python(&["--offer", "JSONRPC/1.0"]);
    // The server exits after it received the message.
    run(&sandbox, "die").exits(3);
    assert_eq!(server.messages().len(), 1);
    let (reviews, _) = sandbox.json(&["review", "list"]);
    assert_eq!(reviews[0]["about"], "run_doubt", "{reviews}");
    let output =
        sandbox.polity(&["-q", "review", "approve", "last", "--skip-with", "it was painted"]);
    assert_eq!((output.code, output.out.as_str()), (0, "it was painted\n"), "{output:?}");
    // Polity is killed before the server answers.
    let offer = r#"{"supportedInterfaces": [{"url": "http://127.0.0.1:PORT/rpc",
        "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}"#;
    let stub = StubServer::new("200 OK", offer);
    point(&sandbox, &stub.card(), "");
    let mut running = sandbox.start(&["run", "painter", "a house"]);
    sandbox.wait_until("it was sent", || (stub.posts() == 1).then_some(()));
    kill(&mut running);
    sandbox
        .polity(&["task", "resume", "last"])
        .fails(3, "it is unknown whether the server accepted it");
    assert_eq!(stub.posts(), 1);
    let (execution, _) = sandbox.json(&["execution", "list"]);
    assert_eq!(execution[0]["result"]["status"], "failure", "{execution}");
    // Polity sends it again only after an approval.
    let mut again = sandbox.start(&["review", "approve", "last", "--retry"]);
    sandbox.wait_until("it was sent again", || (stub.posts() == 2).then_some(()));
    kill(&mut again);
}

#[test]
fn token_is_sent_only_to_the_card_origin() {
    let sandbox = home("http://127.0.0.1:9/");
    let token = "tok-5f0c1c7d9e3b4a6f";
    let guard = format!("Authorization=Bearer {token}");
    let server = SdkServer::python(&sandbox, &["--offer", "JSONRPC/1.0", "--guard", &guard]);
    let auth = "auth: {type: bearer_token, token_env: PAINTER_TOKEN}";
    let paint = |token: &str, what: &str| {
        let mut command = sandbox.command(&["-q", "run", "painter", what]);
        command_output(&command.env("PAINTER_TOKEN", token).output().unwrap())
    };
    point(&sandbox, &server.card(), auth);
    let refused = paint("wrong", "a house");
    refused.fails(1, "status 401").err_has("set PAINTER_TOKEN to a token that it takes");
    paint(token, "a house").prints("painted a house\n");
    let database = fs::read(sandbox.file("data/polity.db")).unwrap();
    assert!(!database.windows(token.len()).any(|window| window == token.as_bytes()));
    // The token is masked in the server's answer.
    assert_eq!(paint(token, &format!("{token} twice")).out, "painted *** twice\n");
    let key = SdkServer::python(
        &sandbox,
        &["--offer", "HTTP+JSON/1.0", "--guard", &format!("X-Painter={token}")],
    );
    let auth = "auth: {type: api_key, token_env: PAINTER_TOKEN, header_name: X-Painter}";
    point(&sandbox, &key.card(), auth);
    assert_eq!(paint(token, "a house").code, 0);
    let elsewhere = ["--offer", "JSONRPC/1.0", "--address", "http://localhost:9"];
    let elsewhere = SdkServer::python(&sandbox, &elsewhere);
    point(&sandbox, &elsewhere.card(), auth);
    paint(token, "a house").fails(1, "another origin");
}

#[test]
fn unusable_cards_are_errors_with_hints() {
    let old = r#"{"protocolVersion": "0.2.5", "url": "http://h/", "name": "x"}"#;
    let grpc = r#"{"supportedInterfaces": [{"url": "h:1", "protocolBinding": "GRPC",
        "protocolVersion": "1.0"}]}"#;
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(2 << 20));
    let supported = "JSONRPC 1.0, HTTP+JSON 1.0, JSONRPC 0.3";
    let cases = [
        ("404 Not Found", "no", "card_url is the whole address"),
        ("200 OK", "<html>", "is no card of an agent"),
        ("200 OK", "{}", "offers no interface"),
        ("200 OK", old, "offers JSONRPC 0.2"),
        ("200 OK", grpc, "offers GRPC 1.0"),
        ("200 OK", &large, "larger than 1048576 bytes, the most that a card may have"),
        ("301 Moved Permanently", "", "give the address that it leads to as card_url"),
    ];
    let sandbox = home("http://127.0.0.1:9/");
    for (status, body, expected) in cases {
        let stub = StubServer::new(status, body);
        point(&sandbox, &stub.card(), "");
        let output = run(&sandbox, "a house").exits(1);
        assert!(output.err.contains(expected), "{expected}: {output:?}");
        assert!(!expected.contains("offers") || output.err.contains(supported), "{output:?}");
    }
}

#[test]
fn remote_sub_agent_has_an_isolated_history() {
    let (sandbox, server) = python(&["--offer", "JSONRPC/1.0"]);
    sandbox.write(
        "agents/boss.yaml",
        "{name: boss, kind: llm, role: r, system_prompt: CANARY-OF-THE-BOSS, sub_agents: [painter],
          llm_config: {provider: scripted, script: boss}}",
    );
    sandbox.write(
        "scripts/boss.yaml",
        r#"
rules:
  - when: "go$"
    role: user
    tool_calls:
      - {tool: agent/painter, arguments: {task_description: "secretly a house"}}
      - {tool: agent/painter, arguments: {task_description: "secretly a tree"}}
  - {when: "(?s)(.*)", role: tool, reply: "it said: $1"}
"#,
    );
    let output = sandbox.polity(&["-q", "run", "boss", "CANARY-OF-THE-BOSS go"]);
    assert_eq!((output.code, output.out.as_str()), (0, "it said: painted a tree\n"), "{output:?}");
    let mut texts = server.texts();
    texts.sort();
    assert_eq!(texts, ["secretly a house", "secretly a tree"]);
    let messages = server.messages();
    assert_ne!(messages[0]["context"], messages[1]["context"]);
    assert!(!fs::read_to_string(sandbox.file("python.log")).unwrap().contains("CANARY"));
    let (trace, _) = sandbox.json(&["task", "trace", "last"]);
    assert_eq!(trace["sub_agent_sessions"].as_object().unwrap().len(), 2);
    for task in sandbox.tasks() {
        let (trace, _) = sandbox.json(&["task", "trace", task["id"].as_str().unwrap()]);
        assert!(!trace.to_string().contains("CANARY-OF-THE-PAINTER"), "{trace}");
    }
    // Cancelling a parent cancels the remote task of its sub-agent.
    let wait = format!("wait {}", sandbox.file("go").display());
    let script = format!(
        "rules: [{{when: go, role: user, tool_calls: [{{tool: agent/painter, arguments: \
         {{task_description: '{wait}'}}}}]}}]\n"
    );
    sandbox.write("scripts/boss.yaml", &script);
    let running = sandbox.start(&["-q", "run", "boss", "go"]);
    sandbox.wait_until("the server works", || {
        let (active, _) = sandbox.json(&["execution", "list", "--active"]);
        let mut all = active.as_array()?.iter();
        all.any(|execution| execution["remote_task"].is_object()).then_some(())
    });
    let top = sandbox.json(&["task", "list"]).0[0]["id"].as_str().unwrap().to_owned();
    sandbox.polity(&["task", "cancel", &top]).exits(0);
    assert_eq!(finish(running).code, 4);
    assert_eq!(server.cancelled(), 1);
}

#[test]
fn remote_workflow_node_can_ask_for_review() {
    let (sandbox, server) = python(&["--offer", "JSONRPC/1.0"]);
    sandbox.write(
        "workflows/gallery.yaml",
        "{name: gallery, nodes: {draw: {type: agent, agent: painter, input: 'ask {{ input }}'},
          frame: {type: agent, agent: painter, input: 'frame {{ last }}'}},
          edges: [{from: draw, to: frame}], entry_point: draw}",
    );
    sandbox.polity(&["-q", "run", "gallery", "a house"]).exits(3);
    let (reviews, _) = sandbox.json(&["review", "list"]);
    assert_eq!(reviews[0]["about"], "remote_question", "{reviews}");
    assert_eq!(reviews[0]["question"], "Which colour?");
    sandbox.polity(&["-q", "review", "approve", "last"]).fails(2, "--message TEXT");
    let output = sandbox.polity(&["-q", "review", "modify", "last", "--message", "blue"]);
    let expected = "painted frame painted it blue\n";
    assert_eq!((output.code, output.out.as_str()), (0, expected), "{output:?}");
    let messages = server.messages();
    assert_eq!(messages[1]["context"], messages[0]["context"]);
    assert_ne!(messages[2]["context"], messages[0]["context"]);
}

/// A conversation with a question is recorded and replayed without a server.
#[test]
fn remote_calls_are_recorded_and_replayed() {
    let (sandbox, server) = python(&["--offer", "JSONRPC/1.0"]);
    sandbox.polity(&["run", "painter", "ask a house", "--record", "tape.json"]).exits(3);
    let answer = ["review", "modify", "last", "--message", "blue", "--record", "tape.json"];
    let recorded = sandbox.polity(&answer).prints("painted it blue\n");
    recorded.err_has("2 remote messages and 1 review answer in tape.json");
    assert_eq!(server.messages().len(), 2);
    drop(server);
    // The cassette has the answer to the question.
    let replay = ["run", "painter", "ask a house", "--replay", "tape.json"];
    sandbox.polity(&replay).prints("painted it blue\n");
    let differs = sandbox.polity(&["run", "painter", "ask a tree", "--replay", "tape.json"]);
    differs.fails(1, "  - text: ask a house\n  + text: ask a tree");
}

//! The OpenAPI document as others read it: a tester of HTTP APIs finds no answer outside it, and
//! generated clients compile and work.

use std::path::Path;
use std::process::{Command, Output};

use polity_testkit::peers;
use serde_json::json;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// The seed of the generated requests.
const SEED: &str = "20261118";

/// The most requests of each kind and route.
const EXAMPLES_MAX: &str = "12";

fn finish(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// Writes the document of a server into a folder.
fn write_document(server: &ServerProcess<'_>, folder: &Path) {
    let document = server.send_with("GET", "/api/openapi.json", "", "").body;
    std::fs::write(folder.join("openapi.json"), document).unwrap();
}

fn url(server: &ServerProcess<'_>) -> String {
    format!("http://{}", server.address())
}

/// A home with something of every kind.
fn full_home() -> HomeSandbox {
    let home = HomeSandbox::society();
    home.write_shell_agent("echo", "cat; echo note >&2", "");
    home.write_scripted_agent("greeter", "");
    home.write("scripts/greeter.yaml", "default: {reply: 'Hello, $input.'}\n");
    home.write(
        "workflows/gate.yaml",
        "name: gate
entry_point: ask
nodes:
  ask: {type: human, question: \"Publish {{ input }}?\"}
  done: {type: agent, agent: greeter, input: '{{ input }}'}
edges: [{from: ask, to: {approve: done, reject: done, modify: done}}]
",
    );
    home
}

#[test]
fn generated_requests_find_no_answer_outside_the_document() {
    let home = full_home();
    let server = ServerProcess::start_silent(&home);
    let body = json!({"agent": "echo", "input": "x"});
    let execution = server.post("/api/v1/executions?wait=60s", &body).expect(200);
    let task = server.post("/api/v1/tasks?wait=60s", &json!({"workflow": "gate", "input": "x"}));
    let task = task.expect(200);
    let run = json!({"scenario": "society", "turns": 2});
    let run = server.post("/api/v1/simulations?wait=60s", &run).expect(200);

    let folder = tempfile::tempdir().unwrap();
    write_document(&server, folder.path());
    let config = format!(
        "[parameters]\n\"path.task_id\" = {}\n\"path.other_task_id\" = {}\n\
         \"path.execution_id\" = {}\n\"path.run_id\" = {}\n\
         \"path.session_id\" = {}\n\"query.wait\" = \"1ms\"\n\
         # No schema says which cron expressions come true, and which agents there are.\n\
         [[operations]]\ninclude-operation-id = \"createSchedule\"\n\
         checks.positive_data_acceptance.expected-statuses = [201, 401, 403, 409, 422]\n",
        task["id"], execution["task_id"], execution["execution_id"], run["run_id"], task["id"],
    );
    std::fs::write(folder.path().join("schemathesis.toml"), config).unwrap();
    let mut tester = Command::new(peers::api_tester("schemathesis"));
    tester.current_dir(folder.path());
    tester.args(["run", "openapi.json", "--url", &url(&server)]);
    tester.args(["--header", &format!("Authorization: Bearer {}", server.token)]);
    tester.args(["--checks", "all", "--seed", SEED, "--max-examples", EXAMPLES_MAX]);
    tester.args(["--generation-database", ":memory:", "--request-timeout", "60", "--no-color"]);
    tester.env("PYTHONPATH", peers::script("python-http"));
    tester.env("SCHEMATHESIS_HOOKS", "fresh_keys").env("PYTHONDONTWRITEBYTECODE", "1");
    // Each wrong token is answered more slowly, and `tokens.rs` tries them on every route.
    tester.args(["--exclude-checks", "ignored_auth", "--continue-on-failure"]);
    // Streams have no end.
    tester.args(["--exclude-operation-id-regex", "^follow"]);
    finish(&mut tester);
    server.stop().exits(0);
}

#[test]
fn typescript_client_compiles_and_works() {
    let home = full_home();
    let server = ServerProcess::start_silent(&home);
    let folder = tempfile::tempdir().unwrap();
    write_document(&server, folder.path());
    let packages = peers::http_javascript().join("node_modules");
    std::os::unix::fs::symlink(&packages, folder.path().join("node_modules")).unwrap();
    std::fs::write(folder.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    std::fs::copy(peers::script("npm-http/client.ts"), folder.path().join("client.ts")).unwrap();
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new("node");
        command.current_dir(folder.path()).arg(packages.join(program)).args(args);
        finish(&mut command)
    };
    run("openapi-typescript/bin/cli.js", &["openapi.json", "--output", "api.d.ts"]);
    let options = ["--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module"];
    run(
        "typescript/bin/tsc",
        &[&options[..], &["nodenext", "--lib", "es2022,dom", "client.ts"]].concat(),
    );
    let mut client = Command::new("node");
    client.current_dir(folder.path()).arg("client.js").args([&url(&server), &server.token]);
    assert_eq!(finish(&mut client).stdout, b"ok\n");
}

#[test]
fn python_client_is_generated_and_works() {
    let home = full_home();
    let server = ServerProcess::start_silent(&home);
    let folder = tempfile::tempdir().unwrap();
    write_document(&server, folder.path());
    let config = "package_name_override: polity_client\n";
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let mut generate = Command::new(peers::api_tester("openapi-python-client"));
    generate.current_dir(folder.path());
    // It formats the client with a program of its own environment.
    generate.env("PATH", peers::api_tester("ruff").parent().unwrap());
    generate.args(["generate", "--path", "openapi.json", "--config", "config.yaml"]);
    generate.args(["--meta", "none", "--output-path", "polity_client", "--fail-on-warning"]);
    finish(&mut generate);
    let mut client = Command::new(peers::api_tester("python"));
    client.current_dir(folder.path()).env("PYTHONPATH", folder.path());
    client.arg(peers::script("python-http/client.py")).args([&url(&server), &server.token]);
    assert_eq!(finish(&mut client).stdout, b"ok\n");
}

//! `polity doctor`: this machine, and everything that a home needs.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use polity_testkit::mcp::fixture;
use polity_testkit::raw_http::RawHttpServer;
use serde_json::{Value, json};

use crate::sandbox::{CommandOutput, HomeSandbox, command_output};

/// A key that no output may contain.
const KEY: &str = "sk-hunter2-hunter2-hunter2";

fn report(output: &CommandOutput) -> Value {
    assert!(!output.out.contains(KEY) && !output.err.contains(KEY), "{output:?}");
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn run(command: &mut Command) -> CommandOutput {
    command_output(&command.output().unwrap())
}

#[track_caller]
fn check<'r>(report: &'r Value, subject: &str, name: &str) -> &'r Value {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|one| one["subject"] == subject && one["name"] == name);
    found.unwrap_or_else(|| panic!("there is no check {subject} {name}: {report:#}"))
}

fn write_program(home: &HomeSandbox, path: &str, script: &str) {
    home.write(path, &format!("#!/bin/sh\n{script}\n"));
    let path = home.file(path);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn machine_is_checked_without_a_home() {
    let folder = HomeSandbox::empty();
    let output = run(folder.command(&["doctor", "--json"]).env("HOME", folder.path())).exits(0);
    let report = report(&output);
    assert_eq!((&report["healthy"], &report["home"]), (&json!(true), &Value::Null));
    for (subject, name) in [
        ("machine", "kernel"),
        ("machine", "pidfd"),
        ("machine", "control groups"),
        ("machine", "user namespaces"),
        ("machine", "Landlock"),
        ("programs", "claude"),
        ("clock", "time zones"),
    ] {
        check(&report, subject, name);
    }
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().all(|one| one["needed"] == false), "{report:#}");
    let text = run(folder.command(&["doctor"]).env("HOME", folder.path())).exits(0);
    text.out_has("only the machine was checked").out_has("everything works that is needed");
    assert!(!folder.file(".polity").exists());
}

#[test]
fn named_home_that_does_not_exist_is_an_error() {
    let folder = HomeSandbox::empty();
    folder.polity(&["--home", "nowhere", "doctor"]).fails(1, "there is no home folder nowhere");
}

#[test]
fn installed_agents_are_listed_with_their_versions() {
    let home = HomeSandbox::new();
    write_program(
        &home,
        "bin/claude",
        "test -z \"$ANTHROPIC_API_KEY\" && echo '2.0.14 (Claude Code)'",
    );
    write_program(&home, "bin/codex", "echo \"cannot start: $OPENAI_API_KEY\" >&2; exit 4");
    write_program(&home, "bin/llm", "echo 'llm, version 0.36'");
    let mut command = home.command(&["doctor", "--json"]);
    let path = format!("{}:/usr/bin:/bin", home.file("bin").display());
    command.env("PATH", path).env("ANTHROPIC_API_KEY", KEY).env("OPENAI_API_KEY", KEY);
    let report = report(&run(&mut command).exits(0));
    let found = |name| check(&report, "programs", name);
    assert!(found("claude")["finding"].as_str().unwrap().starts_with("2.0.14 ("));
    assert!(found("llm")["finding"].as_str().unwrap().starts_with("0.36 ("));
    let broken = found("codex");
    assert_eq!(broken["status"], "missing");
    assert!(broken["finding"].as_str().unwrap().contains("exit status: 4"), "{broken}");
    let missing = found("copilot");
    assert_eq!((&missing["status"], &missing["needed"]), (&json!("missing"), &json!(false)));
    assert!(missing["fix"].as_str().unwrap().contains("npm install"), "{missing}");
}

#[test]
fn agent_of_the_home_without_its_program_is_a_fault() {
    let home = HomeSandbox::bare();
    home.write_shell_agent("worker", "true", "");
    home.polity(&["doctor"]).exits(0).out_has("agent worker: can start");
    home.write(
        "agents/gone.yaml",
        "{name: gone, kind: cli, executable_path: no-such-program, working_directory: .}",
    );
    let (report, code) = home.json(&["doctor"]);
    assert_eq!((code, &report["healthy"]), (1, &json!(false)));
    let gone = check(&report, "home", "agent gone");
    assert_eq!((&gone["status"], &gone["needed"]), (&json!("missing"), &json!(true)));
    assert!(gone["finding"].as_str().unwrap().contains("no-such-program"), "{gone}");
    home.polity(&["doctor"]).exits(1).out_has("1 fault that the home needs").out_has("fix: ");
}

#[test]
fn invalid_definition_is_a_fault() {
    let home = HomeSandbox::new();
    home.write("agents/broken.yaml", "{name: broken, kind: llm, rool: x}");
    let (report, code) = home.json(&["doctor"]);
    let definitions = check(&report, "home", "definitions");
    assert_eq!((code, &definitions["status"]), (1, &json!("missing")));
    assert!(definitions["finding"].as_str().unwrap().contains("agents/broken.yaml"));
}

#[test]
fn tool_servers_are_started_and_a_broken_one_is_a_fault() {
    let home = HomeSandbox::bare();
    let server = |name: &str, command: &str, args: &[&str]| {
        json!({"name": name, "transport": "stdio", "config": {
            "command": command, "args": args, "env": {"API_TOKEN": "${API_TOKEN}"},
        }})
    };
    let write = |servers: Value| {
        home.write("config/mcp_servers.yaml", &json!({ "servers": servers }).to_string());
    };
    let works = server("kit", "python3", &[fixture().to_str().unwrap()]);
    write(json!([works]));
    let mut command = home.command(&["doctor", "--json"]);
    let healthy = report(&run(command.env("API_TOKEN", KEY)).exits(0));
    let kit = check(&healthy, "tools", "kit");
    assert!(kit["finding"].as_str().unwrap().starts_with("starts, "), "{kit}");
    let broken = server("broken", "sh", &["-c", "echo \"no: $API_TOKEN\" >&2; exit 1"]);
    write(json!([works, broken]));
    let mut command = home.command(&["doctor", "--json"]);
    let report = report(&run(command.env("API_TOKEN", KEY)).exits(1));
    assert_eq!(check(&report, "tools", "kit")["status"], "ok");
    let broken = check(&report, "tools", "broken");
    assert_eq!((&broken["status"], &broken["needed"]), (&json!("missing"), &json!(true)));
    assert!(broken["fix"].as_str().unwrap().contains("polity tool list broken"), "{broken}");
}

fn write_model_agent(home: &HomeSandbox, name: &str, model: &str, endpoint: &str) {
    let agent = json!({
        "name": name, "kind": "llm", "role": "r", "system_prompt": "p",
        "llm_config": {
            "provider": "openai_compatible", "endpoint": endpoint, "model": model,
            "api_key_env": "MODEL_KEY",
        },
    });
    home.write(&format!("agents/{name}.yaml"), &agent.to_string());
}

#[test]
fn each_distinct_model_is_asked_once() {
    let home = HomeSandbox::new();
    let models = RawHttpServer::start(|_request, response| {
        response.send(200, &[], r#"{"data": [{"id": "small"}]}"#)
    });
    for name in ["one", "two"] {
        write_model_agent(&home, name, "small", &models.url("/v1"));
    }
    write_model_agent(&home, "three", "large", &models.url("/v1"));
    let mut command = home.command(&["doctor", "--json"]);
    let report = report(&run(command.env("MODEL_KEY", KEY)).exits(0));
    assert_eq!(check(&report, "models", "scripted")["status"], "ok");
    assert_eq!(check(&report, "models", "openai_compatible/small")["status"], "ok");
    assert_eq!(check(&report, "models", "openai_compatible/large")["status"], "weaker");
    assert_eq!(models.requests().len(), 2);
}

#[test]
fn missing_and_refused_keys_name_their_variable() {
    let home = HomeSandbox::new();
    // Providers repeat the key in their errors.
    let models = RawHttpServer::start(|request, response| {
        let key = request.header("authorization").unwrap_or_default().to_owned();
        response.send(401, &[], &format!("wrong key: {key}"))
    });
    write_model_agent(&home, "writer", "small", &models.url("/v1"));
    let mut command = home.command(&["doctor", "--json"]);
    let missing = report(&run(command.env_remove("MODEL_KEY")).exits(1));
    let model = check(&missing, "models", "openai_compatible/small");
    assert!(model["finding"].as_str().unwrap().contains("MODEL_KEY is not set"), "{model}");
    assert!(models.requests().is_empty());
    let mut command = home.command(&["doctor", "--json"]);
    let refused = report(&run(command.env("MODEL_KEY", KEY)).exits(1));
    let model = check(&refused, "models", "openai_compatible/small");
    assert_eq!(model["finding"], "the server refuses the key in MODEL_KEY");
    assert_eq!(model["meaning"], "tasks of writer fail");
    drop(models);
    write_model_agent(&home, "writer", "small", "http://127.0.0.1:1/v1");
    let mut command = home.command(&["doctor", "--json"]);
    let unreachable = report(&run(command.env("MODEL_KEY", KEY)).exits(1));
    let model = check(&unreachable, "models", "openai_compatible/small");
    assert!(model["finding"].as_str().unwrap().starts_with("cannot be reached"), "{model}");
}

#[test]
fn damaged_database_and_full_disk_are_faults() {
    let home = HomeSandbox::new();
    assert_eq!(check(&home.get(&["doctor"]), "store", "database")["finding"], "not created yet");
    home.polity(&["run", "greeter", "Ada"]).exits(0);
    let intact = home.get(&["doctor"]);
    let database = check(&intact, "store", "database");
    assert!(database["finding"].as_str().unwrap().starts_with("intact, "), "{database}");
    home.write("polity.yaml", "server: {min_free_disk_bytes: 9000000000000000000}\n");
    let (full, code) = home.json(&["doctor"]);
    let disk = check(&full, "store", "disk");
    assert_eq!((code, &disk["status"]), (1, &json!("missing")));
    assert!(disk["meaning"].as_str().unwrap().contains("server.min_free_disk_bytes"), "{disk}");
    home.write("polity.yaml", "");
    home.write("data/polity.db", "this is not a database, whatever its name says");
    let (damaged, code) = home.json(&["doctor"]);
    let database = check(&damaged, "store", "database");
    assert_eq!((code, &database["status"]), (1, &json!("missing")), "{damaged:#}");
}

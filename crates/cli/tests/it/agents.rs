//! Adding, enabling and disabling agents with `polity agent`.

use std::fs;

use serde_json::json;

use crate::sandbox::{HomeSandbox, kill};

#[test]
fn agent_add_writes_a_validated_file() {
    let sandbox = HomeSandbox::new();
    let output = sandbox.polity(&[
        "agent",
        "add",
        "words",
        "--executable",
        "sh",
        "--arg=-c",
        "--arg",
        "wc -w; echo \"$GIVEN\"",
        "--env",
        "GIVEN=yes: no",
        "--access-type",
        "read-only",
        "--timeout",
        "5",
        "--set",
        "resource_limits.memory_mb=512",
        "--set",
        "idempotent=true",
    ]);
    output.exits(0).out_has("wrote agents/words.yaml");
    let (agent, _) = sandbox.json(&["agent", "show", "words"]);
    assert_eq!(agent["timeout"], 5);
    assert_eq!(agent["resource_limits"]["memory_mb"], 512);
    assert_eq!(agent["idempotent"], true);
    sandbox.polity(&["-q", "run", "words", "one two three"]).prints("3\nyes: no\n");
}

#[test]
fn agent_add_refuses_a_literal_secret_and_does_not_repeat_it() {
    let sandbox = HomeSandbox::new();
    for (name, secret) in [
        ("DB_PASSWORD", "correct-horse"),
        ("LABEL", concat!("gsk", "_abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop")),
    ] {
        let given = format!("{name}={secret}");
        let output =
            sandbox.polity(&["agent", "add", "words", "--executable", "wc", "--env", &given]);
        assert_ne!(output.code, 0, "{output:?}");
        let told = format!("{}{}", output.out, output.err);
        assert!(told.contains(&format!("${{{name}}}")) && !told.contains(secret), "{told}");
        assert!(!sandbox.file("agents/words.yaml").exists());
    }
    let reference = "DB_PASSWORD=${MY_PASSWORD}";
    let args = ["agent", "add", "words", "--executable", "wc", "--env", reference];
    sandbox.polity(&args).exits(0);
}

#[test]
fn agent_add_supports_every_kind() {
    let sandbox = HomeSandbox::new();
    let (output, _) = sandbox.json(&["agent", "add", "coder", "--preset", "claude"]);
    assert_eq!(output, json!({"name": "coder", "file": "agents/coder.yaml"}));
    let llm = ["--role", "r", "--system-prompt", "p", "--provider", "scripted"];
    let output = sandbox.polity(
        &[&["agent", "add", "helper", "--kind", "llm", "--script", "greeter"], &llm[..]].concat(),
    );
    assert_eq!(output.code, 0, "{output:?}");
    let url = "https://example.org/card.json";
    sandbox.polity(&["agent", "add", "far", "--kind", "remote", "--card-url", url]).exits(0);
    sandbox.polity(&["check"]).exits(0);
}

#[test]
fn agent_add_rejects_invalid_and_existing_agents() {
    let sandbox = HomeSandbox::new();
    for (args, expected) in [
        (vec!["words"], "executable_path"),
        (vec!["words", "--executable", "wc", "--access-type", "none"], "read-only"),
        (vec!["words", "--executable", "wc", "--card-url", "https://x.org"], "card_url"),
        (vec!["words", "--executable", "wc", "--set", "no_such=1"], "no_such"),
        (vec!["Words", "--executable", "wc"], "Words"),
        (vec!["words", "--executable", "wc", "--env", "=x"], "NAME=VALUE"),
        (vec!["words", "--executable", "wc", "--set", "kind=llm"], "twice"),
    ] {
        sandbox.polity(&[vec!["agent", "add"], args].concat()).fails(2, expected);
        assert_eq!(fs::read_dir(sandbox.file("agents")).unwrap().count(), 1);
    }
    let before = fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap();
    sandbox.polity(&["agent", "add", "greeter", "--executable", "wc"]).fails(1, "already");
    assert_eq!(fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap(), before);
}

#[test]
fn disabled_agent_rejects_tasks_until_enabled() {
    let sandbox = HomeSandbox::new();
    let file = fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap();
    let output = sandbox.polity(&["agent", "disable", "greeter", "-m", "the key is gone"]);
    output.prints("agent greeter is disabled\n");
    let output = sandbox.polity(&["run", "greeter", "Ada"]);
    output.fails(2, "the key is gone").err_has("polity agent enable greeter");
    assert_eq!(sandbox.tasks().len(), 0);
    assert_eq!(sandbox.json(&["agent", "status", "greeter"]).0["enabled"], false);
    assert_eq!(sandbox.json(&["agent", "list"]).0[0]["enabled"], false);
    let (agent, _) = sandbox.json(&["agent", "show", "greeter"]);
    assert_eq!(agent["override"]["reason"], "the key is gone");
    sandbox.polity(&["agent", "enable", "greeter"]).prints("agent greeter is enabled\n");
    sandbox.polity(&["agent", "enable", "greeter"]).out_has("already");
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    assert_eq!(fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap(), file);
    sandbox.polity(&["agent", "disable", "nobody"]).exits(2);
}

#[test]
fn enable_overrides_the_definition_file() {
    let sandbox = HomeSandbox::new();
    let file = "{name: off, kind: cli, executable_path: cat, enabled: false}";
    sandbox.write("agents/off.yaml", file);
    sandbox.polity(&["run", "off", "x"]).exits(2);
    sandbox.polity(&["agent", "enable", "off"]).exits(0);
    sandbox.polity(&["-q", "run", "off", "x"]).prints("x\n");
}

#[test]
fn shared_pool_shows_its_load_for_every_agent() {
    let sandbox = HomeSandbox::new();
    for (name, more) in [("one", ""), ("other", ""), ("apart", ", lock_key: apart")] {
        sandbox.write_shell_agent(name, "echo > began; sleep 1000", more);
    }
    let mut running = sandbox.start(&["run", "one", "x"]);
    sandbox.wait_until("it runs", || sandbox.file("began").exists().then_some(()));
    let places = |name: &str| sandbox.json(&["agent", "status", name]).0;
    let other = places("other");
    assert_eq!((&other["running"], &other["pool"]["in_use"]), (&json!(0), &json!(1)));
    assert_eq!(places("apart")["pool"], json!({"in_use": 0, "capacity": 1}));
    kill(&mut running);
}

//! `polity run` and `polity init`: first steps and common errors.

use crate::sandbox::{HomeSandbox, command_output, finish};

#[test]
fn new_home_runs_the_greeter() {
    let sandbox = HomeSandbox::empty();
    sandbox.polity(&["init", "hello"]).exits(0);
    let home = sandbox.file("hello");
    let greeted = sandbox.polity(&["--home", home.to_str().unwrap(), "run", "greeter", "Ada"]);
    assert_eq!((greeted.code, greeted.out.as_str()), (0, "Hello, Ada.\n"), "{greeted:?}");
    for step in ["created", "started", "model call", "completed"] {
        assert!(greeted.err.contains(step), "{greeted:?}");
    }
    sandbox.polity(&["--home", home.to_str().unwrap(), "check"]).exits(0);
}

#[test]
fn init_overwrites_no_file() {
    let sandbox = HomeSandbox::new();
    sandbox.polity(&["init", "."]).fails(1, "is already a home");

    let sandbox = HomeSandbox::empty();
    sandbox.write("agents/greeter.yaml", "mine");
    sandbox.polity(&["init"]).fails(1, "agents/greeter.yaml already exists");
    assert!(!sandbox.file("polity.yaml").exists());
    assert_eq!(std::fs::read_to_string(sandbox.file("agents/greeter.yaml")).unwrap(), "mine");
}

#[test]
fn home_is_found_in_parent_folders() {
    let sandbox = HomeSandbox::new();
    std::fs::create_dir_all(sandbox.file("deep/er")).unwrap();
    let output =
        sandbox.command(&["run", "greeter", "Ada"]).current_dir(sandbox.file("deep/er")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "Hello, Ada.\n");
    let named = HomeSandbox::empty();
    let output =
        named.command(&["run", "greeter", "Bo"]).env("POLITY_HOME", sandbox.path()).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "Hello, Bo.\n");
}

#[test]
fn run_json_is_one_task_document() {
    let sandbox = HomeSandbox::new();
    let parameters = ["--param", "topic=rain", "--param", "depth=3"];
    let more = ["--class", "debug", "--retention-days", "2"];
    let task = sandbox.get(&[&["run", "greeter", "Ada"], &parameters[..], &more].concat());
    assert_eq!(task["description"], "Ada");
    assert_eq!(task["status"], "completed");
    assert_eq!(task["assigned_agent"], "greeter");
    assert_eq!(task["result"], "Hello, Ada.");
    assert_eq!(task["error"], serde_json::Value::Null);
    assert_eq!(task["parameters"], serde_json::json!({"topic": "rain", "depth": 3}));
    assert_eq!(task["retention_days"], 2);
    assert_eq!(task["class"], "debug");
    assert_eq!(task["interrupted"], false);
    assert_eq!(task["usage"]["input_tokens"], 12);
    for time in ["created_at", "started_at", "completed_at"] {
        assert!(task[time].as_str().unwrap().ends_with('Z'), "{task}");
    }
    assert_eq!(task["id"].as_str().unwrap().len(), 36);
}

#[test]
fn input_is_read_from_stdin() {
    let sandbox = HomeSandbox::new();
    let output = sandbox.polity_with_input(&["run", "greeter", "-"], "Zoë".as_bytes());
    assert_eq!(output.out, "Hello, Zoë.\n");
    let output = sandbox.polity_with_input(&["run", "greeter", "-"], b"Bo\n");
    assert_eq!(output.out, "Hello, Bo.\n");
    let output = sandbox.polity_with_input(&["run", "greeter", "-"], b"\xff\xfe");
    output.fails(2, "stdin is not UTF-8 text");
}

#[test]
fn quiet_and_verbose_control_the_output() {
    let sandbox = HomeSandbox::new();
    let quiet = sandbox.polity(&["run", "greeter", "Ada", "-q"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("Hello, Ada.\n", ""));
    let verbose = sandbox.polity(&["run", "greeter", "Ada", "-v"]);
    for event in ["task_claimed", "execution_changed", "checkpoint_taken"] {
        assert!(verbose.err.contains(event), "{verbose:?}");
    }
}

#[test]
fn retries_are_shown() {
    let sandbox = HomeSandbox::new();
    let output = sandbox.polity(&["run", "greeter", "overload"]).prints("Hello, overload.\n");
    let cause = "the model is unavailable (the scripted model answered with status 429)";
    assert_eq!(output.err.matches(cause).count(), 2, "{output:?}");
    assert_eq!(output.err.matches(": retrying in 0.").count(), 2, "{output:?}");
    assert_eq!(output.err.matches(" s, until ").count(), 2, "{output:?}");
}

#[test]
fn outage_of_more_than_three_calls_is_survived() {
    let sandbox = HomeSandbox::new();
    sandbox.write_scripted_agent("patient", "");
    sandbox.write_scripted_agent("hasty", ", max_retry_seconds: 0");
    let script = "
rules: [{when: ., error: {status: 503, retry_after_seconds: 0}, times: 4}]
default: {reply: Back again.}
";
    sandbox.write("scripts/patient.yaml", script);
    sandbox.write("scripts/hasty.yaml", script);
    sandbox.polity(&["run", "patient", "x"]).prints("Back again.\n");
    let (executions, _) = sandbox.json(&["execution", "list", "--agent", "patient"]);
    let execution = &executions[0];
    assert_eq!(
        (&execution["retry_count"], &execution["max_retries"]),
        (&4.into(), &serde_json::Value::Null)
    );
    let id = execution["id"].as_str().unwrap();
    sandbox.polity(&["execution", "show", id]).out_has("retries: 4\n");
    sandbox.polity(&["run", "hasty", "x"]).fails(1, "model_unavailable");
}

#[test]
fn failures_map_to_exit_and_error_codes() {
    let sandbox = HomeSandbox::new();
    for (input, exit, error_code) in [
        ("always overloaded", 1, "model_unavailable"),
        ("forbidden", 1, "model_rejected"),
        ("tool", 6, "limit_iterations"),
    ] {
        let (task, code) = sandbox.json(&["run", "greeter", input]);
        assert_eq!((code, task["error_code"].as_str()), (exit, Some(error_code)), "{task}");
        assert_eq!(task["status"], "failed");
    }
    let output = sandbox.polity(&["run", "greeter", "forbidden"]);
    assert!(
        output.err.contains("error: model_rejected: the scripted model answered"),
        "{output:?}"
    );
    assert!(output.err.contains("hint: see `polity task trace"), "{output:?}");
    let (task, _) = sandbox.json(&["run", "greeter", "tool"]);
    assert_eq!(task["result"], "again", "the partial result is kept: {task}");
}

#[test]
fn slow_model_times_out() {
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "agents/hasty.yaml",
        "{name: hasty, kind: llm, role: r, system_prompt: p, max_retries: 0,
          llm_config: {provider: scripted, script: greeter, timeout_seconds: 1}}",
    );
    let (task, code) = sandbox.json(&["run", "hasty", "slow"]);
    assert_eq!((code, task["error_code"].as_str()), (5, Some("timeout")), "{task}");
}

#[test]
fn usage_errors_have_hints() {
    let sandbox = HomeSandbox::new();
    for (args, code, message) in [
        (vec!["run", "greeter", "  "], "usage", "the input is empty"),
        (vec!["run", "greeter"], "usage", "there is no input"),
        (vec!["run", "greter", "x"], "unknown_agent", "there is no agent or workflow \"greter\""),
        (vec!["run", "greeter", "x", "--param", "y"], "usage", "\"y\" is not a parameter"),
        (vec!["run", "greeter", "x", "--param", "a=1", "--param", "a=2"], "usage", "given twice"),
        (vec!["fly"], "usage", "unrecognized subcommand 'fly'"),
        (vec!["schema", "agnet"], "usage", "invalid value 'agnet'"),
    ] {
        let output = sandbox.polity(&[args.as_slice(), &["--json"]].concat()).exits(2);
        let error = output.error();
        assert_eq!((output.out.as_str(), error.code.as_str()), ("", code), "{output:?}");
        assert!(error.message.contains(message), "{error:?}");
    }
    sandbox.polity(&["run", "greter", "x"]).err_has("hint: did you mean \"greeter\"?");
    assert_eq!(sandbox.tasks().len(), 0);
}

#[test]
fn unsupported_definitions_are_errors() {
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "agents/far.yaml",
        "{name: far, kind: remote, card_url: 'http://localhost/card',
          auth: {type: bearer_token, token_env: FAR_TOKEN}}",
    );
    sandbox.write(
        "agents/chat.yaml",
        "{name: chat, kind: cli, executable_path: /bin/cat, mode: interactive, keep_alive: true}",
    );
    sandbox.write(
        "agents/cloud.yaml",
        "{name: cloud, kind: llm, role: r, system_prompt: p,
          llm_config: {provider: openai, model: gpt, api_key_env: KEY}}",
    );
    let with = |name: &str, field: &str| {
        let file = format!(
            "{{name: {name}, kind: llm, role: r, system_prompt: p, {field},
              llm_config: {{provider: scripted, script: greeter}}}}"
        );
        sandbox.write(&format!("agents/{name}.yaml"), &file);
    };
    with("boss", "sub_agents: [far]");
    for (agent, expected) in [
        ("far", "FAR_TOKEN is not set"),
        ("chat", "of kind cli in mode interactive"),
        ("cloud", "the provider openai"),
        ("boss", "FAR_TOKEN is not set"),
    ] {
        sandbox.polity(&["run", agent, "x"]).fails(2, expected);
    }
    assert_eq!(sandbox.tasks().len(), 0);
}

#[test]
fn input_limit_is_named() {
    let sandbox = HomeSandbox::new();
    let largest = vec![b'a'; 10 * 1024 * 1024];
    sandbox.polity_with_input(&["run", "greeter", "-", "--json"], &largest).exits(0);
    let too_large = vec![b'a'; 10 * 1024 * 1024 + 1];
    let output = sandbox.polity_with_input(&["run", "greeter", "-"], &too_large);
    output.fails(6, "limits.input_bytes allows 10485760");
    assert_eq!(sandbox.tasks().len(), 1);

    sandbox.write("polity.yaml", "limits: {input_bytes: 3}");
    sandbox.polity(&["run", "greeter", "four"]).exits(6);
}

#[test]
fn stdin_input_is_never_truncated() {
    let sandbox = HomeSandbox::new();
    sandbox.write("polity.yaml", "limits: {input_bytes: 10}");
    let run = |input: &[u8]| sandbox.polity_with_input(&["run", "greeter", "-"], input);
    assert_eq!(run(b"0123456789\n").out, "Hello, 0123456789.\n");
    assert_eq!(run(b"0123456789\nmore").code, 6);
    assert_eq!(run("012345678ü".as_bytes()).code, 6);
}

#[test]
fn closed_output_does_not_stop_the_task() {
    let sandbox = HomeSandbox::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = sandbox.command(&["run", "greeter", "Ada"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(sandbox.tasks()[0]["status"], "completed");
    for args in
        [vec!["task", "list"], vec!["agent", "list"], vec!["check"], vec!["task", "show", "last"]]
    {
        let output = command_output(&sandbox.command(&args).stdout(full()).output().unwrap());
        output.fails(1, "cannot write to stdout");
    }
}

#[test]
fn control_characters_are_stripped_only_on_terminals() {
    let sandbox = HomeSandbox::new();
    sandbox.write("scripts/greeter.yaml", "default: {reply: \"\\e[31mre\\rd\"}");
    let output = sandbox.polity(&["run", "greeter", "Ada"]);
    assert_eq!(output.out, "\u{1b}[31mre\rd\n");
    assert!(!output.err.contains("\u{1b}[31mre"), "{output:?}");
    sandbox.polity(&["task", "show", "last"]).out_has("�[31mre�d");
}

#[test]
fn sigterm_leaves_the_task_interrupted() {
    let sandbox = HomeSandbox::new();
    let running = sandbox.start(&["run", "greeter", "slow"]);
    let id = sandbox.wait_for_status("running");
    let sent = std::process::Command::new("kill").arg(running.id().to_string()).status();
    assert!(sent.unwrap().success());
    let output = finish(running);
    output.fails(1, &format!("polity task resume {id}"));
    assert_eq!(sandbox.tasks()[0]["interrupted"], true);
}

#[test]
fn demo_runs_in_an_empty_folder() {
    let sandbox = HomeSandbox::empty();
    let home = sandbox.file("demo");
    let output = sandbox.polity(&["demo", "--home", home.to_str().unwrap()]).exits(0);
    for expected in [
        "It will be sunny in Oslo",
        "retry",
        "snow is water",
        "PUBLISHED: Did you know? Rain is water that falls from clouds.",
        "   └─",
        "└─",
        "that is short enough",
        "It is forgotten",
        "society: 20 turns, 25 agents",
        "Where to look next",
    ] {
        assert!(output.out.contains(expected), "{output:?}");
    }
}

#[test]
fn every_command_has_help_and_completions() {
    let sandbox = HomeSandbox::empty();
    for shell in ["bash", "zsh", "fish"] {
        let output = sandbox.polity(&["completions", shell]).exits(0);
        assert!(output.out.contains("polity") && output.out.contains("resume"), "{shell}");
    }
    sandbox.polity(&["--help"]).exits(0).out_has("Exit codes: 0 done");
    assert_eq!(sandbox.polity(&["--version"]).out, "polity 0.1.0\n");
}

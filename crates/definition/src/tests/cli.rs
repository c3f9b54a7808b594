//! Agents that are command-line programs.

use super::{check, home};
use crate::{
    AccessType, AgentKind, AgentMode, CliAgent, CliTemplate, InputPattern, NameLookup,
    OutputPattern, PermissionPolicy, WorkspaceMode,
};

const BASE: &str = "kind: cli\nname: coder\nexecutable_path: coder\n";

#[track_caller]
fn check_with(lines: &str, expected: &[&str]) {
    check("agents/coder.yaml", &format!("{BASE}{lines}"), expected);
}

#[track_caller]
fn cli(text: &str) -> CliAgent {
    let home = home([("agents/coder.yaml", text)]);
    match home.find("coder") {
        NameLookup::Agent(agent) => match &agent.kind {
            AgentKind::Cli(cli) => cli.clone(),
            AgentKind::Llm(_) | AgentKind::Remote(_) => panic!("{agent:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults_are_the_safe_ones() {
    let cli = cli(BASE);
    assert_eq!((cli.mode, cli.access_type), (AgentMode::Task, AccessType::ReadWrite));
    assert_eq!(cli.max_concurrent_executions.get(), 1);
    assert_eq!(cli.timeout_seconds.get(), 300);
    assert_eq!((cli.queue_limit, cli.queue_timeout_seconds.get()), (10, 1800));
    assert_eq!((cli.max_retries, cli.grace_seconds), (3, 10));
    assert_eq!(cli.permission_policy, PermissionPolicy::Ask);
    assert_eq!(cli.workspace, WorkspaceMode::Shared);
    assert_eq!(cli.input_pattern, Some(InputPattern::Stdin));
    assert_eq!(cli.output_pattern, Some(OutputPattern::Stdout));
    assert!(cli.enabled && !cli.keep_alive && !cli.idempotent);
}

#[test]
fn the_agent_type_and_the_placeholders_set_the_patterns() {
    use InputPattern as In;
    use OutputPattern as Out;
    for (lines, expected) in [
        ("agent_type: stdin-stdout\n", (Some(In::Stdin), Some(Out::Stdout))),
        ("agent_type: file-input\n", (Some(In::File), Some(Out::Stdout))),
        ("agent_type: file-input\noutput_pattern: file\n", (Some(In::File), Some(Out::File))),
        ("agent_type: json-rpc\n", (Some(In::JsonRpc), Some(Out::JsonRpc))),
        ("input_pattern: args\n", (Some(In::Args), Some(Out::Stdout))),
        ("input_pattern: json-rpc\n", (Some(In::JsonRpc), Some(Out::JsonRpc))),
        ("preset: codex\n", (None, None)),
        ("preset: codex\ninput_pattern: args\n", (Some(In::Args), None)),
        ("cli_args: [-p, \"{{prompt}}\"]\n", (Some(In::Args), Some(Out::Stdout))),
        ("cli_args: {--in: \"{{input_file}}\"}\n", (Some(In::File), Some(Out::Stdout))),
        ("cli_args: [\"--out={{output_file}}\"]\n", (Some(In::Stdin), Some(Out::File))),
        ("preset: codex\ncli_args: [\"{{input}}\"]\n", (Some(In::Args), None)),
    ] {
        let cli = cli(&format!("{BASE}{lines}"));
        assert_eq!((cli.input_pattern, cli.output_pattern), expected, "{lines}");
    }
}

#[test]
fn arguments_keep_their_order_in_both_forms() {
    for (written, expected) in [
        ("[-p, \"1\", --json]", vec!["-p", "1", "--json"]),
        (
            "{--zeta: z, --alpha: 1, --flag: true, --bare: }",
            vec!["--zeta", "z", "--alpha", "1", "--flag", "--bare"],
        ),
        ("{--model: \"{{model}}\"}", vec!["--model", "{{model}}"]),
        ("[]", vec![]),
    ] {
        let cli = cli(&format!("{BASE}cli_args: {written}\n"));
        let args = cli.cli_args.unwrap();
        let args: Vec<_> = args.iter().map(CliTemplate::as_str).collect();
        assert_eq!(args, expected, "{written}");
    }
}

#[test]
fn concurrency_follows_the_access_type() {
    let read_only = format!("{BASE}access_type: read-only\n");
    assert_eq!(cli(&read_only).max_concurrent_executions.get(), 10);
    let wide = format!("{read_only}max_concurrent_executions: 50\n");
    assert_eq!(cli(&wide).max_concurrent_executions.get(), 50);
    // Runs with their own workspace do not conflict.
    for workspace in ["copy", "worktree"] {
        let own = format!("{BASE}workspace: {workspace}\n");
        assert_eq!(cli(&own).max_concurrent_executions.get(), 10);
    }
}

#[test]
fn fields_list_their_allowed_values() {
    for (lines, expected) in [
        (
            "agent_type: stdin-stdot\n",
            "4:13: agent_type: unknown value \"stdin-stdot\", did you mean \"stdin-stdout\"?",
        ),
        ("mode: tasks\n", "4:7: mode: unknown value \"tasks\", did you mean \"task\"?"),
        (
            "input_pattern: stdn\n",
            "4:16: input_pattern: unknown value \"stdn\", did you mean \"stdin\"?",
        ),
        (
            "output_pattern: stdot\n",
            "4:17: output_pattern: unknown value \"stdot\", did you mean \"stdout\"?",
        ),
        (
            "access_type: read_only\n",
            "4:14: access_type: unknown value \"read_only\", did you mean \"read-only\"?",
        ),
        (
            "permission_policy: alow\n",
            "4:20: permission_policy: unknown value \"alow\", did you mean \"allow\"?",
        ),
        (
            "workspace: worktrees\n",
            "4:12: workspace: unknown value \"worktrees\", did you mean \"worktree\"?",
        ),
        (
            "stop_signal: sigterm\n",
            "4:14: stop_signal: unknown value \"sigterm\", did you mean \"SIGTERM\"?",
        ),
        ("timeout: 0\n", "4:10: timeout must be a whole number above 0, found the number 0"),
        ("timeout: -5\n", "4:10: timeout must be a whole number above 0, found the number -5"),
        ("timeout: 5m\n", "4:10: timeout must be a whole number above 0, found the text \"5m\""),
        ("enabled: yes\n", "4:10: enabled must be true or false, found the text \"yes\""),
        (
            "max_concurrent_executions: 2\n",
            "4:28: max_concurrent_executions is 2, but only one read-write run may happen at a \
             time in a folder; set access_type to read-only if the program changes nothing, or \
             workspace to copy or worktree; allowed: 1",
        ),
        (
            "agent_type: json-rpc\ninput_pattern: stdin\n",
            "5:16: \"input_pattern\" is stdin, but the rest of the file asks for json-rpc; allowed: \
             json-rpc",
        ),
        (
            "agent_type: stdin-stdout\noutput_pattern: file\n",
            "5:17: \"output_pattern\" is file, but the rest of the file asks for stdout; allowed: \
             stdout",
        ),
        (
            "agent_type: file-input\noutput_pattern: json-rpc\n",
            "5:17: \"output_pattern\" is json-rpc, but the agent_type file-input allows only stdout \
             and file; allowed: stdout, file",
        ),
        (
            "input_file_template: x\n",
            "4:22: \"input_file_template\" has a meaning only with the input pattern file",
        ),
        ("envs: {A: 1}\n", "4:11: envs.A must be a text, found the number 1; put it in quotes"),
    ] {
        check_with(lines, &[expected]);
    }
}

#[test]
fn blocks_list_their_allowed_values() {
    for (lines, expected) in [
        (
            "envs: {A-B: x}\n",
            "4:8: envs.A-B must be the name of an environment variable: letters, digits and \
             underscores, not starting with a digit",
        ),
        (
            "cli_args: -p\n",
            "4:11: cli_args must be a list of texts, or a mapping of option to value, found the \
             text \"-p\"",
        ),
        (
            "cli_args: [-n, 3]\n",
            "4:16: cli_args[1] must be a text, found the number 3; put it in quotes",
        ),
        (
            "cli_args: {--x: [a]}\n",
            "4:17: cli_args.--x must be a text, a whole number, true or nothing, found a list",
        ),
        (
            "error_rules: [{pattern: \"(\", category: transient}]\n",
            "4:25: error_rules[0].pattern: not a regular expression: unclosed group",
        ),
        (
            "error_rules: [{pattern: x, category: transent}]\n",
            "4:38: error_rules[0].category: unknown value \"transent\", did you mean \"transient\"?",
        ),
        (
            "resource_limits: {memory: 5}\n",
            "4:19: unknown field \"memory\" in resource_limits, did you mean \"memory_mb\"?",
        ),
        (
            "parser: {format: json_l}\n",
            "4:18: parser.format: unknown value \"json_l\", did you mean \"jsonl\"?",
        ),
        (
            "parser: {format: json, answer: result}\n",
            "4:32: parser.answer: \"result\" is not a JSON Pointer: it starts with \"/\"",
        ),
        (
            "parser: {format: text, answer: /a}\n",
            "4:32: \"parser.answer\" has a meaning only with a format other than text",
        ),
    ] {
        check_with(lines, &[expected]);
    }
    check(
        "agents/coder.yaml",
        "kind: cli\nname: coder\n",
        &["1:1: missing field \"executable_path\", which is needed without a preset"],
    );
    check("agents/coder.yaml", "kind: cli\nname: coder\npreset: claude\n", &[]);
}

#[test]
fn placeholders_list_their_allowed_names() {
    for (lines, expected) in [
        (
            "cli_args: [-p, \"{{promt}}\"]\n",
            "4:16: cli_args[1]: unknown placeholder \"{{promt}}\", did you mean \"{{prompt}}\"?",
        ),
        (
            "cli_args: {-p: \"{{promt}}\"}\n",
            "4:16: cli_args.-p: unknown placeholder \"{{promt}}\", did you mean \"{{prompt}}\"?",
        ),
        (
            "cli_args: [\"{{prompt\"]\n",
            "4:12: cli_args[0]: has a \"{{\" that is not closed; write \"{{{{\" for a literal \"{{\"",
        ),
        (
            "cli_args: [-k, \"${MY_KEY}\"]\n",
            "4:16: cli_args[1]: ${MY_KEY} is not filled in here; anyone on the machine can read \
             arguments, so name the variable in envs or env_allow, from where the program reads \
             it; a shell reads $NAME too",
        ),
        (
            "input_pattern: stdin\ncli_args: [\"{{prompt}}\"]\n",
            "5:12: cli_args[0]: {{prompt}} has a meaning only with the input pattern args",
        ),
        (
            "input_pattern: args\ncli_args: {-f: \"{{input_file}}\"}\n",
            "5:11: cli_args: {{input_file}} has a meaning only with the input pattern file",
        ),
        (
            "output_pattern: stdout\ncli_args: [-o, \"{{output_file}}\"]\n",
            "5:16: cli_args[1]: {{output_file}} has a meaning only with the output pattern file",
        ),
        (
            "input_pattern: file\ninput_file_template: \"to {{output_file}}\"\n",
            "5:22: input_file_template: {{output_file}} has a meaning only with the output pattern \
             file",
        ),
        (
            "output_pattern: file\noutput_file_template: \"{{prompt}}.txt\"\n",
            "5:23: output_file_template: {{prompt}} cannot be part of the path; allowed: \
             {{workdir}}, {{model}}, {{param.NAME}}",
        ),
        (
            "output_pattern: file\noutput_file_template: \"${HOME}/a\"\n",
            "5:23: output_file_template: ${HOME} is not filled in here; write {{param.NAME}} or the \
             path itself",
        ),
        ("model: big\n", "4:8: \"model\" has a meaning only with {{model}} in cli_args"),
    ] {
        check_with(lines, &[expected]);
    }
    check_with("preset: claude\nmodel: big\n", &[]);
}

#[test]
fn rejects_contradicting_fields() {
    for (lines, expected) in [
        ("preset: claud\n", "4:9: preset: unknown value \"claud\", did you mean \"claude\"?"),
        (
            "agent_type: json-rpc\nparser: {format: text}\n",
            "5:9: \"parser\" has a meaning only with the output patterns stdout and file",
        ),
        (
            "parser: {format: json}\n",
            "4:9: missing field \"parser.answer\", which is needed with a format other than text",
        ),
        (
            "parser: {format: text, join_answers: true}\n",
            "4:38: \"parser.join_answers\" has a meaning only with a format other than text",
        ),
        (
            "parser: {format: json, answer: {at: /a, when: {b: 1}}}\n",
            "4:48: parser.answer.when.b: \"b\" is not a JSON Pointer: it starts with \"/\"",
        ),
        (
            "session_timeout: 5\n",
            "4:18: \"session_timeout\" has a meaning only with the mode interactive",
        ),
        ("keep_alive: true\n", "4:13: \"keep_alive\" has a meaning only with the mode interactive"),
        (
            "mode: interactive\nkeep_alive: true\ninput_pattern: args\n",
            "5:13: \"keep_alive\" has a meaning only with the input patterns stdin and json-rpc",
        ),
        (
            "mode: interactive\n",
            "4:7: mode is interactive, but nothing says how a conversation goes on: set keep_alive \
             to true, or name {{session_id}} in cli_args and set parser.session_id",
        ),
        (
            "timeout: 10\nidle_timeout: 11\n",
            "5:15: idle_timeout is 11, but timeout ends the run after 10 seconds; allowed: 1 to 10",
        ),
        (
            "env_allow: [KEY]\nenv_unset: [KEY]\n",
            "5:13: env_unset: KEY is also in env_allow; take it out of one of them",
        ),
        ("success_exit_codes: []\n", "4:21: success_exit_codes must name at least one exit code"),
    ] {
        check_with(lines, &[expected]);
    }
    check_with("mode: interactive\nkeep_alive: true\n", &[]);
    check_with("preset: claude\nmode: interactive\n", &[]);
}

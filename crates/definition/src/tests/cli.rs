//! Tests of CLI agents.

use std::num::NonZeroU64;

use super::{home, problems, report};
use crate::{
    AccessType, AgentKind, AgentMode, CliAgent, CliTemplate, EmptyOutputPolicy, InputPattern,
    NameLookup, OutputPattern, PermissionPolicy, QueueFullPolicy, WorkspaceMode,
};

const BASE: &str = "kind: cli\nname: coder\nexecutable_path: coder\n";

fn of_file(text: &str) -> Vec<String> {
    problems("agents/coder.yaml", text, [])
}

/// The problems of [`BASE`] with more lines.
fn of_lines(lines: &str) -> Vec<String> {
    of_file(&format!("{BASE}{lines}\n"))
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
    assert_eq!((cli.queue_full(), cli.queue_limit), (QueueFullPolicy::Wait, None));
    assert_eq!((cli.queue_timeout_seconds, cli.empty_output), (None, EmptyOutputPolicy::Fail));
    assert_eq!((cli.max_retries, cli.grace_seconds), (3, 10));
    assert_eq!(cli.permission_policy, PermissionPolicy::Ask);
    assert_eq!(cli.workspace, WorkspaceMode::Shared);
    assert_eq!(cli.input_pattern, Some(InputPattern::Stdin));
    assert_eq!(cli.output_pattern, Some(OutputPattern::Stdout));
    assert!(cli.enabled && !cli.keep_alive && !cli.idempotent);
}

#[test]
fn full_queue_waits_unless_the_file_limits_it() {
    use QueueFullPolicy::{Refuse, Wait};
    let seconds = NonZeroU64::new;
    for (lines, expected) in [
        ("", (Wait, None, None)),
        ("queue_full: wait\nqueue_timeout_seconds: 60\n", (Wait, None, seconds(60))),
        ("queue_full: refuse\n", (Refuse, Some(10), seconds(1800))),
        ("queue_limit: 2\n", (Refuse, Some(2), seconds(1800))),
        ("queue_full: refuse\nqueue_limit: 0\n", (Refuse, Some(0), seconds(1800))),
    ] {
        let cli = cli(&format!("{BASE}{lines}"));
        let found = (cli.queue_full(), cli.queue_limit, cli.queue_timeout_seconds);
        assert_eq!(found, expected, "{lines}");
    }
    let problems = of_lines("queue_full: wait\nqueue_limit: 2");
    assert_eq!(problems, ["5:14: \"queue_limit\" has a meaning only with queue_full: refuse"]);
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
    insta::assert_snapshot!(report(
        [
            "agent_type: stdin-stdot",
            "mode: tasks",
            "input_pattern: stdn",
            "output_pattern: stdot",
            "access_type: read_only",
            "permission_policy: alow",
            "workspace: worktrees",
            "stop_signal: sigterm",
            "timeout: 0",
            "timeout: -5",
            "timeout: 5m",
            "enabled: yes",
            "max_concurrent_executions: 2",
            "agent_type: json-rpc\ninput_pattern: stdin",
            "agent_type: stdin-stdout\noutput_pattern: file",
            "agent_type: file-input\noutput_pattern: json-rpc",
            "input_file_template: x",
            "envs: {A: 1}",
        ],
        of_lines
    ));
}

#[test]
fn unenforced_permission_policies_are_refused() {
    insta::assert_snapshot!(report(
        [
            "permission_policy: deny",
            "permission_policy: ask",
            "permission_policy: allow",
            "preset: opencode\npermission_policy: deny",
            "preset: opencode\npermission_policy: deny\ncli_args: [run]",
            "preset: opencode\npermission_policy: ask\ncli_args: [run]",
            "preset: opencode\nenv_unset: [OPENCODE_PERMISSION]",
            "preset: copilot\npermission_policy: deny\nenvs: {COPILOT_ALLOW_ALL: \"1\"}",
            "preset: aider",
            "preset: aider\npermission_policy: deny",
            "preset: aider\npermission_policy: allow",
        ],
        of_lines
    ), @r#"
    permission_policy: deny
    => 4:20: permission_policy is deny, but only a preset can enforce it; remove it, and restrict the program by its own options in cli_args
    permission_policy: ask
    => valid
    permission_policy: allow
    => valid
    preset: opencode
    permission_policy: deny
    => valid
    preset: opencode
    permission_policy: deny
    cli_args: [run]
    => 5:20: permission_policy is deny, but cli_args replaces the arguments of the preset opencode that enforce it; remove one of them
    preset: opencode
    permission_policy: ask
    cli_args: [run]
    => valid
    preset: opencode
    env_unset: [OPENCODE_PERMISSION]
    => 1:1: permission_policy is ask, but envs, env_allow or env_unset changes OPENCODE_PERMISSION, on which it depends; remove OPENCODE_PERMISSION there, or set permission_policy to allow
    preset: copilot
    permission_policy: deny
    envs: {COPILOT_ALLOW_ALL: "1"}
    => 5:20: permission_policy is deny, but envs, env_allow or env_unset changes COPILOT_ALLOW_ALL, on which it depends; remove COPILOT_ALLOW_ALL there, or set permission_policy to allow
    preset: aider
    => 1:1: permission_policy is ask, but the preset aider can enforce only allow: the program acts without asking; set it to allow
    preset: aider
    permission_policy: deny
    => 5:20: permission_policy is deny, but the preset aider can enforce only allow: the program acts without asking; set it to allow
    preset: aider
    permission_policy: allow
    => valid
    "#);
}

#[test]
fn pinned_definitions_with_an_unenforced_policy_stay_readable() {
    let pinned = r#"{"kind": "cli", "name": "coder", "preset": "aider"}"#;
    let agent = crate::AgentDefinition::from_canonical(pinned).unwrap();
    assert!(agent.program().unwrap().policy_problem().is_some());
}

#[test]
fn blocks_list_their_allowed_values() {
    insta::assert_snapshot!(report(
        [
            "envs: {A-B: x}",
            "cli_args: -p",
            "cli_args: [-n, 3]",
            "cli_args: {--x: [a]}",
            "error_rules: [{pattern: \"(\", category: transient}]",
            "error_rules: [{pattern: x, category: transent}]",
            "resource_limits: {memory: 5}",
            "parser: {format: json_l}",
            "parser: {format: json, answer: result}",
            "parser: {format: text, answer: /a}",
        ],
        of_lines
    ));
    insta::assert_snapshot!(
        "executable_path_or_preset",
        report(["kind: cli\nname: coder", "kind: cli\nname: coder\npreset: claude"], of_file)
    );
}

#[test]
fn placeholders_list_their_allowed_names() {
    insta::assert_snapshot!(report(
        [
            "cli_args: [-p, \"{{promt}}\"]",
            "cli_args: {-p: \"{{promt}}\"}",
            "cli_args: [\"{{prompt\"]",
            "cli_args: [-k, \"${MY_KEY}\"]",
            "input_pattern: stdin\ncli_args: [\"{{prompt}}\"]",
            "input_pattern: args\ncli_args: {-f: \"{{input_file}}\"}",
            "output_pattern: stdout\ncli_args: [-o, \"{{output_file}}\"]",
            "input_pattern: file\ninput_file_template: \"to {{output_file}}\"",
            "output_pattern: file\noutput_file_template: \"{{prompt}}.txt\"",
            "output_pattern: file\noutput_file_template: \"${HOME}/a\"",
            "model: big",
            "preset: claude\nmodel: big",
        ],
        of_lines
    ));
}

#[test]
fn rejects_contradicting_fields() {
    insta::assert_snapshot!(report(
        [
            "preset: claud",
            "agent_type: json-rpc\nparser: {format: text}",
            "parser: {format: json}",
            "parser: {format: text, join_answers: true}",
            "parser: {format: json, answer: {at: /a, when: {b: 1}}}",
            "session_timeout: 5",
            "keep_alive: true",
            "mode: interactive\nkeep_alive: true\ninput_pattern: args",
            "mode: interactive",
            "timeout: 10\nidle_timeout: 11",
            "env_allow: [KEY]\nenv_unset: [KEY]",
            "success_exit_codes: []",
            "mode: interactive\nkeep_alive: true",
            "preset: claude\nmode: interactive",
        ],
        of_lines
    ));
}

/// An older output file is removed before a run.
#[test]
fn output_file_above_the_working_directory_is_refused() {
    for (template, is_refused) in
        [("../out", true), ("a/../../out", true), ("a..b/out", false), ("/srv/out", false)]
    {
        let file = format!(
            "kind: cli\nname: writer\nexecutable_path: wc\noutput_pattern: file\n\
             output_file_template: {template}\n"
        );
        let home = home([("agents/writer.yaml", file.as_str())]);
        let told = format!("{:?}", home.problems);
        assert_eq!(told.contains("would lead out of the working directory"), is_refused, "{told}");
    }
}

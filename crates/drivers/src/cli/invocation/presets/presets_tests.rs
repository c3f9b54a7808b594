//! Presets against recorded output of the real programs.

use polity_definition::{AgentDefinition, CliPreset};
use polity_model::run::ProcessExit;
use serde::Deserialize;

use super::*;
use crate::cli::outcome::verdict::judge;
use crate::cli::output::parser::{AnswerParser, ParsedOutput};
use crate::cli::test_agents::agent;

fn resolved(lines: &str) -> ResolvedAgent {
    resolve(&agent(lines))
}

fn args(resolved: &ResolvedAgent) -> String {
    let args: Vec<_> = resolved.args.iter().map(CliTemplate::as_str).collect();
    args.join(" ")
}

/// The recorded output of one run and its expected outcome.
#[derive(Deserialize)]
struct PresetRun {
    preset: String,
    exit: i32,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    answer: Option<String>,
    failure: Option<ErrorCategory>,
}

fn recorded_runs() -> Vec<PresetRun> {
    serde_saphyr::from_str(include_str!("recorded_runs.yaml")).unwrap()
}

fn parsed(run: &PresetRun) -> (ResolvedAgent, ParsedOutput) {
    let resolved = resolved(&format!("preset: {}\npermission_policy: allow\n", run.preset));
    let mut parser = AnswerParser::new(&resolved.parser).with_events(&resolved.event_rules);
    parser.push(run.stdout.as_bytes());
    (resolved, parser.finish())
}

#[test]
fn recorded_runs_have_the_expected_outcome() {
    for preset in CliPreset::ALL {
        let answers = |run: &PresetRun| run.preset == preset.as_str() && run.answer.is_some();
        assert!(recorded_runs().iter().any(answers), "{preset}");
    }
    for run in recorded_runs() {
        let (resolved, parsed) = parsed(&run);
        let end = judge(&resolved, ProcessExit::Code(run.exit), &parsed, &run.stderr, &run.stdout);
        let outcome = (end.as_ref().ok(), end.as_ref().err().map(|failure| failure.category));
        assert_eq!(outcome, (run.answer.as_ref(), run.failure), "{end:?}\n{}", run.stdout);
    }
}

#[test]
fn finds_session_ids_and_tokens() {
    let greets = |run: &PresetRun| run.answer.as_deref() == Some("Hello from the model.");
    for run in recorded_runs().into_iter().filter(greets) {
        let (_, found) = parsed(&run);
        let (session, tokens) = match run.preset.as_str() {
            "claude" | "codex" | "gemini" | "qwen" => (Some("s1"), Some((12, 7))),
            // The sum of two steps.
            "opencode" => {
                assert_eq!(found.cost_usd, Some(0.75));
                (Some("s1"), Some((12, 7)))
            }
            "copilot" => (Some("s1"), None),
            _ => (None, None),
        };
        assert_eq!(found.session_id.as_deref(), session, "{}", run.preset);
        assert_eq!(found.input_tokens.zip(found.output_tokens), tokens, "{}", run.preset);
    }
}

#[test]
fn no_preset_puts_the_input_on_the_command_line() {
    for preset in CliPreset::ALL {
        let resolved = resolved(&format!("preset: {preset}\npermission_policy: allow\n"));
        assert!(resolved.args.iter().all(|arg| !arg.names(&CliPlaceholder::Input)), "{preset}");
        assert_ne!(resolved.input, InputMode::Args, "{preset}");
    }
}

#[test]
fn every_preset_enforces_its_policies_or_refuses_them() {
    // Pinned definitions of earlier versions may have any policy.
    let resolved = |preset: CliPreset, policy: &str| {
        let pinned = serde_json::json!({
            "kind": "cli", "name": "coder", "preset": preset, "permission_policy": policy,
        });
        let agent = AgentDefinition::from_canonical(&pinned.to_string()).unwrap();
        resolve(agent.program().unwrap())
    };
    for preset in CliPreset::ALL {
        let allowed = resolved(preset, "allow");
        assert_eq!(allowed.policy_problem, None, "{preset}");
        for policy in ["ask", "deny"] {
            let own = resolved(preset, policy);
            let added = |from: &ResolvedAgent, to: &ResolvedAgent| {
                to.args.iter().any(|arg| !from.args.contains(arg))
                    || to.envs.iter().any(|(name, value)| from.envs.get(name) != Some(value))
            };
            let (grants, withholds) = (added(&own, &allowed), added(&allowed, &own));
            match preset {
                CliPreset::Aider => assert!(own.policy_problem.unwrap().contains("only allow")),
                CliPreset::Claude
                | CliPreset::Codex
                | CliPreset::Gemini
                | CliPreset::Qwen
                | CliPreset::Copilot => {
                    assert!(grants && withholds && own.policy_problem.is_none(), "{preset}");
                }
                // It allows everything unless told otherwise.
                CliPreset::Opencode => assert!(!grants && withholds, "{preset}"),
                // They have no tools.
                CliPreset::Aichat | CliPreset::Llm => assert!(!grants && !withholds, "{preset}"),
            }
        }
    }
}

#[test]
fn agent_cannot_override_the_variables_of_its_policy() {
    let name = "OPENCODE_PERMISSION";
    for change in
        [("envs", serde_json::json!({name: "{}"})), ("env_unset", serde_json::json!([name]))]
    {
        let mut pinned = serde_json::json!({"kind": "cli", "name": "coder", "preset": "opencode"});
        pinned[change.0] = change.1;
        let agent = AgentDefinition::from_canonical(&pinned.to_string()).unwrap();
        let own = resolve(agent.program().unwrap());
        assert!(own.envs[name].contains("deny"));
        assert!(own.policy_problem.unwrap().contains(name), "{pinned}");
    }
}

#[test]
fn check_knows_the_variables_that_enforce_a_policy() {
    for preset in CliPreset::ALL {
        let variables = preset_spec(preset).withhold_envs.iter().map(|(name, _)| *name);
        let variables: Vec<_> = variables.collect();
        assert!(preset.policy_variables().starts_with(&variables), "{preset}: {variables:?}");
    }
}

#[test]
fn answer_that_the_model_of_opencode_cut_has_the_reason() {
    for reason in ["length", "content-filter"] {
        let end = serde_json::json!({"type": "step_finish", "part": {"reason": reason}});
        let run = PresetRun {
            preset: "opencode".into(),
            exit: 0,
            stdout: format!("{{\"type\":\"text\",\"part\":{{\"text\":\"half\"}}}}\n{end}\n"),
            stderr: String::new(),
            answer: None,
            failure: None,
        };
        let (_, found) = parsed(&run);
        assert!(found.answer_is_cut && found.cut_reason.as_deref() == Some(reason), "{found:?}");
        assert_eq!(found.answer.as_deref(), Some("half"));
    }
}

#[test]
fn no_error_rule_is_anchored_to_the_first_or_last_byte() {
    for preset in CliPreset::ALL {
        for (rule, _) in preset_spec(preset).error_rules {
            // The rule of aider matches all lines up to the end.
            assert!(preset == CliPreset::Aider || !rule.contains(r"\z"), "{preset}: {rule}");
            assert!(
                !rule.ends_with('$') || rule[..rule.find(')').unwrap()].contains('m'),
                "{rule}"
            );
            assert!(!rule.contains(r"\A"), "{preset}: {rule}");
            // Of a line, not of the text.
            assert!(!rule.contains('^') || rule.starts_with("(?m)^"), "{preset}: {rule}");
        }
    }
}

#[test]
fn definition_overrides_the_preset() {
    let codex = resolved("preset: codex\n");
    assert_eq!(codex.executable, "codex");
    let withheld = "-c sandbox_mode=read-only -c approval_policy=never";
    let start = format!("exec --json --skip-git-repo-check --model {{{{model}}}} {withheld}");
    assert_eq!(args(&codex), format!("{start} -"));
    assert!(codex.resumed_args.is_some() && codex.install.is_some());

    let allowed = resolved("preset: codex\npermission_policy: allow\n");
    assert!(args(&allowed).ends_with("--dangerously-bypass-approvals-and-sandbox -"));

    let by_argument = resolved("preset: codex\ninput_pattern: args\n");
    assert_eq!(args(&by_argument), start);

    let own = resolved(
        "preset: claude\nexecutable_path: ./mine\ncli_args: [-x]\nparser: {format: text}\n\
         envs: {DISABLE_AUTOUPDATER: \"0\", OWN: \"1\"}\nenv_allow: [MORE]\n",
    );
    assert_eq!((own.executable.as_str(), args(&own).as_str()), ("./mine", "-x"));
    assert_eq!((own.parser.format, own.install), (OutputFormat::Text, None));
    assert_eq!(own.envs["DISABLE_AUTOUPDATER"], "0");
    assert_eq!(own.envs["CLAUDE_CODE_MAX_RETRIES"], "1");
    assert!(own.env_allow.contains("MORE") && own.env_allow.contains("ANTHROPIC_API_KEY"));
}

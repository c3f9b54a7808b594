//! Presets against recorded output of the real programs.

use polity_definition::CliPreset;
use polity_model::run::ProcessExit;

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
struct PresetRun {
    preset: &'static str,
    exit: i32,
    stdout: &'static str,
    stderr: &'static str,
    expected: Result<&'static str, ErrorCategory>,
}

const HELLO: &str = "Hello from the model.\n";
const OK: Result<&str, ErrorCategory> = Ok("Hello from the model.");
const REFUSED: Result<&str, ErrorCategory> = Err(ErrorCategory::Permanent);
const TRANSIENT: Result<&str, ErrorCategory> = Err(ErrorCategory::Transient);

const RECORDED_RUNS: &[PresetRun] = &[
    PresetRun {
        preset: "claude",
        exit: 0,
        stdout: r#"{"type":"system","subtype":"init","session_id":"s1","model":"m"}
{"type":"assistant","message":{"content":[{"type":"text","text":"Hello from the model."}]},"session_id":"s1"}
{"type":"result","subtype":"success","is_error":false,"result":"Hello from the model.","session_id":"s1","total_cost_usd":0.01,"usage":{"input_tokens":12,"output_tokens":7}}
"#,
        stderr: "",
        expected: OK,
    },
    // `subtype` reports success for a refused key.
    PresetRun {
        preset: "claude",
        exit: 1,
        stdout: r#"{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key","session_id":"s1"}"#,
        stderr: "",
        expected: REFUSED,
    },
    // Output beyond 64 KiB is lost if the reader is slow.
    PresetRun {
        preset: "claude",
        exit: 0,
        stdout: r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Hel"}]},"session_id":"s1"}"#,
        stderr: "",
        expected: Err(ErrorCategory::AgentError),
    },
    PresetRun {
        preset: "codex",
        exit: 0,
        stdout: r#"{"type":"thread.started","thread_id":"s1"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata for `m` not found. Defaulting to fallback metadata; this can degrade performance and cause issues."}}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"Hello from the model."}}
{"type":"turn.completed","usage":{"input_tokens":12,"cached_input_tokens":0,"output_tokens":7,"reasoning_output_tokens":0}}
"#,
        stderr: "Reading additional input from stdin...\n",
        expected: OK,
    },
    PresetRun {
        preset: "codex",
        exit: 1,
        stdout: r#"{"type":"thread.started","thread_id":"s1"}
{"type":"error","message":"unexpected status 401 Unauthorized: invalid x-api-key"}
{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized: invalid x-api-key"}}
"#,
        stderr: "",
        expected: REFUSED,
    },
    PresetRun {
        preset: "codex",
        exit: 1,
        stdout: r#"{"type":"turn.failed","error":{"message":"exceeded retry limit, last status: 429 Too Many RequestDigester"}}"#,
        stderr: "",
        expected: TRANSIENT,
    },
    // Server errors, and a stream that was cut off.
    PresetRun {
        preset: "codex",
        exit: 1,
        stdout: r#"{"type":"turn.failed","error":{"message":"We’re currently experiencing high demand, which may cause temporary errors."}}"#,
        stderr: "",
        expected: TRANSIENT,
    },
    PresetRun {
        preset: "codex",
        exit: 1,
        stdout: r#"{"type":"turn.failed","error":{"message":"stream disconnected before completion: stream closed before response.completed"}}"#,
        stderr: "",
        expected: TRANSIENT,
    },
    PresetRun {
        preset: "gemini",
        exit: 0,
        stdout: r#"{"type":"init","session_id":"s1","model":"m"}
{"type":"message","role":"user","content":"say hello"}
{"type":"message","role":"assistant","content":"Hello ","delta":true}
{"type":"message","role":"assistant","content":"from the model.","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":19,"input_tokens":12,"output_tokens":7,"tool_calls":0}}
"#,
        stderr: "Ripgrep is not available. Falling back to GrepTool.\n",
        expected: OK,
    },
    PresetRun {
        preset: "gemini",
        exit: 145,
        stdout: r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: {\"error\":{\"message\":\"invalid x-api-key\",\"code\":401,\"status\":\"UNAUTHENTICATED\"}}]"}}"#,
        stderr: "  status: 401\n}\n",
        expected: REFUSED,
    },
    // Gemini stops a looping model silently and reports success.
    PresetRun {
        preset: "gemini",
        exit: 0,
        stdout: r#"{"type":"init","timestamp":"2026-11-16T15:00:13.053Z","session_id":"s1","model":"m"}
{"type":"message","timestamp":"2026-11-16T15:00:13.060Z","role":"user","content":"say hello"}
{"type":"error","timestamp":"2026-11-16T15:00:13.322Z","severity":"warning","message":"Loop detected, stopping execution"}
{"type":"result","timestamp":"2026-11-16T15:00:13.324Z","status":"success","stats":{"total_tokens":0,"input_tokens":0,"output_tokens":0}}
"#,
        stderr: "",
        expected: Err(ErrorCategory::AgentError),
    },
    PresetRun { preset: "gemini", exit: 173, stdout: "", stderr: "", expected: TRANSIENT },
    PresetRun {
        preset: "gemini",
        exit: 41,
        stdout: "",
        stderr: "Invalid auth method selected.\n",
        expected: REFUSED,
    },
    PresetRun {
        preset: "qwen",
        exit: 0,
        stdout: r#"{"type":"assistant","session_id":"s1","message":{"role":"assistant","content":[{"type":"text","text":"Hello from the model."}]}}
{"type":"result","subtype":"success","session_id":"s1","is_error":false,"result":"Hello from the model.","usage":{"input_tokens":12,"output_tokens":7}}
"#,
        stderr: "",
        expected: OK,
    },
    // Only the answer's text reports the refused key.
    PresetRun {
        preset: "qwen",
        exit: 0,
        stdout: r#"{"type":"result","subtype":"success","session_id":"s1","is_error":false,"result":"[API Error: 401 invalid x-api-key]","usage":{"input_tokens":0,"output_tokens":0}}"#,
        stderr: "",
        expected: REFUSED,
    },
    PresetRun {
        preset: "qwen",
        exit: 0,
        stdout: r#"{"type":"result","subtype":"success","session_id":"s1","is_error":false,"result":"[API Error: 429 slow down]"}"#,
        stderr: "",
        expected: TRANSIENT,
    },
    PresetRun {
        preset: "opencode",
        exit: 0,
        stdout: r#"{"type":"step_start","sessionID":"s1","part":{"type":"step-start"}}
{"type":"text","sessionID":"s1","part":{"type":"text","text":"Hello from the model."}}
{"type":"step_finish","sessionID":"s1","part":{"type":"step-finish","reason":"stop"}}
"#,
        stderr: "",
        expected: OK,
    },
    PresetRun {
        preset: "opencode",
        exit: 1,
        stdout: r#"{"type":"error","sessionID":"s1","error":{"name":"APIError","data":{"message":"Unauthorized","statusCode":401}}}"#,
        stderr: "",
        expected: REFUSED,
    },
    PresetRun {
        preset: "copilot",
        exit: 0,
        stdout: r#"{"type":"user.message","data":{"content":"say hello"}}
{"type":"assistant.message_delta","data":{"deltaContent":"Hello "},"ephemeral":true}
{"type":"assistant.message","data":{"model":"m","content":"Hello from the model.","toolRequests":[]}}
{"type":"result","sessionId":"s1","exitCode":0,"usage":{"premiumRequests":0}}
"#,
        stderr: "",
        expected: OK,
    },
    PresetRun {
        preset: "copilot",
        exit: 1,
        stdout: r#"{"type":"session.info","data":{"infoType":"model_retry","message":"Request failed due to a transient API error. Retrying..."}}
{"type":"session.error","data":{"errorType":"authentication","message":"Authentication failed with provider at ****** (HTTP 401).\n  Check your COPILOT_PROVIDER_API_KEY.","statusCode":401}}
{"type":"result","sessionId":"s1","exitCode":1,"usage":{"premiumRequests":0}}
"#,
        stderr: "",
        expected: REFUSED,
    },
    PresetRun {
        preset: "copilot",
        exit: 1,
        stdout: r#"{"type":"session.error","data":{"errorType":"query","message":"Could not connect to local model provider at http://127.0.0.1:39351/v1. Check that the service is running and the port is correct."}}
{"type":"result","sessionId":"s1","exitCode":1}
"#,
        stderr: "",
        expected: TRANSIENT,
    },
    PresetRun { preset: "aider", exit: 0, stdout: HELLO, stderr: "", expected: OK },
    PresetRun {
        preset: "aider",
        exit: 0,
        stdout: "Aider v0.86\nlitellm.AuthenticationError: AuthenticationError: OpenAIException - invalid key\nThe API provider is not able to authenticate you. Check your API key.\n",
        stderr: "",
        expected: REFUSED,
    },
    PresetRun {
        preset: "aider",
        exit: 0,
        stdout: "litellm.RateLimitError: slow down\nRetrying in 0.2 seconds...\nThe API provider has rate limited you.\n",
        stderr: "",
        expected: TRANSIENT,
    },
    PresetRun {
        preset: "aider",
        exit: 0,
        stdout: "litellm.RateLimitError: slow down\nRetrying in 0.2 seconds...\nDone.\nTokens: 12 sent, 7 received.\n",
        stderr: "",
        expected: Ok(
            "litellm.RateLimitError: slow down\nRetrying in 0.2 seconds...\nDone.\nTokens: 12 sent, 7 received.",
        ),
    },
    PresetRun { preset: "aichat", exit: 0, stdout: HELLO, stderr: "", expected: OK },
    PresetRun {
        preset: "aichat",
        exit: 1,
        stdout: "",
        stderr: "Error: Failed to call chat-completions api\nCaused by: invalid x-api-key (status: 401)\n",
        expected: REFUSED,
    },
    PresetRun { preset: "llm", exit: 0, stdout: HELLO, stderr: "", expected: OK },
    PresetRun {
        preset: "llm",
        exit: 1,
        stdout: "",
        stderr: "Error: Error code: 401 - invalid x-api-key\n",
        expected: REFUSED,
    },
];

#[test]
fn recorded_runs_have_the_expected_outcome() {
    for preset in CliPreset::ALL {
        assert!(
            RECORDED_RUNS.iter().any(|run| run.preset == preset.as_str() && run.expected == OK),
            "{preset}"
        );
    }
    for run in RECORDED_RUNS {
        let resolved = resolved(&format!("preset: {}\n", run.preset));
        let parsed = parsed(&resolved, run.stdout);
        let end = judge(&resolved, ProcessExit::Code(run.exit), &parsed, run.stderr, run.stdout);
        let end = end.as_ref().map(String::as_str);
        let expected = run.expected.as_ref();
        match (end, expected) {
            (Ok(answer), Ok(expected)) => assert_eq!(answer, *expected, "{}", run.stdout),
            (Err(failure), Err(category)) => {
                assert_eq!(failure.category, *category, "{failure}\n{}", run.stdout);
            }
            (end, expected) => panic!("{end:?}, not {expected:?}: {} {}", run.preset, run.stdout),
        }
    }
}

fn parsed(resolved: &ResolvedAgent, stdout: &str) -> ParsedOutput {
    let mut parser = AnswerParser::new(&resolved.parser);
    parser.push(stdout.as_bytes());
    parser.finish()
}

#[test]
fn finds_session_ids_and_tokens() {
    for run in RECORDED_RUNS.iter().filter(|run| run.expected == OK) {
        let resolved = resolved(&format!("preset: {}\n", run.preset));
        let found = parsed(&resolved, run.stdout);
        let (session, tokens) = match run.preset {
            "claude" | "codex" | "gemini" | "qwen" => (Some("s1"), Some((12, 7))),
            "opencode" | "copilot" => (Some("s1"), None),
            _ => (None, None),
        };
        assert_eq!(found.session_id.as_deref(), session, "{}", run.preset);
        assert_eq!(found.input_tokens.zip(found.output_tokens), tokens, "{}", run.preset);
    }
}

#[test]
fn no_preset_puts_the_input_on_the_command_line() {
    for preset in CliPreset::ALL {
        let resolved = resolved(&format!("preset: {preset}\n"));
        assert!(resolved.args.iter().all(|arg| !arg.names(&CliPlaceholder::Input)), "{preset}");
        assert_ne!(resolved.input, InputMode::Args, "{preset}");
    }
}

#[test]
fn definition_overrides_the_preset() {
    let codex = resolved("preset: codex\n");
    assert_eq!(codex.executable, "codex");
    assert_eq!(args(&codex), "exec --json --skip-git-repo-check --model {{model}} -");
    assert!(codex.resumed_args.is_some() && codex.install.is_some());

    let allowed = resolved("preset: codex\npermission_policy: allow\n");
    assert!(args(&allowed).ends_with("--dangerously-bypass-approvals-and-sandbox -"));

    let by_argument = resolved("preset: codex\ninput_pattern: args\n");
    assert_eq!(args(&by_argument), "exec --json --skip-git-repo-check --model {{model}}");

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
